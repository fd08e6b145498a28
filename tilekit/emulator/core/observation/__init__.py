"""Looking at a launch while it runs and counting what it does: what any room's observers share."""
