"""What goes wrong: order and races, uninitialised reads, deadlock, and the words for it."""
