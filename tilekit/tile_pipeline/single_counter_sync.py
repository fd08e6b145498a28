"""Synchronisation by one counter in shared memory for each stage, on which producers and consumers arrive in turn."""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, require_sides
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import PRED
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tile_pipeline.split_counter_sync import alone


@component
class SingleCounterSync:
    """One counter a stage, half of a `SplitCounterSync`'s: a lap is the producers' arrivals, then the consumers'.

    A counter only grows, and no one arrives out of turn: producers wait until a lap is over, consumers until the
    producers of their lap have arrived. A position in a ring knows whether its lap is even or odd, so the counter is
    looked at modulo two laps.

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
        require_sides("SingleCounterSync", producers, consumers)
        self.stages = stages
        (declared,) = self.declared(name, stages)
        self.counters = w.shared.place(declared)
        self.filling, self.reading = (sum(role.arrivals for role in roles) for roles in (producers, consumers))
        self.filled_alone, self.read_alone = (alone(self, roles) for roles in (producers, consumers))

    @staticmethod
    def declared(name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the counters."""
        return (SharedDeclaration(f"{name}.turn", 4, stages, 4),)

    @property
    def lap(self) -> int:
        """Arrivals between a stage that is free and the next time that it is."""
        return self.filling + self.reading

    def initialise(self, w: Writer) -> None:
        """Clear the counters; one thread of the CTA, before a barrier of all."""
        for stage in range(self.stages):
            w.isa.counter.clear(address=w.shared_base + (self.counters.offset + stage * self.counters.stride))

    def producer(self, w: Writer) -> SingleCounterProducer:
        """Waits for the end of a lap, and arrivals."""
        return SingleCounterProducer(w, self)

    def consumer(self, w: Writer) -> SingleCounterConsumer:
        """Waits for a lap's producers, and arrivals."""
        return SingleCounterConsumer(w, self)


class SingleCounterProducer:
    """Takes stages of a `SingleCounterSync`."""

    leader: Value | None = None
    commits = True

    def __init__(self, w: Writer, sync: SingleCounterSync) -> None:
        self._sync = sync
        self._lanes = _lanes(w, alone=sync.filled_alone)

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until a lap begins at `stage`: its arrivals are then those of producers."""
        sync = self._sync
        # The phase is 1 on even laps, which begin at a multiple of two.
        ahead = (phase ^ 1) * sync.lap
        address = sync.counters.at(w, stage)
        w.isa.counter.wait_within(address=address, ahead=ahead, period=2 * sync.lap, arrivals=sync.filling)

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Arrive once all lanes of the warp have written."""
        w.publish_shared()
        if not self._sync.filled_alone:
            w.warp_sync_shared()
        w.isa.counter.arrive(address=self._sync.counters.at(w, stage), active=self._lanes)

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Nothing: arrivals are ordinary writes, ordered before the end of the threads that make them."""


class SingleCounterConsumer:
    """Gives stages of a `SingleCounterSync` back."""

    def __init__(self, w: Writer, sync: SingleCounterSync) -> None:
        self._w = w
        self._sync = sync
        self.active: Value | None = _lanes(w, alone=sync.read_alone)

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until the producers of this lap have arrived at `stage`: what follows are consumers' arrivals."""
        sync = self._sync
        # The phase is 0 on even laps, and the consumers' arrivals are the last of a lap.
        ahead = (phase ^ 1) * sync.lap + sync.reading
        address = sync.counters.at(w, stage)
        w.isa.counter.wait_within(address=address, ahead=ahead, period=2 * sync.lap, arrivals=sync.reading)

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> None:
        """A counter is only waited for."""

    def ticket(self, stage: Value) -> Value:
        """Address of its counter."""
        return self._sync.counters.at(self._w, stage)

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Arrive: the reader has waited for all lanes of the warp."""
        w.isa.counter.arrive(address=ticket, active=self.active if active is None else active)


def _lanes(w: Writer, *, alone: bool) -> Value:
    """The lanes that arrive: the thread that works alone, else one a warp."""
    return w.constant(PRED, True) if alone else w.lane() == 0
