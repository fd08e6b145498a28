"""Matrix instructions: mma, wgmma, tcgen05 and tensor memory."""
