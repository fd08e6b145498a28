"""The matmul on chips whose matrix instruction is one warp's: warps that copy, multiply and store, stages ahead."""
