"""How warpgroups that multiply divide the tiles among them: all have a part of each, or they take turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, illegal
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_pipeline.ring import Consumer
from tilekit.tiles.tile import Tile


class ConsumerSchedule(Protocol):
    """What the driver asks of a schedule of consumers."""

    def bind(self, w: Writer, group: Warpgroup | None) -> BoundConsumerSchedule:
        """Prepare a warpgroup; once a role. `group` is None where one thread issues for all."""


class BoundConsumerSchedule(Protocol):
    """A `ConsumerSchedule` in a role."""

    def tile(self, consumer: Consumer, tile: Tile, k: int) -> AbstractContextManager[None]:
        """Enter with the tiles that this warpgroup works on, in its turn; a stage holds `k` elements of K."""

    def hand_over(self) -> None:
        """Everything for the tile has been issued to the tensor core, and every stage waited for."""


class Cooperative:
    """Every warpgroup has its part of each tile. Not a single instruction."""

    def bind(self, w: Writer, group: Warpgroup | None) -> Cooperative:
        """Nothing to prepare."""
        return self

    def tile(self, consumer: Consumer, tile: Tile, k: int) -> AbstractContextManager[None]:
        """Every tile is this warpgroup's too."""
        return nullcontext()

    def hand_over(self) -> None:
        """No warpgroup waits for a turn."""


@component
class PingPong:
    """The warpgroups take turns, each with whole tiles: while one stores its tile, the next one multiplies.

    All go round the same ring, and each goes past the k-blocks of the others' tiles. Main loops follow each other in
    the order of the tiles: a warpgroup hands the tensor core over once it has issued the last instruction of its tile.
    That is also what makes it right to go past stages (`RingPosition.skip`): when a warpgroup begins to wait for its
    first stage, those before it have all been waited for.

    Each warpgroup has a named barrier for its turn, at which it meets the warpgroup that hands over to it: one waits,
    the other arrives and goes on (CUTLASS calls this an ordered sequence barrier).

    Parameters
    ----------
    role
        The role whose warpgroups take turns.
    first_barrier
        Named barrier of the first of them.
    """

    def __init__(self, role: Role, *, first_barrier: Barrier) -> None:
        if role.one_thread or role.turns < 2:
            legal = "a role of two warpgroups or more that take turns"
            raise illegal(
                "PingPong", "role", role.name, f"{legal}; {role.name!r} has turns={role.turns}", "Cooperative"
            )
        self.turns = role.turns
        self.first_barrier = first_barrier

    def bind(self, w: Writer, group: Warpgroup | None) -> BoundPingPong:
        """Prepare a warpgroup; the first one's turn begins."""
        if group is None or not isinstance(group.index, Value):
            raise TraceError(
                "PingPong has warpgroups take turns, but "
                + ("one thread multiplies for all" if group is None else "the role is one warpgroup")
                + "; nearest: Cooperative",
                code="TK-FIT-001",
            )
        return BoundPingPong(w, self, group.index)


class BoundPingPong:
    """`PingPong` in a role."""

    def __init__(self, w: Writer, schedule: PingPong, group: Value) -> None:
        self._w = w
        self._turns = turns = schedule.turns
        # The warpgroup whose turn it is, and the one that hands over.
        self._threads = 2 * w.target.matrix_threads
        self._group = group
        self._own = group + schedule.first_barrier
        self._next = (group + 1) % turns + schedule.first_barrier
        self._turn = w.variable(U32, 0, "turn")
        w.barriers.claim(schedule.first_barrier, turns, meeting="pingpong", threads=self._threads)
        # The last warpgroup begins as if the tile before the first one had been its own.
        with w.when(group == turns - 1):
            self.hand_over()

    @contextmanager
    def tile(self, consumer: Consumer, tile: Tile, k: int) -> Iterator[None]:
        """Enter with this warpgroup's tiles, once the tensor core is handed over; go past the stages of the others'."""
        w = self._w
        own = self._turn == self._group
        with w.when(own):
            w.barrier(id=self._own, threads=self._threads)
            yield
        with w.when(~own):
            consumer.skip(tile.k_blocks(k))
        self._turn.assign((self._turn + 1) % self._turns)

    def hand_over(self) -> None:
        """Let the next warpgroup begin."""
        self._w.barrier_arrive(id=self._next, threads=self._threads)
