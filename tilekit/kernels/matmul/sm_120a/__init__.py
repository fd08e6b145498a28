"""The matmul on RTX 50 (sm_120a)."""
