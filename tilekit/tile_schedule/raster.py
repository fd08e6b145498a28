"""The raster: which output tile has which number, in an order that keeps operands in L2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.types import U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_schedule.dies import DieOrder
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import SplitShare, Tile

MAX_GROUP = 16
"""Rows walked together beyond which none are tried."""

Walk = Literal["m", "n"]
"""The dimension that tiles are walked along first: down M, or along N."""


@dataclass(frozen=True)
class Raster:
    """The launch-time numbers of a raster, for one problem.

    Attributes
    ----------
    rows, columns
        Cluster tiles along M and N.
    group
        Cluster rows walked together; along N, cluster columns.
    batches
        Batch count.
    shares
        Equal ranges of K, one behind the other, that a tile's sum is split into.
    """

    rows: int
    columns: int
    group: int
    batches: int
    shares: int = 1

    @property
    def whole_tiles(self) -> int:
        """Cluster tiles in all."""
        return self.rows * self.columns * self.batches

    @property
    def tiles(self) -> int:
        """Cluster tiles in all, each share counted."""
        return self.whole_tiles * self.shares

    def clusters(self, resident: int) -> int:
        """Clusters to launch: as few as need no more waves, since idle SMs save power and L2 traffic."""
        waves = -(-self.tiles // resident)
        return -(-self.tiles // max(waves, 1))

    @classmethod
    def plan(
        cls,
        *,
        m: int,
        n: int,
        batches: int,
        cluster_rows: int,
        cluster_columns: int,
        resident: int,
        group: int | None,
        order: Walk = "m",
    ) -> Raster:
        """Choose the raster for an m by n output covered by cluster tiles of the given extents.

        Without `group`, the one that makes a wave's footprint in A and B smallest: ``G`` rows of tiles and as many
        columns as its clusters cover (DeepGEMM's rule); with `order` ``"n"`` ``G`` columns and as many rows. A wave has
        as many clusters as are launched, not as many as are `resident`: at 4096^3 with 128x256 tiles 64 of 66, so 8
        rows of 16 and not 6, which read 30 % more from DRAM (H200: 168 MB, not 129).

        Of groups with the same footprint, as all have where one wave covers the output, the one that walks along the
        smaller operand: clusters that start together then share tiles of the larger one, and ask for its lines while
        they come from DRAM. 245 x 2304 x 2048 in 64x72 takes 7.3 us so, and 8.4 across (H200).
        """
        rows, columns = -(-m // cluster_rows), -(-n // cluster_columns)
        wave = cls(rows, columns, 1, batches).clusters(resident)
        down = order == "m"
        walked, others = (rows, columns) if down else (columns, rows)
        height, width = (cluster_rows, cluster_columns) if down else (cluster_columns, cluster_rows)
        smaller = m < n if down else n < m

        def preference(group: int) -> tuple[int, int]:
            lines = min(walked, group * -(-wave // (group * others)))
            footprint = lines * height + min(others, -(-wave // group)) * width
            return footprint, -group if smaller else group

        if group is None:
            group = min(range(1, min(walked, MAX_GROUP) + 1), key=preference, default=1)
        return cls(rows, columns, max(1, min(group, walked)), batches)


@component
class RasterOrder:
    """Turns a cluster tile's number into this CTA's tile, in grouped serpentine order.

    The order walks down `group` cluster rows before it moves to the next column, and reverses the column direction in
    every other group, so that the B tiles of the turn are still in L2. With `order` ``"n"`` it is the same for the
    transpose: along `group` cluster columns before it moves to the next row.

    Parameters
    ----------
    w
        The writer; the `Raster` numbers become kernel parameters.
    tile_m, tile_n
        The CTA tile.
    cluster
        This CTA's place in its cluster.
    k
        K of the problem, u32.
    k_block
        Elements of K in a k-block: shares of a sum are whole ones.
    batched
        Whether tiles have a batch index.
    shares
        Ranges of K that a tile's sum is split into; ``share_tiles`` and ``share_k`` become parameters. The shares
        of one range of K come one behind the other, those of the next range behind all of them: a CTA that waits for
        its turn waits for one with a lower number, which never waits for a higher one. Where the CTAs of a cluster
        share a sum, ``share_k`` is the length of their ranges of K, of which the last may be empty.
    order
        The dimension walked along first.
    group
        Cluster rows (with ``"n"`` columns) walked together; None chooses by footprint.
    dies
        How tiles fall to the chip's dies; None where it has one.
    """

    def __init__(
        self,
        w: Writer,
        *,
        tile_m: Count,
        tile_n: Count,
        cluster: Cluster,
        k: Value,
        k_block: Count,
        batched: bool = False,
        shares: Count = 1,
        order: Walk = "m",
        group: Count | None = None,
        dies: DieOrder | None = None,
    ) -> None:
        self.order = order
        self.dies = dies
        self.rows, self.columns, self.group, self.count = (
            w.parameter(f"tile_{name}", U32, partial(self._number, name))
            for name in ("rows", "columns", "group", "count")
        )
        self.tile_m, self.tile_n = tile_m, tile_n
        self.cluster = cluster
        self.batched = batched
        self.k = k
        self.k_block = k_block
        self._split = shares
        self._group = group
        self.shares = self.cluster_share = None
        if shares > 1:
            tiles = w.parameter("share_tiles", U32, lambda call: self.plan(call).whole_tiles)
            self.shares = tiles, w.parameter("share_k", U32, self._share_k)
        if cluster.k > 1:
            self.cluster_share = w.parameter("share_k", U32, self._share_k)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of a CTA's tile."""
        return self.tile_m, self.tile_n

    def plan(self, call: Call) -> Raster:
        """The raster of a call."""
        return call.once(self, lambda: self._plan(call))

    def schedule(self, call: Call) -> Schedule:
        """A static schedule over it, as many clusters as need no more waves; each share but the last has a slot."""
        raster = self.plan(call)
        kept = max(1, raster.shares - 1) if self._split > 1 else 0
        slots = raster.whole_tiles * self.cluster.size * kept
        clusters = raster.clusters(call.resident)
        if self.dies is not None:
            clusters = self.dies.clusters(clusters, raster.tiles, call.resident)
        return Schedule(clusters, raster.whole_tiles, slots)

    def k_blocks(self, call: Call) -> int:
        """K-blocks of a tile."""
        return -(-call.k // self.k_block)

    def _plan(self, call: Call) -> Raster:
        raster = Raster.plan(
            m=call.m,
            n=call.n,
            batches=call.batches,
            cluster_rows=self.tile_m * self.cluster.m,
            cluster_columns=self.tile_n * self.cluster.n,
            resident=call.resident,
            group=self._group,
            order=self.order,
        )
        blocks = self._share_blocks(call) * self.cluster.k
        return replace(raster, shares=max(1, -(-self.k_blocks(call) // blocks)))

    def _share_blocks(self, call: Call) -> int:
        return max(1, -(-self.k_blocks(call) // (self._split * self.cluster.k)))

    def _share_k(self, call: Call) -> int:
        return fits("a share of K", self._share_blocks(call) * self.k_block)

    def _number(self, name: str, call: Call) -> int:
        raster = self.plan(call)
        return fits("tile count", raster.tiles if name == "count" else getattr(raster, name))

    def bind(self) -> BoundRasterOrder:
        """Work out what all tiles have in common; once a role."""
        return BoundRasterOrder(self)


class BoundRasterOrder:
    """A `RasterOrder` in a role."""

    def __init__(self, order: RasterOrder) -> None:
        self._order = order
        self._walked, self._others = (order.rows, order.columns) if order.order == "m" else (order.columns, order.rows)
        self._group_tiles = order.group * self._others
        self._matrix_tiles = order.rows * order.columns if order.batched else None

    def tile(self, w: Writer, index: Value) -> Tile:
        """Return this CTA's part of cluster tile `index`."""
        o = self._order
        k_first: Operand = 0
        k_end = o.k
        share = None
        if o.shares is not None:
            tiles, length = o.shares
            turn = index // tiles
            last = index >= o.count - tiles
            index = index - turn * tiles
            k_first = turn * length
            k_end = w.minimum(k_first + length, k_end)
            first, step = index * o.cluster.size + o.cluster.rank, tiles * o.cluster.size
            share = SplitShare(slot=first + turn * step, stores=last, others=turn, first=first, step=step)
        if o.cluster_share is not None:
            k_first = o.cluster.k_rank * o.cluster_share
            k_end = w.minimum(k_first + o.cluster_share, k_end)
        if o.dies is not None:
            index = o.dies.place(w, index, o.count if o.shares is None else o.shares[0])
        batch: Operand = 0
        within = index
        if self._matrix_tiles is not None:
            batch = index // self._matrix_tiles
            within = index - batch * self._matrix_tiles
        group = within // self._group_tiles
        first = group * o.group
        height = w.minimum(self._walked - first, o.group)
        inner = within - group * self._group_tiles
        other = inner // height
        walked = first + (inner - other * height)
        other = w.select((group & 1) != 0, self._others - other - 1, other)
        row, column = (walked, other) if o.order == "m" else (other, walked)
        return Tile(
            row=(row * o.cluster.m + o.cluster.row) * o.tile_m,
            column=(column * o.cluster.n + o.cluster.column) * o.tile_n,
            batch=batch,
            k_first=k_first,
            k_end=k_end,
            share=share,
        )
