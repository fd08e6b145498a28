"""The matmul on Hopper: wgmma into registers, stored by the warpgroups that multiply."""
