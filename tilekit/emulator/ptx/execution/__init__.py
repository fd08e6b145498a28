"""Warps, CTAs and clusters running: who is next, where lanes part and meet, many warps as one."""
