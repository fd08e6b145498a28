"""AMDGCN assembly text: tokens, operands, instructions, kernel descriptors and metadata."""
