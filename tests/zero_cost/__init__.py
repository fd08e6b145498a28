"""The zero-cost claim: a traced kernel and one written by hand become the same machine code."""
