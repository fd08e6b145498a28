"""Passes through the banks of a memory that lanes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BANK_BYTES", "passes"]

BANK_BYTES = 4


def passes(
    addresses: npt.NDArray[Any], size: int, groups: Iterable[npt.NDArray[Any] | slice], banks: int
) -> tuple[int, int]:
    """Passes that one access needs, and how many its data alone would need.

    In a pass every bank delivers one word of 4 bytes, to all lanes that want it.

    Parameters
    ----------
    addresses
        Byte address of each lane; negative where a lane is inactive.
    size
        Bytes a lane.
    groups
        The lanes that are served together, group after group.
    banks
        How many there are.
    """
    words = max(1, size // BANK_BYTES)
    needed = ideal = 0
    for group in groups:
        found = addresses[group]
        found = found[found >= 0]
        if found.size:
            distinct = np.unique((found[:, None] // BANK_BYTES + np.arange(words)).ravel())
            needed += int(np.bincount(distinct % banks).max())
            ideal += -(-distinct.size // banks)
    return needed, ideal
