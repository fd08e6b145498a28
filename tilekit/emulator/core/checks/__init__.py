"""What goes wrong: order and races, deadlock, and the words for it."""
