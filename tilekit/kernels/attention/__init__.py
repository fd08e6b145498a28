"""Attention forward: softmax(scale Q Kᵀ) V of heads, composed of the attention driver's components."""
