"""The matmul on RTX 40 (sm_89)."""
