"""The calls: arrays in, arrays out. A module a family, and what they have in common."""
