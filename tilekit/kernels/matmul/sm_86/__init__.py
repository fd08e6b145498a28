"""The matmul on RTX 30 (sm_86)."""
