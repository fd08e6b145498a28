"""Numbers as NVIDIA's hardware computes them: instructions on floats, reductions, video, tensor cores."""
