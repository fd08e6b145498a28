"""Suites whose cases are drawn from a distribution: nothing can be tuned to what a new seed draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tilekit.bench.workload import Workload

__all__ = ["DrawnSuite"]


@dataclass(frozen=True, slots=True)
class DrawnSuite:
    """A distribution of cases, and what is aimed at over them.

    Attributes
    ----------
    name : str
    count : int
        How many are drawn where no number is given.
    aims : tuple of float
        Geometric mean, tenth percentile and smallest of the ratios to the library.
    salt : str
        Which numbers it draws under a seed, apart from other suites.
    one : callable
        Draws a case; None is one that the distribution leaves out, and another is drawn in its place.
    """

    name: str
    count: int
    aims: tuple[float, float, float]
    salt: str
    one: Callable[[Random], Workload | None]

    def draw(self, seed: int, count: int | None = None) -> list[Workload]:
        """Return the first cases of a seed, in the order drawn: fewer are the beginning of more."""
        found: dict[tuple[str, str], Workload] = {}
        index = 0
        while len(found) < (self.count if count is None else count):
            case = self.one(Random(f"{self.salt} {seed} {index}"))
            index += 1
            if case is not None:
                found.setdefault((case.label, case.kind), case)
        return list(found.values())
