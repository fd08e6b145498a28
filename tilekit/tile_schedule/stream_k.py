"""Stream-K: the last tiles' k-blocks, laid out one tile behind the other, are cut into one equal range a cluster.

Where the last wave has too few tiles for the chip, clusters share their sums instead of standing idle (Osama, Merrill,
Cecka, Garland, Owens: "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the
GPU", PPoPP 2023). Whole waves come first, tile by tile, all but one of them; then each cluster goes once through its
range: the tail of a tile, whole tiles, the head of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import Count
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.raster import BoundRasterOrder, RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.tile import Share, Tile


@dataclass(frozen=True)
class StreamShare(Share):
    """What a range has of a tile: the head, whose CTA stores the tile, or a share for the CTA of the head.

    Attributes
    ----------
    rest
        K-blocks of the tile behind this share, u32.
    length
        K-blocks of a range, u32: so many, or what is left, each next one has of them.
    step
        How far below a CTA's slot that of the next range is: each has its own.
    """

    rest: Value
    length: Value
    step: int

    @property
    def others(self) -> Value:
        """Shares of the tile behind this one."""
        return (self.rest + self.length - 1) // self.length

    def behind(self, other: Value) -> Value:
        """The slot of the share `other` places behind this one, from 0 on."""
        return self.slot - (other + 1) * self.step


@dataclass(frozen=True)
class StreamPlan:
    """The launch-time numbers of the schedule, for one problem.

    Attributes
    ----------
    whole
        Cluster tiles that come first, each computed by one cluster.
    streamed
        Cluster tiles behind them, whose k-blocks are cut into ranges.
    length
        K-blocks of a range; the last ones may be shorter, or empty where whole tiles come before.
    clusters
        Clusters to launch, each with a range.
    """

    whole: int
    streamed: int
    length: int
    clusters: int

    @classmethod
    def of(cls, *, tiles: int, k_blocks: int, resident: int, most: int) -> StreamPlan:
        """Divide `tiles` cluster tiles of `k_blocks` each, where `resident` clusters run at once.

        Whole waves are not streamed. Of more than one, the last whole one is streamed with the rest: its ranges are
        longer than a tile, so that no tile has more than two shares. Fewer tiles than clusters are all streamed, and a
        tile is cut into `most` ranges at most: one CTA adds what all of them have of its sum.
        """
        waves, rest = divmod(tiles, resident)
        if not (rest and k_blocks):
            return cls(tiles, 0, 1, min(tiles, resident))
        whole = max(0, waves - 1) * resident
        streamed = tiles - whole
        length = max(-(-streamed * k_blocks // resident), -(-k_blocks // most))
        return cls(whole, streamed, length, resident if whole else -(-streamed * k_blocks // length))

    def rounds(self, k_blocks: int) -> float:
        """Tiles' worth of k-blocks on a cluster's way, of the longest."""
        whole = -(-self.whole // max(self.clusters, 1))
        return whole + min(self.length, self.streamed * k_blocks) / k_blocks if self.streamed else float(whole)

    def kept(self, k_blocks: int) -> int:
        """Shares of a tile beside its head, at most: of the tile whose head is shortest."""
        return -(-(k_blocks - gcd(k_blocks, self.length)) // self.length) if self.streamed else 0


@component
class StreamKScheduler(StaticScheduler):
    """Tiles ``cluster, cluster + clusters, …`` of a raster up to ``stream_first``, and a range of those behind.

    A tile's head, the share with its first k-block, is the last piece of a range, and all its other shares are first
    pieces of theirs: when a CTA has computed the head, the rest has been ready for as long as the ranges are equal. So
    it waits, and who computes the rest does not. Ranges go to the clusters in the opposite order, the first one to the
    last cluster: a CTA waits for CTAs with lower numbers only, which start first and wait for none. That is what
    keeps it going where another kernel holds a part of the chip; a grid is never larger than what runs at once.

    Parameters
    ----------
    w
        The writer; ``stream_first``, ``stream_blocks`` (k-blocks of a tile) and ``stream_range`` (those of a range)
        become kernel parameters.
    order
        The raster.
    most
        Ranges that a tile is cut into at most.
    """

    def __init__(self, w: Writer, order: RasterOrder, *, most: Count) -> None:
        super().__init__(order)
        self.k_block = order.k_block
        self._most = most
        self.whole = w.parameter("stream_first", U32, self._first)
        self.blocks = w.parameter("stream_blocks", U32, lambda call: max(1, order.k_blocks(call)))
        self.length = w.parameter("stream_range", U32, lambda call: self.plan(call).length)

    def plan(self, call: Call) -> StreamPlan:
        """How a call's tiles are divided."""
        return call.once(
            self,
            lambda: StreamPlan.of(
                tiles=self.order.plan(call).whole_tiles,
                k_blocks=self.order.k_blocks(call),
                resident=call.resident,
                most=self._most,
            ),
        )

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of a CTA's tile."""
        return self.order.tile_shape

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output: every CTA has a slot."""
        clusters = self.plan(call).clusters
        return Schedule(clusters, self.order.plan(call).whole_tiles, clusters * self.order.cluster.size)

    def _first(self, call: Call) -> int:
        plan = self.plan(call)
        fits("the place in the tiles that stream_k divides", plan.whole + plan.streamed * self.order.k_blocks(call))
        return plan.whole

    def first(self, w: Writer) -> Tile:
        """Where a CTA begins; no cluster's way is empty."""
        way = _Way(w, self, self.order.bind())
        return way.piece(w, way.start(w))[0]

    @checked
    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles, and over its shares of others."""
        way = _Way(w, self, self.order.bind())
        at = w.variable(U32, way.start(w), "at")
        for turn in w.repeat("tile", uniform=not role.one_thread):
            tile, behind = way.piece(w, at)
            at.assign(behind)
            yield tile
            turn.again = at < way.end


class _Way:
    """A cluster's way in a role: whole tiles, then the k-blocks of its range.

    Where it is, is one number: that of a whole tile, below ``stream_first``; from there on ``stream_first`` and the
    place in the range, counted in k-blocks from the first one of the first streamed tile on. `begin` and `end` are the
    range's.
    """

    def __init__(self, w: Writer, scheduler: StreamKScheduler, order: BoundRasterOrder) -> None:
        self._s = s = scheduler
        self._order = order
        cluster = s.order.cluster
        self._index, self._clusters = cluster.index(w), cluster.count(w)
        first = (self._clusters - self._index - 1) * s.length
        self.begin = s.whole + first
        self.end = s.whole + w.minimum(first + s.length, (s.order.count - s.whole) * s.blocks)

    def start(self, w: Writer) -> Value:
        """Where the way begins."""
        return w.select(self._index < self._s.whole, self._index, self.begin)

    def piece(self, w: Writer, at: Value) -> tuple[Tile, Value]:
        """Return the tile or share at `at`, and where the way goes on."""
        s = self._s
        whole = at < s.whole
        block = at - s.whole
        number = block // s.blocks
        start = number * s.blocks
        stop = w.minimum(start + s.blocks, self.end - s.whole)
        tile = self._order.tile(w, w.select(whole, at, s.whole + number))
        k_first = w.select(whole, 0, (block - start) * s.k_block)
        share = StreamShare(
            slot=w.cta(),
            stores=k_first == 0,
            rest=w.select(whole, 0, start + s.blocks - stop),
            length=s.length,
            step=s.order.cluster.size,
        )
        k_end = w.select(whole, tile.k_end, w.minimum(tile.k_end, (stop - start) * s.k_block))
        following = at + self._clusters
        following = w.select(following < s.whole, following, self.begin)
        return replace(tile, k_first=k_first, k_end=k_end, share=share), w.select(whole, following, s.whole + stop)
