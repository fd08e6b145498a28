"""Products of groups of rows with matrices of their own: the matmul family with another scheduler."""
