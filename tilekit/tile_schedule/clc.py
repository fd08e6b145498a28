"""A dynamic schedule: clusters that have finished a tile take over tiles whose clusters have not started yet.

The grid has one cluster for every tile. A scheduler warp asks the hardware, tile by tile, to cancel a cluster that has
not started and to let this one do its work (PTX ISA, clusterlaunchcontrol); the answer goes round a small ring that all
roles read. A throttle keeps the scheduler from claiming a tile before the load role has begun the one before it, so
that tiles go to whoever needs them first.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_pipeline.ring import RingPosition
from tilekit.tile_schedule.raster import RasterOrder, Tile

RESPONSE_BYTES = 16


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
        cluster: ClusterPosition,
        stages: int,
        scheduler: Role,
        load: Role,
        readers: tuple[Role, ...],
    ) -> None:
        self._order = order
        self._cluster = cluster
        self._stages = stages
        self._scheduler = scheduler
        self._load = load
        self._responses = w.shared.allocate("clc.response", size=RESPONSE_BYTES, count=stages)
        names = tuple(role.name for role in readers)
        # The scheduler works in the first CTA of the cluster only.
        arrivals = sum(role.arrivals * (1 if role is scheduler else cluster.crews(role)) for role in readers)
        self._full, self._empty, self._began, self._asked = (
            w.shared.allocate(
                f"clc.{name}",
                size=8,
                count=stages,
                alignment=8,
                kind="mbarrier",
                arrive=arrive,
                wait=wait,
                arrivals=count,
            )
            for name, arrive, wait, count in (
                ("full", (scheduler.name,), names, 1),
                ("empty", names, (scheduler.name,), arrivals),
                ("began", (load.name,), (scheduler.name,), 1),
                ("asked", (scheduler.name,), (load.name,), 1),
            )
        )

    @staticmethod
    def shared_bytes(stages: int) -> int:
        """Shared memory for so many responses in flight: each with four mbarriers."""
        return stages * (RESPONSE_BYTES + 4 * 8)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread of each CTA."""
        for array in (self._full, self._empty, self._began, self._asked):
            for stage in range(self._stages):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + stage * array.stride), count=array.arrivals)

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles: its own first, then those it is given."""
        index = w.variable(U32, self._cluster.index(w), "tile")
        position = RingPosition(w, self._stages)
        throttle = _Throttle(w, self, self._stages) if role is self._load else None
        reader = _Reader(w, role, self._empty, self._cluster)
        order = self._order.bind()
        for turn in w.repeat("tile", uniform=not role.one_thread):
            if throttle is not None:
                throttle.begin(w)
            yield order.tile(w, index)
            w.ptx.mbarrier.wait_parity(bar=self._full.at(w, position.stage), parity=position.phase)
            claimed, first = w.ptx.clc.response(src=self._responses.at(w, position.stage))
            # The next response is written through the asynchronous proxy, after these reads through the generic one.
            w.ptx.tma.fence_shared()
            reader.give_back(w, position.stage)
            position.advance()
            index.assign(first // self._cluster.size)
            turn.again = claimed

    def ask(self, w: Writer) -> None:
        """The scheduler role's whole work: a request for each tile, until nothing is left to claim."""
        slot = RingPosition(w, self._stages, fills=True)
        throttle = RingPosition(w, self._stages)
        always = w.constant(PRED, True)
        for _ in self.tiles(w, self._scheduler):
            w.ptx.mbarrier.wait_parity(bar=self._began.at(w, throttle.stage), parity=throttle.phase)
            w.ptx.mbarrier.arrive(bar=self._asked.at(w, throttle.stage), active=always)
            throttle.advance()
            w.ptx.mbarrier.wait_parity(bar=self._empty.at(w, slot.stage), parity=slot.phase)
            full, response = self._full.at(w, slot.stage), self._responses.at(w, slot.stage)
            if self._cluster.size == 1:
                w.ptx.mbarrier.arrive_expect(bar=full, bytes=RESPONSE_BYTES)
                w.ptx.clc.try_cancel(dst=response, bar=full)
            else:
                for rank in range(self._cluster.size):
                    remote = w.ptx.cluster.map_address(address=full, rank=rank)
                    w.ptx.mbarrier.arrive_expect_remote(bar=remote, bytes=RESPONSE_BYTES, active=always)
                w.ptx.clc.try_cancel_multicast(dst=response, bar=full)
            slot.advance()


class _Throttle:
    """The load role's side: in the first CTA of the cluster, tell the scheduler of every tile begun."""

    def __init__(self, w: Writer, scheduler: ClcScheduler, stages: int) -> None:
        self._scheduler = scheduler
        self._position = RingPosition(w, stages, fills=True)
        self._first = scheduler._cluster.rank == 0

    def begin(self, w: Writer) -> None:
        """Say that a tile begins."""
        position = self._position
        with w.when(self._first):
            w.ptx.mbarrier.wait_parity(bar=self._scheduler._asked.at(w, position.stage), parity=position.phase)
            w.ptx.mbarrier.arrive(bar=self._scheduler._began.at(w, position.stage), active=self._first)
        position.advance()


class _Reader:
    """A role that reads responses: how it gives them back to the first CTA of the cluster."""

    def __init__(self, w: Writer, role: Role, empty: SharedArray, cluster: ClusterPosition) -> None:
        self._empty = empty
        self._remote = cluster.size > 1
        self._one_thread = role.one_thread
        self._active = w.constant(PRED, True) if role.one_thread else w.ptx.special.lane_index() == 0

    def give_back(self, w: Writer, stage: Value) -> None:
        """Arrive once a thread that works alone, else once a warp."""
        if not self._one_thread:
            w.ptx.barrier.warp_sync()
        bar = self._empty.at(w, stage)
        if self._remote:
            remote = w.ptx.cluster.map_address(address=bar, rank=0)
            w.ptx.mbarrier.arrive_remote(bar=remote, active=self._active)
        else:
            w.ptx.mbarrier.arrive(bar=bar, active=self._active)
