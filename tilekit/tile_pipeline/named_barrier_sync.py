"""Synchronisation by the CTA's named barriers: two of them a stage, no shared memory, no bytes."""

from __future__ import annotations

from contextlib import nullcontext

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Count, require_sides
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition


@component
class NamedBarrierSync:
    """Two named barriers a stage, at which one side arrives and goes on, and the other waits.

    A barrier completes when the threads of both sides have come; how many those are follows from the roles. It has no
    memory of what lies before: so that the producers wait on every lap alike, the consumers give each stage back once
    before they begin, and the tail takes what they give back last.

    Barriers order the accesses of the threads that meet there (PTX ISA, Memory Consistency Model, Causality order). No
    copy engine counts bytes here.

    Parameters
    ----------
    w
        The writer, in which the barriers are claimed.
    stages
        Stages of the ring.
    producers, consumers
        The roles on either side, of whole warps.
    first_barrier
        The first of ``2 * stages`` named barriers.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` for a role of one thread or of turns, ``TK-TRACE-015`` where the barriers do not suffice.
    """

    def __init__(
        self,
        w: Writer,
        *,
        stages: Count,
        producers: tuple[Role, ...],
        consumers: tuple[Role, ...],
        first_barrier: Barrier,
    ) -> None:
        require_sides("NamedBarrierSync", producers, consumers)
        for role in (*producers, *consumers):
            if role.one_thread:
                raise TraceError(
                    f"role {role.name!r} works with one thread, but NamedBarrierSync counts whole warps; take "
                    "MbarrierSync or SplitCounterSync, or let all of the role's threads work",
                    code="TK-TRACE-013",
                )
            if role.turns > 1:
                raise TraceError(
                    f"the warps of role {role.name!r} take {role.turns} turns and skip stages, but NamedBarrierSync "
                    "has every role come to every stage; take MbarrierSync or SplitCounterSync, or turns=1",
                    code="TK-TRACE-013",
                )
        barriers = w.target.named_barriers
        if first_barrier < 1 or first_barrier + 2 * stages > barriers:
            most = (barriers - max(1, first_barrier)) // 2
            raise TraceError(
                f"stages={stages} from first_barrier={first_barrier} on take named barriers up to "
                f"{first_barrier + 2 * stages - 1}; legal: 1 to {barriers - 1}, two a stage; nearest: "
                f"stages={most} from first_barrier={max(1, min(first_barrier, barriers - 2))} on, or SplitCounterSync",
                code="TK-TRACE-015",
            )
        self.stages = stages
        self.threads = w.lanes * sum(len(role.warps) for role in (*producers, *consumers))
        w.barriers.claim(first_barrier, 2 * stages, meeting="a ring's stages", threads=self.threads, shared=False)
        self.full, self.empty = first_barrier, first_barrier + stages

    def initialise(self, w: Writer) -> None:
        """Nothing: the barriers of a CTA are ready when it starts."""

    def producer(self, w: Writer) -> NamedBarrierProducer:
        """Waits at `empty`, and arrivals at `full`."""
        return NamedBarrierProducer(self)

    def consumer(self, w: Writer) -> NamedBarrierConsumer:
        """Waits at `full`, and arrivals at `empty`: there is one for every stage already."""
        for stage in range(self.stages):
            w.barrier_arrive(id=self.empty + stage, threads=self.threads)
        return NamedBarrierConsumer(self)


class NamedBarrierProducer:
    """Takes stages of a `NamedBarrierSync`."""

    leader: Value | None = None
    commits = True

    def __init__(self, sync: NamedBarrierSync) -> None:
        self._sync = sync

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until the consumers have given `stage` back, as they do once before the first lap."""
        w.barrier(id=stage + self._sync.empty, threads=self._sync.threads)

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Arrive: the barrier orders what this role wrote before what the consumers read behind it."""
        w.publish_shared()
        w.barrier_arrive(id=stage + self._sync.full, threads=self._sync.threads)

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Take back every stage once more: as many waits as arrivals."""
        for _ in w.range(self._sync.stages, name="drain"):
            self.producer_acquire(w, position.stage, position.phase)
            position.advance()


class NamedBarrierConsumer:
    """Gives stages of a `NamedBarrierSync` back."""

    active: Value | None = None

    def __init__(self, sync: NamedBarrierSync) -> None:
        self._sync = sync

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until the producers have handed `stage` over."""
        w.barrier(id=stage + self._sync.full, threads=self._sync.threads)

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> None:
        """A barrier can only be waited for."""

    def ticket(self, stage: Value) -> Value:
        """Its barrier."""
        return stage + self._sync.empty

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Arrive."""
        with nullcontext() if active is None else w.when(active):
            w.barrier_arrive(id=ticket, threads=self._sync.threads)
