"""Benchmarks: the peers that are not an array library's own, and programs that measure something apart."""
