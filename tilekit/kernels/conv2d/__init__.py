"""Convolutions of images: the matmul family with other loaders of its operands."""
