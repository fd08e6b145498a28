"""What the names of chips say: whose a chip is, and its number."""

from __future__ import annotations

import re
from collections.abc import Iterable


def nearest_by_number(name: str, chips: Iterable[str]) -> str:
    """The last of a maker's chips up to the number that a name has, else the first; ``""`` for a name without one."""
    chip = _numbered(name)
    if chip is None:
        return ""
    maker, number = chip
    known = [(found[1], one) for one in chips if (found := _numbered(one)) is not None and found[0] == maker]
    before = [one for one in known if one[0] <= number]
    return max(before)[1] if before else min(known, default=((), ""))[1]


def _numbered(name: str) -> tuple[str, tuple[int, ...]] | None:
    """The maker's prefix, and the number: of AMD's the last two digits are hexadecimal."""
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    cuda = re.fullmatch(r"(?:sm|compute)?(\d{1,2})(\d)[af]?", text)
    if cuda:
        return "sm", (int(cuda[1]), int(cuda[2]))
    amd = re.fullmatch(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])", text)
    return ("gfx", (int(amd[1]), int(amd[2], 16), int(amd[3], 16))) if amd else None
