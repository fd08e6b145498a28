"""Totals of the columns of groups of rows, which begin and end at any row: a vector a group.

Pieces are fragments' rows counted from a group's first row. The number of a group keeps its pieces, and its counters,
apart from those of the group before, which may end within the same rows.
"""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.column_totals import ColumnTotals, Group
from tilekit.epilogue.combining import Combine
from tilekit.epilogue.totals import GroupRows, LeftTile, Tiles
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call
from tilekit.tiles.tile import Tile


@component
class GroupedColumnTotals(ColumnTotals):
    """`ColumnTotals` where tiles are those of groups of rows, each of which has one row of tiles or more.

    Parameters
    ----------
    w, name, layout, raster, combine
        As `ColumnTotals` takes them.

    Raises
    ------
    TraceError
        As `ColumnTotals` does.
    """

    def __init__(
        self, w: Writer, name: str, *, layout: AccumulatorLayout, raster: Tiles, combine: Combine = "sum"
    ) -> None:
        super().__init__(w, name, layout=layout, raster=raster, combine=combine)
        self._line_pieces = raster.tile_m // layout.fragment.rows * raster.cluster.m
        self._vectors = True
        self._tile: Tile | None = None

    @property
    def _spare(self) -> int:
        """Places of a group's results and counters beyond those that its rows' numbers leave room for.

        They are for rows that fill a cluster's tiles, for what lies before a whole group of pieces and behind it, and
        for the counter of all.
        """
        return -(-self._line_pieces // self._group) + 3

    def _pieces_of(self, call: Call) -> int:
        return super()._pieces_of(call) + int(call.number("groups"))

    def _groups_of(self, call: Call) -> int:
        return self._pieces_of(call) // self._group + self._spare * int(call.number("groups"))

    def enter(self, tile: Tile) -> None:
        """Pieces from now on are of `tile`."""
        self._tile = tile

    def _piece(self, w: Writer, row: Value, batch: Operand) -> tuple[Value, Value | None]:
        """The place of a row's piece, kept if any of its rows is the group's, or it is the only one."""
        assert self._tile is not None, "a piece of no tile"
        assert self._tile.row_first is not None, "a tile of no group"
        assert self._tile.row_end is not None, "a group without an end"
        base = self.first_row(w, row)
        kept = (base < self._tile.row_end) | (base == self._tile.row_first)
        return base // self._layout.fragment.rows + batch, kept

    def _place(self, w: Writer, left: LeftTile) -> Group:
        assert left.group is not None, "a tile of no group"
        given = self.first_row(w, left.row), left.batch, left.group.first, left.group.end
        base, batch, first, end = (w.broadcast(value, lane=0) for value in given)
        return self._group_of(w, LeftTile(base, left.column, batch, GroupRows(first, end)), base)

    def _group_of(self, w: Writer, left: LeftTile, row: Value) -> Group:
        assert left.group is not None, "a tile of no group"
        rows, height = self._layout.fragment.rows, self._raster.tile_m * self._raster.cluster.m
        first, count = left.group.first, left.group.end - left.group.first
        lines = (count + (height - 1)) // height
        pieces = w.select(lines == 0, 1, lines) * self._line_pieces
        there = w.select(count == 0, 1, (count + (rows - 1)) // rows)
        group = (row - first) // rows // self._group
        before = group * self._group
        members = w.minimum(pieces - before, self._group)
        kept = w.select(there > before, w.minimum(there - before, self._group), 0)
        groups = (pieces + (self._group - 1)) // self._group
        base = first // rows // self._group + left.batch * self._spare
        counters = self._counters_of(w, left, base + group, base + groups)
        return Group(group, groups, members, kept, first // rows + left.batch + before, self._pieces + base, *counters)


__all__ = ["GroupedColumnTotals"]
