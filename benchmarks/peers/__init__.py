"""Peers besides the array library: each is one module with ``launch(a, b, out)``."""
