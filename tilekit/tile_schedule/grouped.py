"""A schedule over groups of rows, each with a matrix of its own: the products of a mixture of experts.

How many rows a group has is only known on the device, so every role counts the tiles as it goes: the tiles of a group
follow each other, and a cluster takes every so many-th of all. Within a group they have the order of a raster
(`tilekit.tile_schedule.raster`): down a band of rows, column by column, and back through the columns of the next band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilekit.assembly.legal import Count
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.divisor import Divisor
from tilekit.tile_schedule.raster import Raster
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile

BAND_BYTES = 28 << 20
"""Of A, in a band: what is left of L2 (50 MB on an H200) keeps it while the columns of B pass.

Four groups of 8,576 rows by 4096 by 7168 take 5.3 % less time in bands of 11 or 16 rows of tiles than down all of their
rows (8 bits, scales of blocks: 1,671 to 1,582 us), and 5.4 % less of bf16; sixteen skewed ones 1.6 % less in bands of
11, 3.7 % in bands of 16. Where all rows of a group take 18 MB, bands of 11 take 1.8 % more.
"""


@dataclass(frozen=True)
class _Extent:
    """Of a cluster's tile, along one side of the output.

    Attributes
    ----------
    tile
        Elements of a CTA's tile.
    ctas
        CTAs of a cluster.
    place
        This CTA's among them, u32.
    """

    tile: int
    ctas: int
    place: Value

    @property
    def cluster(self) -> int:
        """Elements of a cluster's tile."""
        return self.tile * self.ctas

    def first(self, index: Value) -> Value:
        """The first element of this CTA's part of cluster tile `index`."""
        return (index * self.ctas + self.place) * self.tile


class GroupedScheduler:
    """Tiles ``cluster, cluster + clusters, …`` of all groups.

    Bounds may be anything. An end counts as the nearest between the end before it and the last row of all, a count as
    the nearest between 0 and the rows of a group: bad bounds make groups empty or shorter, nothing outside the operands
    is read or outside the output written, and every role sees the same tiles.

    Parameters
    ----------
    w
        The writer; ``group_bounds`` (the address of one u32 a group), ``group_count``, ``group_rows``,
        ``tile_columns``, ``tile_group``, what divides by a band's tiles, and ``rows`` become kernel parameters.
    tile_m, tile_n
        The CTA tile.
    cluster
        This CTA's place in its cluster.
    k
        K of the problem, u32.
    counted
        Whether the bounds count the rows of groups that begin every ``group_rows`` rows; else they are the ends of
        groups that lie behind each other.
    every_group
        Whether a group without rows has a row of tiles too, none of whose rows is its: what is stored for groups.
    band
        Cluster rows of a band; None takes as many as L2 keeps of A, and those of a wave's smallest footprint at least.
    turned
        Whether the kernel computes the transpose of its output: rows of groups are then along the tiles' columns.
    """

    yields_early = True

    def __init__(
        self,
        w: Writer,
        *,
        tile_m: int,
        tile_n: int,
        cluster: Cluster,
        k: Value,
        rows: Value,
        counted: bool,
        every_group: bool = False,
        band: Count | None = None,
        turned: bool = False,
    ) -> None:
        sides = _Extent(tile_m, cluster.m, cluster.row), _Extent(tile_n, cluster.n, cluster.column)
        self._down, self._across = reversed(sides) if turned else sides
        self._turned = turned
        self._cluster = cluster
        self._k = k
        self._rows = rows
        self._every = every_group
        self._bounds = w.parameter("group_bounds", GMEM, lambda call: call.address("groups"))
        self._count = w.parameter("group_count", U32, lambda call: call.number("groups"))
        self._group_rows = None
        if counted:
            self._group_rows = w.parameter("group_rows", U32, lambda call: call.number("group_rows"))
        self._columns = w.parameter("tile_columns", U32, self._tile_columns)
        self._given_band = band
        self._band = w.parameter("tile_group", U32, lambda call: self._raster(call).group)
        self._bands = Divisor(w, "band_tiles", lambda call: self._raster(call).group * self._tile_columns(call))

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output: how many tiles there are, is known on the device only."""
        return Schedule(call.resident, self._raster(call).tiles)

    def _raster(self, call: Call) -> Raster:
        """That of one group with all the rows."""
        return call.once(self, lambda: self._planned(call))

    def _planned(self, call: Call) -> Raster:
        rows, columns, operand = (call.n, call.m, "b") if self._turned else (call.m, call.n, "a")
        raster = Raster.plan(
            m=rows,
            n=columns,
            batches=1,
            cluster_rows=self._down.cluster,
            cluster_columns=self._across.cluster,
            resident=call.resident,
            group=self._given_band,
        )
        if self._given_band is not None:
            return raster
        row_bytes = call.k * call.matrix(operand).dtype.bits // 8
        kept = BAND_BYTES // max(self._down.cluster * row_bytes, 1)
        return replace(raster, group=max(raster.group, min(kept, raster.rows)))

    def _tile_columns(self, call: Call) -> int:
        return self._raster(call).columns

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def ask(self, w: Writer) -> None:
        """Nothing to ask for."""

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""
        uniform = not role.one_thread
        cluster = self._cluster
        index = w.variable(U32, cluster.index(w), "tile")
        stride = cluster.count(w)
        group, before, first, end, rows = (
            w.variable(U32, 0, name) for name in ("group", "before", "group_first", "group_end", "group_tiles")
        )
        for turn in w.repeat("tile", uniform=uniform):
            for step in w.repeat("group", uniform=uniform):
                step.again = self._seek(w, index, group, before, first, end, rows)
            found = group < self._count
            with w.when(found):
                down, across = self._place(w, index - before, rows)
                place = first + self._down.first(down), self._across.first(across)
                row, column = reversed(place) if self._turned else place
                yield Tile(
                    row=row,
                    column=column,
                    batch=group,
                    k_first=0,
                    k_end=self._k,
                    row_first=first,
                    row_end=end,
                )
            index.assign(index + stride)
            turn.again = found

    def _place(self, w: Writer, within: Value, rows: Value) -> tuple[Value, Value]:
        """Row and column of a group's tile, of its `rows` of cluster tiles."""
        band = self._bands.divide(w, within)
        first = band * self._band
        height = w.minimum(rows - first, self._band)
        inner = within - first * self._columns
        column = inner // height
        row = first + (inner - column * height)
        return row, w.select((band & 1) != 0, self._columns - column - 1, column)

    def _seek(
        self, w: Writer, index: Value, group: Value, before: Value, first: Value, end: Value, rows: Value
    ) -> Value:
        """Look at `group`; go on to the next one where tile `index` lies behind it, and say so."""
        valid: Value = group < self._count
        address = (self._bounds + w.widen_multiply(group, 4)).retyped(GMEM)
        bound = w.isa.memory.load_count(address=address, valid=valid)
        if self._group_rows is not None:
            first.assign(group * self._group_rows)
            bound = first + w.minimum(bound, self._group_rows)
        bound = w.minimum(bound, self._rows)
        end.assign(w.select(bound > first, bound, first))
        height = self._down.cluster
        lines = (end - first + (height - 1)) // height
        rows.assign(w.select(lines == 0, 1, lines) if self._every else lines)
        tiles = rows * self._columns
        beyond: Value = valid & ((index - before) >= tiles)
        before.assign(w.select(beyond, before + tiles, before))
        group.assign(w.select(beyond, group + 1, group))
        first.assign(w.select(beyond, end, first))
        return beyond
