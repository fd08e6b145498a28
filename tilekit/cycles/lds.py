"""Bank conflicts of LDS: how often it must be read or written for one access of a wave.

Lanes are served in groups that the width of the access and the chip decide; within a group each bank gives four bytes
a time, and lanes that want the same four bytes share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilekit.emulator.gcn.chips import CHIPS
from tilekit.errors import ArgumentError

__all__ = ["conflicts"]

BANKS: Final = {"gfx942": 32, "gfx950": 64}
"""Of four bytes."""
_LANES: Final = 64
_CODE: Final = "TK-CYCLES-001"


def _spans(*spans: tuple[int, int]) -> list[int]:
    return [lane for first, last in spans for lane in range(first, last + 1)]


def _both_halves(*groups: list[int]) -> list[list[int]]:
    """Groups of the first 32 lanes, and the same of the others."""
    return [*groups, *([lane + 32 for lane in group] for group in groups)]


_READS: Final = {
    ("gfx942", 16): _both_halves(
        _spans((0, 3), (20, 23)), _spans((4, 7), (16, 19)), _spans((8, 11), (28, 31)), _spans((12, 15), (24, 27))
    ),
    ("gfx950", 16): _both_halves(_spans((0, 3), (12, 15), (20, 27)), _spans((4, 11), (16, 19), (28, 31))),
}
"""Lanes that `ds_read_b128` serves together."""


def _groups(bytes_per_lane: int, chip: str, write: bool) -> list[list[int]]:
    if bytes_per_lane == 16 and not write:
        return _READS[chip, 16]
    at_once = BANKS[chip] * 4 // max(bytes_per_lane, 4)
    if bytes_per_lane == 12 or write:  # 128 bytes at once on either chip
        at_once = min(at_once, max(128 // bytes_per_lane // 8 * 8, 8))
    return [list(range(first, min(first + at_once, _LANES))) for first in range(0, _LANES, at_once)]


def conflicts(addresses: Sequence[int], bytes_per_lane: int, chip: str, *, write: bool = False) -> int:
    """Return by how many extra passes LDS serves an access of a wave; 0 without conflicts.

    Parameters
    ----------
    addresses
        Byte address of each lane; 64 of them.
    bytes_per_lane
        4, 8, 12 or 16.
    chip
        ``gfx942`` or ``gfx950``.
    write
        Whether it is a ``ds_write``.

    Raises
    ------
    ArgumentError
        If there are not 64 addresses, or width or chip is another.
    """
    if chip not in CHIPS:
        raise ArgumentError.of("chip", chip, legal=", ".join(CHIPS), nearest="gfx950", code=_CODE)
    if bytes_per_lane not in (4, 8, 12, 16):
        close = min((4, 8, 12, 16), key=lambda size: abs(size - bytes_per_lane))
        raise ArgumentError.of("bytes_per_lane", bytes_per_lane, legal="4, 8, 12 or 16", nearest=close, code=_CODE)
    if len(addresses) != _LANES:
        raise ArgumentError.of("addresses", len(addresses), legal="64 of them", nearest=_LANES, code=_CODE)
    narrow = (bytes_per_lane == 8 and write) or (bytes_per_lane == 12 and not write)  # served as if there were 32 banks
    banks = 32 if narrow else BANKS[chip]
    extra = 0
    for group in _groups(bytes_per_lane, chip, write):
        wanted: dict[int, set[int]] = {}
        for lane in group:
            for word in range(addresses[lane] // 4, (addresses[lane] + bytes_per_lane - 1) // 4 + 1):
                wanted.setdefault(word % banks, set()).add(word)
        extra += max(len(words) for words in wanted.values()) - 1
    return extra
