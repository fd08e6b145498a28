"""The ring: stages that go round between roles that fill them and roles that read them.

A ring knows when a stage may be filled or read, in which lap, and nothing else; it moves no data and computes
nothing. The stage index and the lap's parity live in registers of the role that holds the handle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.writer import Writer
from tilekit.tile_pipeline.payload import Stage, StandardPayload
from tilekit.tile_pipeline.sync import SyncStrategy


class AsyncReader(Protocol):
    """Something that reads stages asynchronously: a matrix unit."""

    def commit(self, w: Writer) -> None:
        """Close the group of reads issued since the last commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups still read."""


class TilePipeline:
    """A ring of `stages` payloads over a sync strategy.

    Parameters
    ----------
    payload
        What a stage holds.
    tiles
        Where the payload's tiles lie, by name.
    stages
        Stages of the ring.
    sync
        How the two sides meet.
    """

    def __init__(
        self, payload: StandardPayload, tiles: dict[str, SharedArray], *, stages: int, sync: SyncStrategy
    ) -> None:
        self.payload = payload
        self.tiles = tiles
        self.stages = stages
        self.sync = sync

    def initialise(self, w: Writer) -> None:
        """Prepare the barriers (one thread)."""
        self.sync.initialise(w)

    def producer(self, w: Writer) -> Producer:
        """Handle for a role that fills stages."""
        return Producer(w, self)

    def consumer(self, w: Writer, reader: AsyncReader, *, in_flight: int) -> Consumer:
        """Handle for a role that reads stages through `reader`, keeping up to `in_flight` groups of reads running."""
        return Consumer(w, self, reader, in_flight)


class _Position:
    """Stage and parity of a role going round the ring."""

    def __init__(self, w: Writer, ring: TilePipeline) -> None:
        self._w = w
        self._ring = ring
        self.stage = w.variable(U32, 0, "stage")
        self.phase = w.variable(U32, 0, "phase")

    def advance(self) -> None:
        w = self._w
        self.stage.assign(self.stage + 1)
        wrapped = self.stage == self._ring.stages
        self.phase.assign(w.select(wrapped, self.phase ^ 1, self.phase))
        self.stage.assign(w.select(wrapped, 0, self.stage))


class Producer(_Position):
    """What a load role may do with a ring: fill the next stage."""

    @contextmanager
    def acquire(self) -> Iterator[Stage]:
        """Wait for the next stage to be free; on exit go on to the one after it."""
        full = self._ring.sync.producer_acquire(self._w, self.stage, self.phase)
        yield Stage(self.stage, full)
        self.advance()


class Consumer(_Position):
    """What an mma role may do with a ring: read the next stage.

    With `in_flight` = 1 a stage is released when the *next* stage's reads have been issued and its own are done, so
    that the matrix unit always has a group queued; the last stage of a tile is released by `finish`.
    """

    def __init__(self, w: Writer, ring: TilePipeline, reader: AsyncReader, in_flight: int) -> None:
        super().__init__(w, ring)
        self._reader = reader
        self._in_flight = in_flight
        self._releaser = ring.sync.releaser(w)
        if in_flight:
            self._held = w.variable(self._releaser.address(self.stage).type, 0, "held")
            self._owing = w.new(PRED, "owing", uniform=False)
            self._owing.assign(False)

    @contextmanager
    def acquire(self) -> Iterator[Stage]:
        """Wait for the next stage to be full; on exit close its reads, and release the stage they are done with."""
        w, releaser = self._w, self._releaser
        full = self._ring.sync.consumer_acquire(w, self.stage, self.phase)
        yield Stage(self.stage, full)
        self._reader.commit(w)
        self._reader.wait(w, self._in_flight)
        address = releaser.address(self.stage)
        if self._in_flight:
            releaser.signal(w, self._held, self._owing)
            self._held.assign(address)
            self._owing.assign(releaser.active)
        else:
            releaser.signal(w, address, releaser.active)
        self.advance()

    def finish(self) -> None:
        """Wait for all reads and release the stage still held, if any: the accumulators are then complete."""
        self._reader.wait(self._w, 0)
        if self._in_flight:
            self._releaser.signal(self._w, self._held, self._owing)
            self._owing.assign(False)
