"""The dimensions of a launch: one to three positive integers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from tilekit.emulator.core.errors import LaunchError

__all__ = ["Dim3", "dim3"]

Dim3 = tuple[int, int, int]


def dim3(name: str, value: int | Sequence[int]) -> Dim3:
    """Return (x, y, z); missing ones are 1.

    Raises
    ------
    LaunchError
        If `value`, the argument called `name`, is not one to three positive integers.
    """
    parts = tuple(value) if isinstance(value, list | tuple | np.ndarray) else (value,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(part, Integral) and int(part) >= 1 for part in parts):
        raise LaunchError.argument(name, value, "one to three positive integers", (1, 1, 1))
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z
