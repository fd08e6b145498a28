"""Attention's driver where scores and sums are in tensor memory: a role for each thing that is done to them.

One thread multiplies: for each block of keys the sums of one tile of queries and its next scores, then those of the
other, so that one tile's scores are weighed while the tensor core has the other's to do. A warpgroup a tile weighs
scores, a thread a row. Another warpgroup, of all tiles, multiplies sums where rows' maxima have grown, and stores them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.assembly.fit import check_components
from tilekit.assembly.types import F32, PRED, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.head_clocks import HeadClock
from tilekit.drivers.head_loads import HeadLoads, Loaders, only_place
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.roles import match_bodies, one_thread, trace_roles, working_threads
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.epilogue.tensor_heads import TensorHeadEpilogue, TensorSharedHeadEpilogue
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.attention_tcgen05 import TensorScores, TensorWeighted
from tilekit.tile_op.attention_tensors import AT_ONCE, AttentionTensors, pack
from tilekit.tile_op.key_range import KeyBlocks, KeyRange
from tilekit.tile_op.online_softmax import OnlineSoftmax, Softcap
from tilekit.tile_op.row_exchange import RowExchange
from tilekit.tile_op.score_layout import LANES
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.stepped import SteppedConsumer
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tile_schedule.packed_heads import PackedHeadScheduler
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.heads import HeadTile


@call_checked
@dataclass(frozen=True)
class TensorAttention:
    """A kernel's components, ready to trace.

    Attributes
    ----------
    warps, cluster
        The role plan, and this CTA, alone in its cluster.
    queries
        A ring of one stage for each tile of 128 queries.
    keys, values
        The other rings; each stage is one tile.
    loaders
        What fills them, in this order.
    scores, weighted
        The two products.
    tensors, rows
        What lies in tensor memory, and how rows' factors and sums go from the softmax to the correction.
    softmax, range
        What becomes of scores, and which keys there are for a tile.
    scheduler, epilogue
        Which queries are next, and how their output is stored.
    softcap
        What bounds scores, if anything.
    profiler
        What notes the times of the four roles, if anything.
    """

    warps: WarpPlan
    cluster: Cluster
    queries: tuple[TilePipeline, ...]
    keys: TilePipeline
    values: TilePipeline
    loaders: Loaders
    scores: TensorScores
    weighted: TensorWeighted
    tensors: AttentionTensors
    rows: RowExchange
    softmax: OnlineSoftmax
    range: KeyRange
    scheduler: HeadScheduler | PackedHeadScheduler
    epilogue: TensorHeadEpilogue | TensorSharedHeadEpilogue
    softcap: Softcap | None = None
    profiler: TileProfiler | None = None

    def __post_init__(self) -> None:
        check_components(self)

    @property
    def _tiles(self) -> tuple[int, ...]:
        return tuple(number for number, _ in enumerate(self.queries))

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        warp = w.warp()
        w.launch_dependents()
        with one_thread(w, warp, self.warps["load"]):
            for loader in self.loaders:
                loader.prefetch(w)
            self.epilogue.prefetch(w)
            for ring in (*self.queries, self.keys, self.values):
                ring.initialise(w)
            self.tensors.initialise(w)
            self.rows.initialise(w)
            self.scheduler.initialise(w)
        self.cluster.sync(w, self.warps.threads)
        w.wait_for_prerequisites()
        bodies = {"load": self._load, "mma": self._multiply, "softmax": self._weigh, "correction": self._correct}
        trace_roles(w, warp, match_bodies(self.warps.roles, bodies, {}))
        self.cluster.sync(w, self.warps.threads)
        self.tensors.memory.free(w, warp)

    # -- roles --------------------------------------------------------------------------------------------------------

    def _load(self, w: Writer, warp: Value, role: Role) -> None:
        with working_threads(w, warp, role, self.cluster):
            loads = HeadLoads(w, self.queries, self.keys, self.values, self.loaders, self.range.keys)
            for tile in self._timed(w, role, "load"):
                loads.load(tile, self.range.blocks(w, tile))
            loads.finish()

    def _timed(self, w: Writer, role: Role, activity: str, group: Warpgroup | None = None) -> Iterator[HeadTile]:
        """Device loop over this CTA's tiles, timed where the kernel notes its times."""
        clock = HeadClock(w, self.profiler, self.scheduler.heads, group)
        for tile in self.scheduler.tiles(w, role):
            with clock.tile(), clock.time(activity, tile):
                yield tile

    def _multiply(self, w: Writer, warp: Value, role: Role) -> None:
        tensors = self.tensors.multiplier(w)
        with working_threads(w, warp, role, self.cluster):
            tensors.begin()
            queries = [SteppedConsumer(w, ring) for ring in self.queries]
            keys, values = SteppedConsumer(w, self.keys), SteppedConsumer(w, self.values)
            product = self.scores.bind(w, tuple(map(only_place, self.queries)), only_place(self.keys))
            weighted = self.weighted.bind(w, only_place(self.values))
            accumulate = w.new(PRED, "accumulate", uniform=True)
            for tile in self._timed(w, role, "mma"):
                blocks = self.range.blocks(w, tile)
                accumulate.assign(False)
                key = keys.wait()
                for part in self._tiles:
                    queries[part].wait()
                    product.multiply(w, tensors.scores(part), part, key)
                    tensors.scored(part)
                keys.release()
                for _ in w.range(blocks.count, start=1, name="block"):
                    value, key = values.wait(), keys.wait()
                    for part in self._tiles:
                        tensors.await_weights(part)
                        weighted.multiply(w, tensors.sums(part), tensors.scores(part), value, accumulate=accumulate)
                        product.multiply(w, tensors.scores(part), part, key)
                        tensors.scored(part)
                    tensors.advance()
                    values.release()
                    keys.release()
                    accumulate.assign(True)
                for ring in queries:
                    ring.release()
                value = values.wait()
                for part in self._tiles:
                    tensors.await_weights(part)
                    weighted.multiply(w, tensors.sums(part), tensors.scores(part), value, accumulate=accumulate)
                    tensors.summed(part)
                tensors.advance()
                values.release()

    def _weigh(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        work = _Weighing(w, self, group)
        for tile in self._timed(w, role, "softmax", group):
            work.weigh(tile, self.range.blocks(w, tile))

    def _correct(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        sums = self.tensors.corrector(w, group)
        rows = self.rows.taker(w, group)
        epilogue = self.epilogue.bind(w, group)
        for tile in self._timed(w, role, "correction", group):
            blocks = self.range.blocks(w, tile)
            for part in self._tiles:  # the first block's sums overwrite what there was
                rows.take(part)
                sums.fits(part)
            rows.advance()
            for _ in w.range(blocks.count, start=1, name="block"):
                for part in self._tiles:
                    factor, _ = rows.take(part)
                    sums.rescale(part, factor)
                    sums.fits(part)
                rows.advance()
            for part in self._tiles:
                total, maximum = rows.take(part)
                sums.await_sums(part)
                epilogue.store(w, sums, part, total, maximum, tile)
            rows.advance()
            sums.advance()
        sums.finish()
        epilogue.finish(w)


class _Weighing:
    """A warpgroup that weighs the scores of its tile."""

    def __init__(self, w: Writer, driver: TensorAttention, group: Warpgroup) -> None:
        self.w, self.driver = w, driver
        self.tensors = driver.tensors.weigher(w, group)
        self.rows = driver.rows.giver(w, group)
        self.softmax = driver.softmax.bind(w)
        self.range = driver.range.bind(w, group, LANES)
        self.scores: RegisterTile = w.tile(F32, driver.tensors.keys, "scores")
        self.block = w.variable(U32, 0, "block")

    def weigh(self, tile: HeadTile, blocks: KeyBlocks) -> None:
        """All blocks of a tile, from the last to the first; then what its rows come to."""
        w, softmax = self.w, self.softmax
        self.limits = blocks.limits
        softmax.begin()
        self.block.assign(blocks.last)
        self._block(tile, end=True, right=True, left=True)
        for count, right, left in blocks.masked(right=self.driver.range.right is not None):
            for _ in w.range(count, name="block"):
                self.block.assign(self.block - 1)
                self._block(tile, end=False, right=right, left=left)
        softmax.finish()
        self.rows.give(softmax.sums[0], softmax.maxima[0])

    def _block(self, tile: HeadTile, *, end: bool, right: bool, left: bool) -> None:
        w, driver, softmax = self.w, self.driver, self.softmax
        self.tensors.read(self.scores)
        scores = list(self.scores) if driver.softcap is None else driver.softcap.apply(w, self.scores)
        masks = end or right or left
        if masks:
            sides = {"end": end, "right": right, "left": left}
            scores = self.range.masked(w, scores, tile=tile, block=self.block, limits=self.limits, **sides)
        scaled, factors = softmax.raise_maxima(scores, masked=masks)
        (factor,) = factors
        self.rows.give(factor, factor)
        weights: list[Value] = []
        for first in range(0, len(scores), AT_ONCE):
            fresh = softmax.weights(scores[first : first + AT_ONCE], scaled)
            self.tensors.write(first, pack(w, driver.weighted.values.dtype.name, fresh))
            weights += fresh
        self.tensors.written()
        softmax.add(weights, factors)
