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

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.raster import BoundRasterOrder, RasterOrder, Share, Tile
from tilekit.tile_schedule.static import StaticScheduler


@dataclass(frozen=True)
class StreamShare(Share):
    """What a range has of a tile: the head, whose CTA stores the tile, or something that goes to whoever has the head.

    Attributes
    ----------
    others
        For a head, shares of the tile that follow it, in the slots behind its own; u32.
    """

    others: Value


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


class StreamKScheduler(StaticScheduler):
    """Tiles ``cluster, cluster + clusters, …`` of a raster up to ``stream_first``, and a range of those behind.

    A tile's head, the share with its first k-block, is the last piece of a range, and all its other shares are first
    pieces of theirs: when a CTA has computed the head, the rest has been ready for as long as the ranges are equal. So
    it waits, and who computes the rest does not. Ranges go to the clusters in the opposite order, the first one to the
    last cluster: a CTA waits for CTAs with lower numbers only, which start first, and wait for nobody. That is what
    keeps it going where another kernel holds a part of the chip; a grid is never larger than what runs at once.

    Parameters
    ----------
    w
        The writer; ``stream_first``, ``stream_blocks`` (k-blocks of a tile) and ``stream_range`` (those of a range)
        become kernel parameters.
    order
        The raster.
    k_block
        Elements of K in a k-block.
    """

    def __init__(self, w: Writer, order: RasterOrder, *, k_block: int) -> None:
        super().__init__(order)
        self.k_block = k_block
        self.whole, self.blocks, self.length = (
            w.parameter(f"stream_{name}", U32) for name in ("first", "blocks", "range")
        )

    def first(self, w: Writer) -> Tile:
        """Where a CTA begins; no cluster's way is empty."""
        way = _Way(w, self, self.order.bind())
        return way.piece(w, way.index, way.begin)[0]

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles, and over its shares of others."""
        way = _Way(w, self, self.order.bind())
        index = w.variable(U32, way.index, "tile")
        at = w.variable(U32, way.begin, "stream_at")
        for turn in w.repeat("tile", uniform=not role.one_thread):
            tile, behind = way.piece(w, index, at)
            index.assign(index + way.clusters)
            at.assign(behind)
            yield tile
            turn.again = (index < self.whole) | (at < way.end)


class _Way:
    """A cluster's way in a role: from tile `index` in steps of `clusters`, then from `begin` to `end` of its range.

    A range is counted in k-blocks, from the first one of the first streamed tile on.
    """

    def __init__(self, w: Writer, scheduler: StreamKScheduler, order: BoundRasterOrder) -> None:
        self._s = s = scheduler
        self._order = order
        self.index = s.order.cluster.index(w)
        self.clusters = s.order.cluster.count(w)
        self.range = self.clusters - self.index - 1
        self.slot = s.order.cluster.rank * self.clusters + self.range
        self.begin = self.range * s.length
        self.end = w.minimum(self.begin + s.length, (s.order.count - s.whole) * s.blocks)

    def piece(self, w: Writer, index: Value, at: Value) -> tuple[Tile, Value]:
        """Return tile `index` or, once the whole ones are done, the share that begins at `at`, and where it ends."""
        s = self._s
        whole = index < s.whole
        number = at // s.blocks
        start = number * s.blocks
        stop = start + s.blocks
        behind = w.minimum(stop, self.end)
        tile = self._order.tile(w, w.select(whole, index, s.whole + number))
        k_first = w.select(whole, 0, (at - start) * s.k_block)
        return (
            replace(
                tile,
                k_first=k_first,
                k_end=w.select(whole, tile.k_end, w.minimum(tile.k_end, (behind - start) * s.k_block)),
                share=StreamShare(
                    slot=self.slot, stores=k_first == 0, others=w.select(whole, 0, (stop - 1) // s.length - self.range)
                ),
            ),
            w.select(whole, at, behind),
        )
