"""What any GPU's emulator shares: faults and their words, memory, order and races, deadlocks, schedules, reports."""
