"""Address spaces, allocations, and the bytes that an access touches."""
