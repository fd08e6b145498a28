"""A consumer that says itself when a stage is read: for roles that read several rings, one product behind another."""

from __future__ import annotations

from tilekit.assembly.writer import Writer
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tiles.stage import Stage


class SteppedConsumer(RingPosition):
    """What a role may do with a ring whose stages it holds beyond other work: wait for the next, give it back.

    It holds one stage at a time. That its reads are done before it is given back is the role's to know.

    Parameters
    ----------
    w
        The writer.
    ring
        The ring.
    """

    def __init__(self, w: Writer, ring: TilePipeline) -> None:
        super().__init__(w, ring.stages)
        self._sync = ring.sync.consumer(w)
        self._sync_name = type(ring.sync).__name__

    def wait(self) -> Stage:
        """Wait until the next stage is full."""
        full = self._sync.consumer_wait(self._w, self.stage, self.phase)
        return Stage(self.stage, full, self._sync_name)

    def release(self) -> None:
        """Give the stage back, and go on to the next."""
        self._sync.consumer_release(self._w, self._sync.ticket(self.stage))
        self.advance()
