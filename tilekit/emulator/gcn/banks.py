"""Banks of LDS: which lanes of an access are served together, and how often they get into each other's way.

Published for `ds_read_b32`, `_b64`, `_b96`, `_b128` and `ds_write_b64`, `_b128`; other writes are taken to go by the
128 bytes a clock that those do, and narrower accesses as those of a word.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.banks import passes
from tilekit.emulator.core.errors import LaunchError, nearest
from tilekit.emulator.gcn.chips import CHIPS

__all__ = ["Passes", "conflicts"]

_LANES = 64
_INTERLEAVED = ((0, 4, 20, 24), (4, 8, 16, 20), (8, 12, 28, 32), (12, 16, 24, 28))
"""Ranges of the first 32 lanes that go together in wide reads through 32 banks; the other 32 lanes follow likewise."""
_INTERLEAVED_64 = ((0, 4, 12, 16, 20, 28), (4, 12, 16, 20, 28, 32))
"""The same of ds_read_b128 through 64 banks."""


class Passes(NamedTuple):
    """Passes through the banks that an access needs, and how many its data alone would need."""

    needed: int
    ideal: int

    @property
    def extra(self) -> int:
        """Bank conflicts: passes beyond those."""
        return self.needed - self.ideal


def conflicts(addresses: npt.ArrayLike, width: int, chip: str, *, write: bool = False) -> Passes:
    """Return the passes of one LDS access of a wave.

    Parameters
    ----------
    addresses
        Byte address of each of 64 lanes; negative where a lane is inactive.
    width
        Bytes a lane: 1, 2, 4, 8, 12 or 16.
    chip
        ``gfx942`` or ``gfx950``.
    write
        Whether it is a write.

    Raises
    ------
    LaunchError
        If the chip, the width or the number of lanes is none of these.
    """
    if chip not in CHIPS:
        raise LaunchError.argument("chip", chip, ", ".join(CHIPS), nearest(chip, CHIPS) or "gfx950")
    if width not in (1, 2, 4, 8, 12, 16):
        raise LaunchError.argument("width", width, "1, 2, 4, 8, 12 or 16 bytes")
    places = np.asarray(addresses)
    if places.shape != (_LANES,):
        raise LaunchError.argument("addresses", places.shape, "an address for each of 64 lanes")
    groups, banks = _groups(width, chip, write)
    return Passes(*passes(places, width, groups, banks))


@lru_cache(64)
def _groups(width: int, chip: str, write: bool) -> tuple[tuple[npt.NDArray[Any], ...], int]:
    """The lanes that are served together, and the number of banks."""
    lanes = np.arange(_LANES)
    wide = not write and chip == "gfx950" and width != 12
    if width >= 12 and not write:
        halves = _INTERLEAVED_64 if wide else _INTERLEAVED
        parts = [np.concatenate([lanes[a:b] for a, b in zip(one[::2], one[1::2], strict=True)]) for one in halves]
        return (*parts, *(part + 32 for part in parts)), 64 if wide else 32
    together = (64 if wide else 32) * 4 // max(width, 4)
    together = 8 if width == 12 else together
    return tuple(np.split(lanes, range(together, _LANES, together))), 64 if wide else 32
