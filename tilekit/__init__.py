"""tilekit: structured GPU kernels from hand-written PTX and AMDGCN fragments, composed in Python."""

__version__ = "0.1.0"
