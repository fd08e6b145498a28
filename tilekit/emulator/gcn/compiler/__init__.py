"""From instructions to Python source over NumPy: basic blocks, operands, statements."""
