"""Matmuls of operands with a scale for every few elements of K: the matmul family with another payload and op."""
