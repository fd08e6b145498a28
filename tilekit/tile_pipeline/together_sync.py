"""Stages that all warps of a CTA both fill and read: they meet at its barrier, which the driver places."""

from __future__ import annotations

from typing import NoReturn

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.writer import Writer
from tilekit.tile_pipeline.sync import ConsumerSync, ProducerSync


@component
class TogetherSync:
    """No handles, since no role is on one side alone: for drivers whose roles load what they multiply themselves.

    Parameters
    ----------
    stages
        Stages of the ring, at least two: one is read while the next is filled.

    Raises
    ------
    TraceError
        ``TK-TRACE-019`` for a ring of one stage.
    """

    def __init__(self, *, stages: Count) -> None:
        if stages < 2:
            raise TraceError(
                f"stages={stages} with a TogetherSync: a stage is read while the next one is filled; nearest: 2",
                code="TK-TRACE-019",
            )
        self.stages = stages

    @staticmethod
    def declared(name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """None: the barrier is the chip's own."""
        return ()

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def meet(self, w: Writer) -> None:
        """All warps have come: what each has filled may be read, and what each has read may be filled."""
        w.barrier(id=0, threads=w.threads)

    def producer(self, w: Writer) -> ProducerSync:
        """There is none."""
        self._refuse("fills")

    def consumer(self, w: Writer) -> ConsumerSync:
        """There is none."""
        self._refuse("reads")

    def _refuse(self, does: str) -> NoReturn:
        raise TraceError(
            f"TogetherSync has no handle for a role that {does} stages alone; nearest: BarrierSync, or the Multistage "
            "driver",
            code="TK-TRACE-013",
        )
