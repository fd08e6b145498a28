"""Looking at a launch: stops, state, counts, time lines."""
