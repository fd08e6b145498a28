"""Numbers that every GPU has: formats, rounding, masks of lanes."""
