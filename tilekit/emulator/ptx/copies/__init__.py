"""Copies in bulk: lines, boxes of tensor maps, gathered rows, im2col; each lands on its own, later."""
