"""Choosing by measurement, for peers that have several ways to compute a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tilekit.bench.machine import Machine

__all__ = ["quickest"]

_Choice = TypeVar("_Choice")

_LAUNCHES: Final = 8
_SECONDS: Final = 2e-3
_MOST_REPLAYS: Final = 20


def quickest(
    machine: Machine,
    choices: Sequence[_Choice],
    launch: Callable[..., None],
    sets: Sequence[tuple[Any, ...]],
) -> _Choice:
    """Return the choice whose launches take the least time, a few at a time in a graph, on rotated operands.

    Parameters
    ----------
    machine : Machine
    choices : sequence
        What ``launch`` takes before the operands.
    launch : callable
    sets : sequence of tuple
        Operand sets, of which the first few are used.

    Raises
    ------
    Exception
        That of the first choice, if all of them fail; a choice that fails is passed over otherwise.
    """
    times: list[tuple[float, int]] = []
    failures = []
    for index, choice in enumerate(choices):
        try:
            times.append((_seconds(machine, choice, launch, sets[:_LAUNCHES]), index))
        except Exception as error:
            # Out of shared memory, or not for this type: which choices fit a case is known only here.
            failures.append(error)
    if not times:
        raise failures[0] if failures else ValueError("nothing to choose from")
    return choices[min(times)[1]]


def _seconds(machine: Machine, choice: Any, launch: Callable[..., None], sets: Sequence[tuple[Any, ...]]) -> float:
    def work() -> None:
        for operands in sets:
            launch(choice, *operands)

    work()  # compiles, so that the capture does not
    replay = machine.capture(work)
    machine.time(replay, 1)
    once = max(machine.time(replay, 1), 1e-7)
    count = min(max(1, round(_SECONDS / once)), _MOST_REPLAYS)
    return machine.time(replay, count) / count
