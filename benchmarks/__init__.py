"""Benchmarks: the lists of cases, and the peers that are not an array library's own."""
