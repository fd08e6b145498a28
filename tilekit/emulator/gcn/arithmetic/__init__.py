"""Numbers as AMD chips hold and round them."""
