"""How lines of GCN's fragments are written: operands in them, and lines that name no registers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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

_GUARD = re.compile(r"^\s*s_and_saveexec_b64\s+(\$\{\w+\}),\s*\$\{(\w+)\}$")
"""The begin of what lanes do for which a predicate holds."""


def without_guard(lines: Sequence[str], decided: Mapping[str, bool]) -> list[str]:
    """Return a fragment's lines as they are where predicates of some operands are known; "" for one that is left out.

    Lines for all lanes need no EXEC of their own. Lines for none are left out, with those that say how long: where
    some of them are control, all stay.
    """
    found = list(lines)
    for begin, line in enumerate(lines):
        guard = _GUARD.match(line)
        if guard is None or guard[2] not in decided:
            continue
        ends = [i for i, text in enumerate(lines) if text.split() == ["s_mov_b64", "exec,", guard[1]]]
        if len(ends) != 1 or ends[0] < begin:
            continue
        (end,) = ends
        if decided[guard[2]]:
            found[begin] = found[end] = ""
        elif not any(pattern.match(text) for text in lines[begin : end + 1] for pattern in CONTROL):
            found[begin : end + 1] = [""] * (end + 1 - begin)
    return found
