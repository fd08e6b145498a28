"""A dynamic schedule: clusters that have finished a tile take over tiles whose clusters have not started yet.

The grid has one cluster for every tile. A scheduler warp asks the hardware, tile by tile, to cancel a cluster that has
not started and to let this one do its work (PTX ISA, clusterlaunchcontrol); the answer goes round a small ring that all
roles read. A throttle keeps the scheduler from claiming a tile before the load role has begun the one before it, so
that tiles go to the clusters that need them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray, SharedDeclaration, mbarriers
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile

RESPONSE_BYTES = 16


@component
class ClcScheduler:
    """Tiles handed out by the cluster launch control.

    Parameters
    ----------
    w
        The writer; responses and barriers are allocated in its shared memory.
    order
        The raster.
    cluster
        This CTA's place in its cluster.
    stages
        Responses in flight.
    scheduler, load
        The role that asks, and the role that throttles it.
    readers
        Every role that goes through tiles, the scheduler included.
    """

    yields_early = False
    """The next kernel must not take the place of clusters that wait to be claimed."""

    def __init__(
        self,
        w: Writer,
        order: RasterOrder,
        *,
        cluster: Cluster,
        stages: Count,
        scheduler: Role,
        load: Role,
        readers: tuple[Role, ...],
    ) -> None:
        self._order = order
        self._cluster = cluster
        self._stages = stages
        self._scheduler = scheduler
        self._load = load
        responses, *barriers = self.declared(stages)
        self._responses = w.shared.place(responses)
        names = tuple(role.name for role in readers)
        # The scheduler works in the first CTA of the cluster only.
        arrivals = sum(role.arrivals * (1 if role is scheduler else cluster.crews(role)) for role in readers)
        self._full, self._empty, self._began, self._asked = (
            w.shared.place(barrier, arrive=arrive, wait=wait, arrivals=count)
            for barrier, arrive, wait, count in zip(
                barriers,
                ((scheduler.name,), names, (load.name,), (scheduler.name,)),
                (names, (scheduler.name,), (scheduler.name,), (load.name,)),
                (1, arrivals, 1, 1),
                strict=True,
            )
        )

    @staticmethod
    def declared(stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory for so many responses in flight: each with four mbarriers."""
        responses = SharedDeclaration("clc.response", RESPONSE_BYTES, stages)
        return responses, *mbarriers("clc", ("full", "empty", "began", "asked"), stages)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of a CTA's tile."""
        return self._order.tile_shape

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output: a cluster for every tile, and for every share of one."""
        return replace(self._order.schedule(call), clusters=self._order.plan(call).tiles)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread of each CTA."""
        for array in (self._full, self._empty, self._began, self._asked):
            for stage in range(self._stages):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + stage * array.stride), count=array.arrivals)

    @checked
    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles: its own first, then those it is given."""
        order, position = self._order.bind(), RingPosition(w, self._stages)
        throttled = self._cluster.rank == 0 if role is self._load else None
        if throttled is not None and not role.one_thread:
            throttled = throttled & (w.thread() == role.warps.start * w.lanes)
        for index in self._claims(w, role, position):
            if throttled is not None:
                with w.when(throttled):
                    self._begin(w, position, throttled)
                if not role.one_thread:
                    w.warp_sync()
            yield order.tile(w, index)

    def ask(self, w: Writer) -> None:
        """The scheduler role's whole work: a request for each tile, until nothing is left to claim."""
        position = RingPosition(w, self._stages)
        always = w.constant(PRED, True)
        others = [self._cluster.map(w, self._full, rank) for rank in range(1, self._cluster.size)]
        for _ in self._claims(w, self._scheduler, position):
            stage = position.stage
            w.ptx.mbarrier.wait_parity(bar=self._began.at(w, stage), parity=position.phase)
            w.ptx.mbarrier.arrive(bar=self._asked.at(w, stage), active=always)
            w.ptx.mbarrier.wait_parity(bar=self._empty.at(w, stage), parity=position.phase ^ 1)
            full, response = self._full.at(w, stage), self._responses.at(w, stage)
            w.ptx.mbarrier.arrive_expect(bar=full, bytes=RESPONSE_BYTES)
            for first in others:
                bar = first + stage * self._full.stride
                w.ptx.mbarrier.arrive_expect_remote(bar=bar, bytes=RESPONSE_BYTES, active=always)
            if others:
                w.ptx.clc.try_cancel_multicast(dst=response, bar=full)
            else:
                w.ptx.clc.try_cancel(dst=response, bar=full)

    def _begin(self, w: Writer, position: RingPosition, active: Value) -> None:
        """The load role's side of the throttle, one thread's: tell the scheduler that a tile begins."""
        w.ptx.mbarrier.wait_parity(bar=self._asked.at(w, position.stage), parity=position.phase ^ 1)
        w.ptx.mbarrier.arrive(bar=self._began.at(w, position.stage), active=active)

    def _claims(self, w: Writer, role: Role, position: RingPosition) -> Iterator[Value]:
        """Device loop over the numbers of this CTA's cluster tiles.

        All rings turn once a tile, so one position serves them: who fills waits for the other parity.
        """
        index = w.variable(U32, self._cluster.index(w), "tile")
        everywhere = role is not self._scheduler and self._cluster.crews(role) > 1
        reader = _Reader(w, role, self._empty, self._cluster if everywhere else None)
        for turn in w.repeat("tile", uniform=not role.one_thread):
            yield index
            w.ptx.mbarrier.wait_parity(bar=self._full.at(w, position.stage), parity=position.phase)
            claimed, first = w.ptx.clc.response(src=self._responses.at(w, position.stage))
            # The next response is written through the asynchronous proxy, after these reads through the generic one.
            w.ptx.tma.fence_shared()
            reader.give_back(w, position.stage)
            position.advance()
            index.assign(first // self._cluster.size)
            turn.again = claimed


class _Reader:
    """A role that reads responses: how it gives them back to the first CTA of `cluster`; None where it works there."""

    def __init__(self, w: Writer, role: Role, empty: SharedArray, cluster: Cluster | None) -> None:
        self._remote = cluster is not None
        self._first = w.shared_base + empty.offset if cluster is None else cluster.map(w, empty, 0)
        self._stride = empty.stride
        self._one_thread = role.one_thread
        self._active = w.constant(PRED, True) if role.one_thread else w.lane() == 0

    def give_back(self, w: Writer, stage: Value) -> None:
        """Arrive once a thread that works alone, else once a warp."""
        if not self._one_thread:
            w.warp_sync()
        bar = self._first + stage * self._stride
        if self._remote:
            w.ptx.mbarrier.arrive_remote(bar=bar, active=self._active)
        else:
            w.ptx.mbarrier.arrive(bar=bar, active=self._active)
