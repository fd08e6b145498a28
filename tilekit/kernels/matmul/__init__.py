"""The matmul family: what it computes, how it may be configured, and how arrays are bound to it."""
