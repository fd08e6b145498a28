"""Accesses to global memory, LDS and scratch, and buffer resource descriptors."""
