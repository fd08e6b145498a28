"""PTX: how a trace is spelled for NVIDIA's assembler."""
