"""The matmul on A100 (sm_80)."""
