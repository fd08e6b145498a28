"""How a launch may be ordered: policies, orders of start, seeds, and work that lands later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, Protocol

from tilekit.emulator.core.errors import Where

__all__ = ["Check", "Pending", "Policy", "Progress", "Starts", "start_order"]

Policy = Literal["adversarial", "random", "fair"]
Starts = Literal["ascending", "descending", "random"]
"""Orders in which clusters may start; PTX promises none."""

Check = Literal["full", "protocol", "off"]
"""How much is checked."""

Progress = Callable[[int, int, float], None]
"""Told how many parts are done, of how many, after how many seconds."""


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
