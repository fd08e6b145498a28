"""Epilogue components: accumulators to global memory, with fused elementwise work."""
