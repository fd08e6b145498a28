"""The matmul on CDNA3 (gfx942)."""
