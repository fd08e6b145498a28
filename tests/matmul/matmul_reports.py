"""What a report must say: patterns of who waits for what, and of what is missing."""

from __future__ import annotations

import re


def stuck(role: str, barrier: str) -> str:
    """A role waits for a phase of a barrier."""
    return rf"role {role} \(warps? [\d-]+\) waits for {re.escape(barrier)}\[\d\] phase \d"


def unwaited(role: str, barrier: str) -> str:
    """A role should have waited for a phase of a barrier."""
    return rf"missing edge: no wait for {re.escape(barrier)}\[\d\] phase \d by role {role} \(warp"


def phase(barrier: str, text: str) -> str:
    """What is wrong with a barrier, and in which phase."""
    return rf"barrier: {re.escape(barrier)}\[\d\]: {text}"


def at(role: str) -> str:
    """Whose instruction it was, and where."""
    return rf"role {role} \(warp \d\)\n  at line \d+: "
