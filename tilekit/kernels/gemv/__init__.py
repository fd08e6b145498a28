"""Products of a few rows with a large matrix, streamed once at the speed of memory."""
