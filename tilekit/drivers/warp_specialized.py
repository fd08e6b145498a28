"""The warp-specialised driver: a load role fills a ring of stages, an mma role empties it, an epilogue stores.

The role loops stand here once, for every kernel family and every chip; what a stage holds, how it is fetched, which
instruction multiplies it, which tile is next and how a tile is stored are the components' business. On sm_90a the mma
role's warpgroups hold the accumulators in registers, so they run the epilogue themselves and no ring lies between the
two; on sm_100a the accumulators are in tensor memory, and mma and epilogue are roles of their own, beside a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import check_components, handed
from tilekit.assembly.legal import illegal
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.agreement import check_agreement, check_bytes
from tilekit.drivers.consumer_schedule import ConsumerSchedule, Cooperative
from tilekit.drivers.load_order import LoadOrder
from tilekit.drivers.profiler import TileClock, TileProfiler, timed
from tilekit.drivers.roles import Body, match_bodies, one_thread, trace_roles, working_threads
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.emulator.core.errors import shown
from tilekit.tile_io.payload_loader import TileCopies
from tilekit.tile_op.accumulators import AccumulatorProducer, Accumulators, AccumulatorTile, Warpgroup
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.start_order import StartOrder
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.stage import AsyncReader, AsyncWriter, Stage
from tilekit.tiles.tile import Tile


class BoundEpilogue(Protocol):
    """An epilogue in a role: stores accumulators, and drains what it started."""

    def store(self, w: Writer, accumulators: AccumulatorTile, tile: Tile) -> None:
        """Convert and store this warpgroup's part of `tile`."""

    def finish(self, w: Writer) -> None:
        """Wait for everything in flight."""


class Epilogue(Protocol):
    """What the driver asks of an epilogue."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def initialise(self, w: Writer) -> None:
        """Prepare barriers (one thread)."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundEpilogue:
        """Prepare a thread's addresses; once a role."""


class BoundReduction(Protocol):
    """A `Reduction` in a role."""

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Add this CTA's share of a tile's sum; the CTA that has a complete part of the sum stores it."""


class Reduction(Protocol):
    """What the driver asks of whatever adds the shares that several CTAs have of a tile."""

    def initialise(self, w: Writer) -> None:
        """Prepare barriers (one thread)."""

    def part(self, tile: Tile) -> Tile:
        """What this CTA stores of a tile."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundReduction:
        """Prepare a thread's addresses; once a role."""


class BoundSource(Protocol):
    """A `TileSource` in the role that loads."""

    def load(self, w: Writer, tile: Tile) -> None:
        """Load what the epilogue reads of `tile`."""


class TileSource(Protocol):
    """What an epilogue reads beside the accumulators, loaded by a role of its own."""

    def producer(self, w: Writer) -> BoundSource:
        """Handle for that role."""


class StageLoader(Protocol):
    """Fills stages of a payload: the family's loaders, bound to their operands."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def bind(self, w: Writer) -> BoundLoader:
        """Prepare addresses; once a role."""


class Prefetch(Protocol):
    """What a kernel does with global memory before the kernel ahead of it is complete: nothing that can be seen."""

    def issue(self, w: Writer) -> None:
        """Start it; one thread."""


class BoundLoader(Protocol):
    """A `StageLoader` in a role."""

    @property
    def writer(self) -> AsyncWriter | None:
        """What the role's own threads write; None where one thread starts copies that complete on their own."""

    def at(self, w: Writer, tile: Tile) -> TileCopies:
        """Turn to `tile`; once a tile."""


class BoundOp(AsyncReader, Protocol):
    """A matrix instruction in a role."""

    def multiply(self, w: Writer, accumulators: Any, stage: Stage, *, accumulate: Value) -> None:
        """Issue a stage's instructions into what an `AccumulatorProducer` entered with."""


class TileOp(Protocol):
    """What the driver asks of a matrix instruction."""

    def bind(self, w: Writer, tiles: Any, group: Warpgroup | None) -> BoundOp:
        """Prepare the descriptors; once a role. `group` is None where one thread issues for all."""


