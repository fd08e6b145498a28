"""How a launch may be ordered: policies, orders of start, seeds, and work that lands later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, Protocol

from tilekit.emulator.core.errors import Where

__all__ = ["Check", "Pending", "Policy", "Progress", "Starts", "Waiting"]

Policy = Literal["adversarial", "random", "fair"]
Starts = Literal["ascending", "descending", "random"]
"""Orders in which clusters may start; PTX promises none."""

Check = Literal["full", "protocol", "off"]
"""How much is checked."""

Progress = Callable[[int, int, float], None]
"""Told how many parts are done, of how many, after how many seconds."""


class Waiting:
    """The numbers of groups that have not started, taken in the order in which they start.

    It holds no list of them: a grid may have more CTAs than memory has room for their numbers.
    """

    def __init__(self, groups: int, starts: Starts, seed: int) -> None:
        self._left = self._groups = groups
        self._starts = starts
        self._rng = random.Random(seed)
        self._moved: dict[int, int] = {}
        """What an exchange of Fisher and Yates' shuffle has left in a place, where it is not the place's own number."""

    def __len__(self) -> int:
        return self._left

    def popleft(self) -> int:
        """Take the next one."""
        self._left -= 1
        if self._starts == "ascending":
            return self._groups - 1 - self._left
        if self._starts == "descending":
            return self._left
        place = self._rng.randrange(self._left + 1)
        last = self._moved.pop(self._left, self._left)
        if place == self._left:
            return last
        taken = self._moved.get(place, place)
        self._moved[place] = last
        return taken


class Pending(Protocol):
    """An asynchronous operation that has been issued and may land at any time."""

    done: bool

    @property
    def where(self) -> Where:
        """Where it was issued."""

    def land(self) -> bool:
        """Do its next step; False when another one remains."""
