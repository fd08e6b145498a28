"""Looking at launches: an instrumented program and batch, counting, timelines, stopping and stepping."""
