"""The matmul on Blackwell: tcgen05 into tensor memory, tiles claimed by free clusters."""
