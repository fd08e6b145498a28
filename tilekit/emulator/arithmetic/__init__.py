"""Numbers as the hardware computes them: formats, rounding, tensor cores."""