class TileScheduler(Protocol):
    """What the driver asks of a scheduler."""

    @property
    def yields_early(self) -> bool:
        """Whether the next kernel may start as soon as this one has."""

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output."""

    def initialise(self, w: Writer) -> None:
        """Prepare barriers (one thread)."""

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""

    def ask(self, w: Writer) -> None:
        """Whole work of the scheduler role, if the plan has one; in the first CTA of the cluster."""


@call_checked
@dataclass(frozen=True)
class WarpSpecialized:
    """A kernel's components, ready to trace.

    Attributes
    ----------
    warps, cluster
        The role plan and this CTA's place in its cluster.
    inputs, loader, op, accumulators, scheduler, epilogue
        The components.
    k
        K of the problem, u32.
    in_flight
        Groups of matrix instructions kept running while the next stage is awaited.
    reduction
        Adds the shares of a tile where several CTAs have them.
    source
        What the plan's ``epilogue_load`` role loads.
    order
        Has that role wait for the first operands.
    starts
        Numbers the clusters as they start.
    profiler
        Notes when each role works on each tile.
    prefetch
        What is brought into L2 while the kernel ahead ends.
    consumers
        How the mma role's warpgroups divide the tiles.
    bodies
        What further roles of the plan do, by name.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for, ``TK-PART-001`` for components
        that do not speak of the same tiles, or whose ring expects other bytes than the loaders bring.
    """

    warps: WarpPlan
    cluster: Cluster
    inputs: TilePipeline
    loader: StageLoader
    op: TileOp
    accumulators: Accumulators
    scheduler: TileScheduler
    epilogue: Epilogue
    k: Value
    in_flight: int
    reduction: Reduction | None = None
    source: TileSource | None = None
    order: LoadOrder | None = None
    starts: StartOrder | None = None
    profiler: TileProfiler | None = None
    prefetch: Prefetch | None = None
    consumers: ConsumerSchedule = field(default_factory=Cooperative)
    bodies: Mapping[str, Body] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_components(self)
        check_agreement(
            type(self).__name__,
            loader=self.loader,
            op=self.op,
            payload=self.inputs.payload,
            scheduler=self.scheduler,
            epilogue=self.epilogue,
        )
        check_bytes(self.loader, self.inputs.sync)

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        if self.profiler is None and w.profile_tiles:
            replace(self, profiler=TileProfiler.of(w, self.warps.activities)).trace(w)
            return
        warp = w.warp()
        self._set_up(w, warp)
        bodies: dict[str, Body] = {
            "load": self._load,
            "mma": self._multiply,
            "epilogue": self._store,
            "scheduler": self._ask,
            "epilogue_load": self._load_for_epilogue,
        }
        trace_roles(w, warp, match_bodies(self.warps.roles, bodies, self.bodies))
        self._tear_down(w, warp)

    # -- roles --------------------------------------------------------------------------------------------------------

    def _load(self, w: Writer, warp: Value, role: Role) -> None:
        with working_threads(w, warp, role, self.cluster):
            loader = handed(self.loader, "bind", self.loader.bind(w), BoundLoader)
            if self.order is not None:
                loader = self.order.first(w, loader)
            producer = self.inputs.producer(w, loader.writer)
            clock = self._clock(w, "load", None if role.one_thread else Warpgroup.of(w, warp, role))
            for tile in each_tile(w, self.scheduler, role):
                with timed(clock, tile):
                    copies = handed(loader, "at", loader.at(w, tile), TileCopies)
                    for k in self._k_blocks(w, tile):
                        with producer.acquire() as stage:
                            copies.load(w, stage, k)
                    producer.flush()
            if not self.scheduler.yields_early:
                w.launch_dependents()
            producer.finish()

    def _multiply(self, w: Writer, warp: Value, role: Role) -> None:
        stores = self.warps.get("epilogue") is None
        group = Warpgroup.of(w, warp, role) if stores else None
        accumulators = handed(self.accumulators, "producer", self.accumulators.producer(w, role), AccumulatorProducer)
        with working_threads(w, warp, role, self.cluster):
            op = handed(self.op, "bind", self.op.bind(w, self.inputs.tiles, group), BoundOp)
            lone = group is not None and not isinstance(group.index, Value)
            ahead = lone or accumulators.promote is not None
            consumer = self.inputs.consumer(w, op, in_flight=self.in_flight, asks_ahead=ahead)
            store = self._storing(w, group) if group is not None else None
            complete = self.accumulators.consumer(w, group) if group is not None else None
            clock = self._clock(w, "mma", group)
            schedule = self.consumers.bind(w, group)
            for tile in each_tile(w, self.scheduler, role):
                with schedule.tile(consumer, tile, self.inputs.payload.k):
                    with timed(clock, tile), accumulators.acquire(tile) as target:
                        for promote in accumulators.ways(w, tile):
                            for k in self._k_blocks(w, tile):
                                with consumer.acquire(promote) as stage:
                                    op.multiply(w, target, stage, accumulate=k != tile.k_first)
                        schedule.hand_over()
                        consumer.finish()
                    if store is not None and complete is not None:
                        with complete.acquire(tile) as finished:
                            store.tile(finished, tile)
            if store is not None:
                store.finish()

    def _k_blocks(self, w: Writer, tile: Tile) -> Iterator[Value]:
        """Device loop over a tile's k-blocks: the first element of each."""
        return w.range(tile.k_end, start=tile.k_first, step=self.inputs.payload.k, name="k")

    def _store(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        accumulators = self.accumulators.consumer(w, group)
        store = self._storing(w, group)
        for tile in each_tile(w, self.scheduler, role):
            with accumulators.acquire(tile) as finished:
                store.tile(finished, tile)
        store.finish()

    def _storing(self, w: Writer, group: Warpgroup) -> _Storing:
        epilogue = handed(self.epilogue, "bind", self.epilogue.bind(w, group), BoundEpilogue)
        reduction = self.reduction.bind(w, group) if self.reduction is not None else None
        return _Storing(w, epilogue, reduction, self.k, self._clock(w, "epilogue", group))

    def _clock(self, w: Writer, activity: str, group: Warpgroup | None = None) -> TileClock | None:
        if self.profiler is None:
            return None
        if group is None:
            return self.profiler.clock(w, activity)
        return self.profiler.clock(w, activity, group=group.index, thread=group.thread)

    def _load_for_epilogue(self, w: Writer, warp: Value, role: Role) -> None:
        if self.source is None:
            legal = f"what role {role.name!r} of the plan loads, such as a SourceRing; or a plan without epilogue_loads"
            raise illegal("WarpSpecialized", "source", None, legal)
        with working_threads(w, warp, role, self.cluster):
            source = self.source.producer(w)
            if self.order is not None:
                source = self.order.behind(source)
            clock = self._clock(w, "epilogue_load")
            for tile in each_tile(w, self.scheduler, role):
                with timed(clock, tile):
                    source.load(w, tile if self.reduction is None else self.reduction.part(tile))

    def _ask(self, w: Writer, warp: Value, role: Role) -> None:
        with working_threads(w, warp, role, self.cluster), w.when(self.cluster.rank == 0):
            self.scheduler.ask(w)

    # -- around them --------------------------------------------------------------------------------------------------

    def _set_up(self, w: Writer, warp: Value) -> None:
        # The set-up touches nothing that another kernel writes, so it may run while the kernel before this one ends;
        # and the next one's may run while this one does. What follows the wait may read and write global memory.
        if self.scheduler.yields_early:
            w.launch_dependents()
        with one_thread(w, warp, self.warps["load"]):
            self.loader.prefetch(w)
            self.epilogue.prefetch(w)
            self.epilogue.initialise(w)
            if self.reduction is not None:
                self.reduction.initialise(w)
            self.accumulators.initialise(w)
            self.scheduler.initialise(w)
            if self.order is not None:
                self.order.initialise(w)
            self.inputs.initialise(w)
            if self.prefetch is not None:
                self.prefetch.issue(w)
        self.cluster.sync(w, self.warps.threads)
        w.wait_for_prerequisites()
        if self.starts is not None:
            with one_thread(w, warp, self.warps["load"]):
                self.starts.take(w)
            self.cluster.sync(w, self.warps.threads)

    def _tear_down(self, w: Writer, warp: Value) -> None:
        # Peers multicast into this CTA's shared memory, send shares of sums there and arrive on its barriers: no CTA
        # leaves before all are done. Nor is tensor memory freed before.
        if self.cluster.size > 1 or self.accumulators.allocated:
            self.cluster.sync(w, self.warps.threads)
        self.accumulators.free(w, warp)


def each_tile(w: Writer, scheduler: TileScheduler, role: Role) -> Iterator[Tile]:
    """The device loop over a role's tiles, whose body a scheduler yields once.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` where it yields something else than one tile.
    """
    name, made = type(scheduler).__name__, scheduler.tiles(w, role)
    legal = "a device loop, which yields the tile of its body once; nearest: `yield from` of StaticScheduler's"
    if not isinstance(made, Iterator):
        raise TraceError(f"{name}.tiles returned {shown(made)}; legal: {legal}", code="TK-FIT-001")
    count = 0
    for count, tile in enumerate(made, 1):
        if not isinstance(tile, Tile) or count > 1:
            what = f"{count} tiles" if count > 1 else shown(tile)
            raise TraceError(f"{name}.tiles yields {what}; legal: {legal}", code="TK-FIT-001")
        yield tile
    if not count:
        raise TraceError(f"{name}.tiles yields no tile; legal: {legal}", code="TK-FIT-001")


@dataclass(frozen=True)
class _Storing:
    """The way of a finished tile out, in whichever role runs the epilogue."""

    w: Writer
    epilogue: BoundEpilogue
    reduction: BoundReduction | None
    k: Value
    clock: TileClock | None

    def tile(self, finished: AccumulatorTile, tile: Tile) -> None:
        """Store a tile, or add a share of one."""
        with timed(self.clock, tile):
            self._tile(finished, tile)

    def _tile(self, finished: AccumulatorTile, tile: Tile) -> None:
        w = self.w
        # An empty sum is zero. Here, after the last wait, ptxas does not mind; before the loop it serialises every
        # wgmma (C7515).
        in_cluster = isinstance(tile.k_first, Value) and tile.share is None
        with w.when(tile.k_end <= tile.k_first if in_cluster else self.k == 0):
            finished.clear(w)
        if self.reduction is None:
            self.epilogue.store(w, finished, tile)
        else:
            self.reduction.add(w, finished, tile, lambda total, part: self.epilogue.store(w, total, part))

    def finish(self) -> None:
        """Wait for everything in flight."""
        self.epilogue.finish(self.w)
