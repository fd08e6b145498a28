"""Products of 8-bit operands in blocks with scales of their own: the matmul with another payload and accumulator."""
