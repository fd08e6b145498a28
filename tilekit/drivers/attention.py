"""Attention's driver: a load role brings queries, keys and values; warpgroups turn scores into weights of values.

A warpgroup has 64 queries of the tile. It goes through the blocks of keys from the last to the first, and issues the
product of the next block's scores ahead of that of this block's weights with the values: while the tensor core does
these, the threads weigh the new scores. Warpgroups take turns at issuing, so that one weighs while another multiplies.
Where there is room for a second tile of queries, its first scores are multiplied while the sums of the one before are
stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilekit.annotations import call_checked
from tilekit.assembly.fit import check_components
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.head_clocks import HeadClock
from tilekit.drivers.head_loads import HeadLoads, Loaders, only_place
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.roles import match_bodies, one_thread, trace_roles, working_threads
from tilekit.drivers.turns import BoundTurns, NoTurns, Turns
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.epilogue.heads import BoundHeadEpilogue, HeadEpilogue
from tilekit.epilogue.shared_heads import SharedHeadEpilogue
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.attention_wgmma import BoundScores, BoundWeighted, Scores, Weighted
from tilekit.tile_op.key_range import BoundKeyRange, KeyBlocks, KeyRange
from tilekit.tile_op.online_softmax import BoundSoftmax, OnlineSoftmax, Softcap
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.stepped import SteppedConsumer
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tile_schedule.packed_heads import PackedHeadScheduler
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.heads import HeadTile
from tilekit.tiles.stage import Stage


@call_checked
@dataclass(frozen=True)
class Attention:
    """A kernel's components, ready to trace.

    Attributes
    ----------
    warps, cluster
        The role plan, and this CTA, alone in its cluster.
    queries, keys, values
        The rings; each stage is one tile.
    loaders
        What fills them, in this order.
    scores, weighted
        The two products.
    softmax, range
        What becomes of scores, and which keys there are for a tile.
    softcap
        What bounds scores, if anything.
    output_in_queries
        Whether the output goes through the shared memory of the tile's queries, a warpgroup's rows where its own were.
    looks_ahead
        Whether a tile's first scores are multiplied while the sums of the one before are stored, if there is memory for
        the queries of both.
    scheduler, epilogue, turns
        Which tile is next, how it is stored, and how warpgroups take turns.
    profiler
        What notes the times of ``load``, ``mma`` and ``epilogue``, if anything.
    """

    warps: WarpPlan
    cluster: Cluster
    queries: TilePipeline
    keys: TilePipeline
    values: TilePipeline
    loaders: Loaders
    scores: Scores
    weighted: Weighted
    softmax: OnlineSoftmax
    range: KeyRange
    scheduler: HeadScheduler | PackedHeadScheduler
    epilogue: HeadEpilogue | SharedHeadEpilogue
    turns: Turns | NoTurns
    softcap: Softcap | None = None
    output_in_queries: bool = False
    looks_ahead: bool = True
    profiler: TileProfiler | None = None

    def __post_init__(self) -> None:
        check_components(self)

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        warp = w.warp()
        w.launch_dependents()
        with one_thread(w, warp, self.warps["load"]):
            for loader in self.loaders:
                loader.prefetch(w)
            self.epilogue.prefetch(w)
            for ring in (self.queries, self.keys, self.values):
                ring.initialise(w)
            self.scheduler.initialise(w)
        self.cluster.sync(w, self.warps.threads)
        w.wait_for_prerequisites()
        trace_roles(w, warp, match_bodies(self.warps.roles, {"load": self._load, "mma": self._attend}, {}))

    @property
    def ahead(self) -> bool:
        """Whether a tile's first scores are multiplied while the sums of the one before are stored."""
        return self.queries.stages > 1 and self.looks_ahead

    # -- roles --------------------------------------------------------------------------------------------------------

    def _load(self, w: Writer, warp: Value, role: Role) -> None:
        with working_threads(w, warp, role, self.cluster):
            loads = HeadLoads(w, (self.queries,), self.keys, self.values, self.loaders, self.range.keys)
            clock = HeadClock(w, self.profiler, self.scheduler.heads)
            for tile in self.scheduler.tiles(w, role):
                with clock.tile(), clock.time("load", tile):
                    loads.load(tile, self.range.blocks(w, tile))
            loads.finish()

    def _attend(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        work = _Warpgroup(w, self, group)
        epilogue = self.epilogue.bind(w, group)
        clock = HeadClock(w, self.profiler, self.scheduler.heads, group)
        if self.ahead:
            work.begin()
        for tile in self.scheduler.tiles(w, role):
            with clock.tile():
                with clock.time("mma", tile):
                    work.attend(tile, self.range.blocks(w, tile))
                with clock.time("epilogue", tile):
                    epilogue.store(w, work.sums, work.softmax, tile)
                if isinstance(epilogue, BoundHeadEpilogue) and self.output_in_queries:
                    epilogue.drain(w)
                    work.queries.release()
        if self.ahead:
            w.ptx.wgmma.wait(pending=0)  # of the product behind the last tile, of which nothing becomes
        epilogue.finish(w)


class _Warpgroup:
    """A warpgroup that attends, in the registers of its role."""

    def __init__(self, w: Writer, driver: Attention, group: Warpgroup) -> None:
        self.w, self.driver = w, driver
        self.queries, self.keys, self.values = (
            SteppedConsumer(w, ring) for ring in (driver.queries, driver.keys, driver.values)
        )
        self.product: BoundScores = driver.scores.bind(w, only_place(driver.queries), only_place(driver.keys), group)
        self.weighted: BoundWeighted = driver.weighted.bind(w, only_place(driver.values))
        self.softmax: BoundSoftmax = driver.softmax.bind(w)
        self.range: BoundKeyRange = driver.range.bind(w, group)
        self.turns: BoundTurns = driver.turns.bind(w, group)
        self.scores: RegisterTile = self.product.tile(w)
        self.weights: RegisterTile = self.weighted.weights(w)
        self.sums: RegisterTile = self.weighted.sums(w)
        self.accumulate = w.new(PRED, "accumulate", uniform=True)
        self.block = w.variable(U32, 0, "block")
        self.pinned = w.shared_base + driver.epilogue.place.offset
        self.never = driver.range.key_count == 0xFFFF_FFFF

    def begin(self) -> None:
        """Issue the product of a tile's first scores."""
        self.held = self.queries.wait()
        self.product.multiply(self.w, self.scores, self.held, self.keys.wait())

    def attend(self, tile: HeadTile, blocks: KeyBlocks) -> None:
        """All blocks of a tile: sums and the softmax's sums are then complete."""
        w = self.w
        self.limits = blocks.limits
        self.accumulate.assign(False)
        self.block.assign(blocks.last)
        if not self.driver.ahead:
            self.begin()
        w.ptx.wgmma.wait(pending=0)
        self.keys.release()
        scores = self._seen(tile, end=True, right=True, left=True)
        self.weighted.pack(w, self.weights, self.softmax.weigh_first(scores))
        for count, right, left in blocks.masked(right=self.driver.range.right is not None):
            for _ in w.range(count, name="block"):
                self.block.assign(self.block - 1)
                self._next_block(tile, right=right, left=left)
        if not self.driver.output_in_queries:
            self.queries.release()
        self._add(self.values.wait())
        if self.driver.ahead:
            self._begin_next(tile)
        w.ptx.wgmma.wait(pending=1 if self.driver.ahead else 0)
        self.values.release()

    def _begin_next(self, tile: HeadTile) -> None:
        """Issue the product of the next tile's first scores.

        ptxas serialises a product that only some paths issue: behind the last tile, what the last stages held is
        multiplied once more, for nothing.
        """
        w = self.w
        assert tile.more is not None
        more = tile.more()
        with w.when(more):
            self.held = self.queries.wait()
            keys = self.keys.wait()
        stages = [
            replace(stage, index=w.select(more, stage.index, ring.before(), U32))
            for stage, ring in ((self.held, self.queries), (keys, self.keys))
        ]
        self.product.multiply(w, self.scores, *stages)

    def _next_block(self, tile: HeadTile, *, right: bool, left: bool) -> None:
        w = self.w
        keys = self.keys.wait()
        with self.turns.turn():
            self.product.multiply(w, self.scores, self.held, keys)
            self._add(self.values.wait())
        w.ptx.wgmma.wait(pending=1)
        self.keys.release()
        scores = self._seen(tile, end=False, right=right, left=left)
        fresh = self.softmax.weigh(scores, self.sums, await_sums=self._take_sums)
        self.weighted.pack(w, self.weights, fresh)

    def _take_sums(self, weight: Value) -> None:
        """Wait for the product with the values, amid the next block's weights.

        From here on weights can be packed where those of the block before were, and the values' stage is loaded again.
        """
        self.softmax.pin(self.w, weight, self.pinned, self.never)
        self.w.ptx.wgmma.wait(pending=0)
        self.values.release()

    def _add(self, values: Stage) -> None:
        self.weighted.multiply(self.w, self.sums, self.weights, values, accumulate=self.accumulate)
        self.accumulate.assign(True)

    def _seen(self, tile: HeadTile, *, end: bool, right: bool, left: bool) -> list[Value]:
        """The scores of a block, minus infinity where a query does not attend to the key."""
        cap = self.driver.softcap
        scores = list(self.scores) if cap is None else cap.apply(self.w, self.scores)
        sides: dict[str, Any] = {"tile": tile, "block": self.block, "limits": self.limits}
        partial = None
        if end and self.driver.range.right is None and self.driver.range.left is None:
            partial = self.range.partial(self.w, self.block, self.limits)
        if partial is not None:
            with self.w.when(partial):
                seen = self.range.masked(self.w, scores, end=True, right=False, left=False, **sides)
                for score, value in zip(scores, seen, strict=True):
                    score.assign(value)
        elif end or right or left:
            scores = self.range.masked(self.w, scores, end=end, right=right, left=left, **sides)
        return scores
