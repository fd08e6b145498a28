"""Attention on Blackwell: scores and sums in tensor memory."""
