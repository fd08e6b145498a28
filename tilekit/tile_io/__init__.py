"""TileIO components: each moves one tile between two memory levels."""
