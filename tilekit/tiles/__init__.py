"""The words that components say to each other: what a call brings, and what moves between them."""
