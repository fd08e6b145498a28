"""Turns of warpgroups at the tensor core within a tile: one issues its products while the others have other work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Count
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import Warpgroup


class BoundTurns(Protocol):
    """Turns in a role."""

    def turn(self) -> AbstractContextManager[None]:
        """Enter when it is this warpgroup's turn; on exit the next one's begins."""


class NoTurns:
    """Warpgroups issue as they come. Not a single instruction."""

    def bind(self, w: Writer, group: Warpgroup) -> NoTurns:
        """Nothing to prepare."""
        return self

    def turn(self) -> AbstractContextManager[None]:
        """Always."""
        return nullcontext()


@component
class Turns:
    """Warpgroups go round: each has a named barrier at which it meets the one that hands over to it.

    All have the same number of turns, since each hands over to the next as often as it has been handed to.

    Parameters
    ----------
    warpgroups
        How many go round.
    first_barrier
        Named barrier of the first of them.
    """

    def __init__(self, *, warpgroups: Count, first_barrier: Barrier) -> None:
        self.warpgroups = warpgroups
        self.first_barrier = first_barrier

    def bind(self, w: Writer, group: Warpgroup) -> TakenTurns:
        """Prepare a warpgroup; the first one's turn begins."""
        return TakenTurns(w, self, group)


class TakenTurns:
    """`Turns` in a role."""

    def __init__(self, w: Writer, turns: Turns, group: Warpgroup) -> None:
        assert isinstance(group.index, Value)
        self._w = w
        self._threads = 2 * w.target.matrix_threads
        self._own = group.index + turns.first_barrier
        following = group.index + 1
        self._next = w.select(following == turns.warpgroups, 0, following) + turns.first_barrier
        w.barriers.claim(turns.first_barrier, turns.warpgroups, meeting="turns", threads=self._threads)
        with w.when(group.index == turns.warpgroups - 1):
            self._hand_over()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Enter when the warpgroup before has handed over; on exit hand over to the next."""
        self._w.barrier(id=self._own, threads=self._threads)
        yield
        self._hand_over()

    def _hand_over(self) -> None:
        self._w.barrier_arrive(id=self._next, threads=self._threads)
