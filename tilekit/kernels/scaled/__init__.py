"""What the families of `tilekit.scaled_matmul` have in common."""
