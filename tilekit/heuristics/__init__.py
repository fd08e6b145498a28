"""Which configs are legal, and which of them is the best: one engine for every kernel family and every chip.

A family brings what it is asked for (a spec, and a problem's extents), a chip brings a table of rules, candidates and a
model of their times. Nothing here knows a family or a chip.
"""
