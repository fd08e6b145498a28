"""Synchronisation by counters in shared memory: two a stage, for chips without barriers that threads can poll."""

from __future__ import annotations

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, require_sides
from tilekit.assembly.shared import SharedArray, SharedDeclaration
from tilekit.assembly.types import PRED
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition


@component
class SplitCounterSync:
    """Two counters a stage: `full` of the producers' arrivals, `empty` of the consumers'.

    A counter only grows, so its phase is how often it has reached its arrivals, which follow from the roles: one of a
    single thread, else one a warp. Who waits polls. No copy engine counts bytes here.

    An arrival releases and a wait acquires (PTX ISA, Memory Consistency Model: release and acquire patterns; of a warp
    one lane does, behind a barrier of its lanes).

    Parameters
    ----------
    w
        The writer; the counters are allocated in its shared memory.
    name
        The ring's name in maps and reports.
    stages
        Stages of the ring.
    producers, consumers
        The roles on either side.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where on one side some roles work with one thread and others with whole warps.
    """

    def __init__(
        self, w: Writer, name: str, *, stages: Count, producers: tuple[Role, ...], consumers: tuple[Role, ...]
    ) -> None:
        require_sides("SplitCounterSync", producers, consumers)
        self.stages = stages
        self.full, self.empty = (
            _Side(w.shared.place(counters), arrivals=sum(role.arrivals for role in roles), alone=alone(self, roles))
            for counters, roles in zip(self.declared(name, stages), (producers, consumers), strict=True)
        )

    @staticmethod
    def declared(name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the counters."""
        return tuple(SharedDeclaration(f"{name}.{side}", 4, stages, 4) for side in ("full", "empty"))

    def initialise(self, w: Writer) -> None:
        """Clear the counters; one thread of the CTA, before a barrier of all."""
        for side in (self.full, self.empty):
            for stage in range(self.stages):
                w.isa.counter.clear(address=w.shared_base + (side.counters.offset + stage * side.counters.stride))

    def producer(self, w: Writer) -> CounterProducer:
        """Waits for `empty`, and arrivals on `full`."""
        return CounterProducer(w, self)

    def consumer(self, w: Writer) -> CounterConsumer:
        """Waits for `full`, and arrivals on `empty`."""
        return CounterConsumer(w, self)


class _Side:
    """One counter a stage, and who arrives on it."""

    def __init__(self, counters: SharedArray, *, arrivals: int, alone: bool) -> None:
        self.counters = counters
        self.arrivals = arrivals
        self.alone = alone

    def lanes(self, w: Writer) -> Value:
        """The lanes that arrive: the thread that works alone, else one a warp."""
        return w.constant(PRED, True) if self.alone else w.lane() == 0

    def wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until the counter of `stage` has completed the phase of that parity."""
        w.isa.counter.wait_parity(address=self.counters.at(w, stage), parity=phase, arrivals=self.arrivals)


class CounterProducer:
    """Takes stages of a `SplitCounterSync`."""

    leader: Value | None = None
    commits = True

    def __init__(self, w: Writer, sync: SplitCounterSync) -> None:
        self._sync = sync
        self._lanes = sync.full.lanes(w)

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until every consumer has given `stage` back."""
        self._sync.empty.wait(w, stage, phase)

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Arrive once all lanes of the warp have written."""
        full = self._sync.full
        w.publish_shared()
        if not full.alone:
            w.warp_sync_shared()
        w.isa.counter.arrive(address=full.counters.at(w, stage), active=self._lanes)

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Nothing: arrivals are ordinary writes, ordered before the end of the threads that make them."""


class CounterConsumer:
    """Gives stages of a `SplitCounterSync` back."""

    def __init__(self, w: Writer, sync: SplitCounterSync) -> None:
        self._w = w
        self._sync = sync
        self.active: Value | None = sync.empty.lanes(w)

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until every producer has handed `stage` over."""
        self._sync.full.wait(w, stage, phase)

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> None:
        """A counter is only waited for."""

    def ticket(self, stage: Value) -> Value:
        """Address of its counter."""
        return self._sync.empty.counters.at(self._w, stage)

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Arrive: the reader has waited for all lanes of the warp."""
        w.isa.counter.arrive(address=ticket, active=self.active if active is None else active)


def alone(sync: object, roles: tuple[Role, ...]) -> bool:
    """Whether the roles of a side work with one thread each.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where some do and others work with whole warps: `sync` counts them in one way.
    """
    single = [role.name for role in roles if role.one_thread]
    if single and len(single) < len(roles):
        others = [role.name for role in roles if not role.one_thread]
        raise TraceError(
            f"on one side of a {type(sync).__name__}, {', '.join(single)} works with one thread and "
            f"{', '.join(others)} with whole warps; let all of them work in the same way",
            code="TK-TRACE-013",
        )
    return bool(single)
