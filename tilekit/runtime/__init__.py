"""Assembling, loading and launching: CUDA, and the built-in emulator, behind one interface."""
