"""How a launch may be ordered: policies, orders of start, seeds, and work that lands later."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from numbers import Integral
from typing import Literal, Protocol

from tilekit.emulator.core.errors import LaunchError, Where

__all__ = ["Pending", "Policy", "Progress", "Starts", "checked_seed", "start_order"]

Policy = Literal["adversarial", "random", "fair"]
Starts = Literal["ascending", "descending", "random"]
"""Orders in which clusters may start; PTX promises none."""

Progress = Callable[[int, int, float], None]
"""Told how many parts are done, of how many, after how many seconds."""


def checked_seed(seed: object, name: str = "seed") -> int:
    """A seed as a Python integer.

    Raises
    ------
    LaunchError
        If it is none: a launch could not be run again in the same order.
    """
    if not isinstance(seed, Integral):
        close = round(seed) if isinstance(seed, float) and math.isfinite(seed) else 0
        raise LaunchError.argument(name, seed, "an integer", close)
    return int(seed)


def start_order(clusters: int, starts: Starts, seed: int) -> list[int]:
    """The numbers of so many clusters in the order in which they start."""
    numbers = list(range(clusters))
    if starts == "descending":
        numbers.reverse()
    elif starts == "random":
        random.Random(seed).shuffle(numbers)
    return numbers


class Pending(Protocol):
    """An asynchronous operation that has been issued and may land at any time."""

    done: bool

    @property
    def where(self) -> Where:
        """Where it was issued."""

    def land(self) -> bool:
        """Do its next step; False when another one remains."""
