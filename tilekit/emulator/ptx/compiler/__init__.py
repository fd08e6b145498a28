"""From parsed kernels to Python that runs warps: blocks, inlining, uniform values, generated source."""
