"""Kernel families: specs that say what is computed and which components do it."""
