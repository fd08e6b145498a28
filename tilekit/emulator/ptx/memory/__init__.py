"""Accesses to the state spaces; tensor maps and swizzles."""
