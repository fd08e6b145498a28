"""TileOp components: the matrix instruction and the life of its accumulators."""
