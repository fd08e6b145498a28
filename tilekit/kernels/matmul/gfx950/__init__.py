"""The matmul on CDNA4 (gfx950)."""
