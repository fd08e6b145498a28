"""Batches of waves, workgroups, and the machine that runs them."""
