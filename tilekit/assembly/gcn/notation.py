"""How lines of GCN's fragments are written: operands in them, and lines that name no registers."""

from __future__ import annotations

import re

HOLE = re.compile(r"\$\{(\w+)(?:\[(\d+)(?::(\d+))?\])?\}")
"""An operand, or some of its words: ``${wide}``, ``${wide[0]}``, ``${tile[4:7]}``."""

LABEL = re.compile(r"^\s*(\w+):$")
BRANCH = re.compile(r"^\s*s_(?:cbranch_(\w+)|branch)\s+(\w+)$")
WAIT = re.compile(r"^\s*s_waitcnt\b(.*)$")
"""Counters that are to be zero."""

COMMIT = re.compile(r"^\s*commit_group$")
WAIT_GROUP = re.compile(r"^\s*wait_group\s+(\d+)$")
"""Lines of the writer's own: the end of a group of loads to LDS, and a wait for all but the youngest groups."""

CONTROL = (LABEL, BRANCH, COMMIT, WAIT_GROUP, WAIT)
"""Lines that are no instruction to give registers to."""
