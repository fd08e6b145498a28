"""Synchronisation by the barrier of the whole CTA, which all of its waves pass equally often: a stage, a barrier."""

from __future__ import annotations

from typing import Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import require_sides
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tiles.stage import AsyncReader

FOR_READS_IN_FLIGHT: Final = 4
"""Stages of a ring where one is still read at the next one's barrier: of three, a producer is ahead by that one."""


@component
class BarrierSync:
    """Producers hand a stage over, and consumers wait for it, at the barrier of the CTA: no memory, and no polls.

    All waves belong to one side or the other. At a stage's barrier its writes are done, and so are the reads of the
    stage before it; a producer is at most half of the ring ahead, so nothing else needs to be waited for.

    Parameters
    ----------
    w
        The writer.
    name
        The ring's name in maps and reports.
    stages
        Stages of the ring, at least two: one is read while the next is filled.
    producers, consumers
        The roles on either side.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where a wave of the CTA is on neither side, or a role works with one thread; ``TK-TRACE-019``
        for a ring of one stage.
    """

    def __init__(
        self, w: Writer, name: str, *, stages: int, producers: tuple[Role, ...], consumers: tuple[Role, ...]
    ) -> None:
        require_sides("BarrierSync", producers, consumers)
        roles = (*producers, *consumers)
        alone = [role.name for role in roles if role.one_thread or role.turns > 1]
        waves = sum(len(role.warps) for role in roles)
        if alone or waves * w.lanes != w.threads:
            given = f"role {alone[0]!r} does not" if alone else f"{waves} of its {w.threads // w.lanes} waves do"
            raise TraceError(
                f"BarrierSync is for rings at whose barrier all waves of the CTA meet, with all of their threads, and "
                f"{given}; nearest: SplitCounterSync",
                code="TK-TRACE-013",
            )
        if stages < 2:
            raise TraceError(
                f"stages={stages} with a BarrierSync: a stage is read while the next one is filled; nearest: 2",
                code="TK-TRACE-019",
            )
        self.stages = stages

    @staticmethod
    def declared(name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """None: the barrier is the chip's own."""
        return ()

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def most_in_flight(self, reader: AsyncReader) -> int:
        """Groups of reads that may run on behind a stage's barrier, where producers are half of the ring ahead."""
        return 1 if getattr(reader, "synchronous", False) or self.stages >= FOR_READS_IN_FLIGHT else 0

    def producer(self, w: Writer) -> BarrierProducer:
        """A barrier behind each stage."""
        return BarrierProducer()

    def consumer(self, w: Writer) -> BarrierConsumer:
        """A barrier before each stage."""
        return BarrierConsumer()


class BarrierProducer:
    """Takes stages of a `BarrierSync`."""

    leader: Value | None = None
    commits = True

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> None:
        """Nothing to wait for: the stage was read before the last barrier."""

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Meet the consumers, once this wave's writes are done."""
        w.publish_shared()
        w.barrier_shared()

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Nothing: consumers meet as often as producers."""


class BarrierConsumer:
    """Gives stages of a `BarrierSync` back."""

    active: Value | None = None

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Meet the producers, once this wave's reads of the stage before are done."""
        w.barrier_shared()

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> None:
        """Nothing: a barrier is met, not asked."""

    def ticket(self, stage: Value) -> Value:
        """The stage itself: nothing gives it back."""
        return stage

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Nothing: the next stage's barrier does."""
