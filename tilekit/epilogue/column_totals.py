"""Sums of the output's columns, beside it, or their largest or smallest elements: the same every time.

A warp leaves what it makes of a fragment's rows in a workspace, a value a column. Of the pieces of a few tiles one
below the other the warp that counts last combines all, in the order of the rows, and of these results again the last
does: so no warp waits for another, and none reads more than a few dozen values a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.assembly.fit import component
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.combining import NEUTRAL, Combine, combine_where, combined
from tilekit.epilogue.totals import LeftTile, Tiles, Totals, acquire, count, reset
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call, fits
from tilekit.tiles.tile import Tile

GROUP = 32
"""Pieces that are combined at once, or those of a tile if it has more."""


@component
class ColumnTotals(Totals):
    """A vector of f32: for each column of the output what its elements combine to, before they are rounded.

    Of a batch there is a vector a matrix, one behind the other.

    Parameters
    ----------
    w
        The writer; the vector's address (`name`), its extents, and the addresses of the workspace and its counters
        become kernel parameters. Counters are zero before a launch and after it.
    name
        What the call names the vector.
    layout
        How a warpgroup holds the accumulators: each row in one warp, or in several side by side.
    raster
        The tiles, which all go through one epilogue.
    combine
        ``"sum"``, ``"max"`` or ``"min"``.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for a layout or raster in which warps do not have whole rows of a tile.
    """

    def __init__(
        self,
        w: Writer,
        name: str,
        *,
        layout: AccumulatorLayout,
        raster: Tiles,
        combine: Combine = "sum",
    ) -> None:
        super().__init__(w, "column totals", name, along="columns", layout=layout, raster=raster, combine=combine)
        pieces = raster.tile_m // layout.fragment.rows
        self._group = max(1, GROUP // pieces) * pieces
        self._columns = w.parameter(f"{name}_columns", U32, lambda call: fits(f"{name}'s columns", call.n))
        self._width = w.parameter(f"{name}_width", U32, lambda call: self._across(call) * raster.tile_n)
        self._pieces = w.parameter(f"{name}_pieces", U32, self._pieces_of)
        self._batches = None
        self._vectors = raster.batched
        if raster.batched:
            self._batches = w.parameter(f"{name}_batches", U32, lambda call: call.batches)
        self._parts = w.parameter(
            f"{name}_parts",
            GMEM,
            lambda call: call.allocate(
                f"{name}_parts",
                4 * self._across(call) * raster.tile_n * (self._pieces_of(call) + self._groups_of(call)) * call.batches,
            ),
        )
        self._counters = w.parameter(
            f"{name}_counters",
            GMEM,
            lambda call: call.allocate(
                f"{name}_counters", 4 * self._across(call) * (self._groups_of(call) + 1) * call.batches
            ),
        )

    def _pieces_of(self, call: Call) -> int:
        """Pieces of a column."""
        return self._down(call) // self._layout.fragment.rows

    def _groups_of(self, call: Call) -> int:
        return -(-self._pieces_of(call) // self._group)

    def begin(self, w: Writer, column: Value, *, apart: int, batch: Operand) -> ColumnTotal:
        """Begin a piece of columns `column` and ``column + apart``: four elements, of two rows."""
        none = NEUTRAL[self._combine]
        return ColumnTotal(column, apart, [w.variable(F32, none, "piece"), w.variable(F32, none, "piece")])

    def add(
        self, w: Writer, total: ColumnTotal, which: int, value: Value, counts: Value, *, row: Value, batch: Operand
    ) -> None:
        """Add an element of column `which`; the fourth completes the piece, which a lane a column leaves behind.

        `row` is a row of the warp's fragment.
        """
        fragment = self._layout.fragment
        combine_where(w, self._combine, total.values[which], value, counts)
        total.added.append(which)
        if len(total.added) < 4:
            return
        for piece in total.values:
            for mask in fragment.masks_down:
                piece.assign(combined(w, self._combine, piece, w.isa.warp.shuffle_xor_f32(value=piece, mask=mask)))
        lane, (left, right) = w.lane(), total.values
        first = fragment.among(lane, 1)
        column = w.select(first, total.column, total.column + total.apart)
        index, kept = self._piece(w, row, batch)
        address = self._at(w, index, column)
        value, valid = w.select(first, left, right, F32), fragment.among(lane, 2)
        w.isa.memory.store_global_f32(address=address, value=value, valid=valid if kept is None else valid & kept)

    def enter(self, tile: Tile) -> None:
        """Pieces from now on are of `tile`."""

    def _piece(self, w: Writer, row: Value, batch: Operand) -> tuple[Value, Value | None]:
        """The place of a row's piece among those of all matrices, and whether it is kept.

        Behind them come the groups' results.
        """
        block = row // self._layout.fragment.rows
        return block + batch * self._pieces if isinstance(batch, Value) else block, None

    def _at(self, w: Writer, index: Value, column: Value) -> Value:
        """Where a piece's value of a column lies."""
        start = self._parts + w.widen_multiply(index, self._width) * 4
        return (start + w.widen_multiply(column, 4)).retyped(GMEM)

    def _place(self, w: Writer, left: LeftTile) -> Group:
        """The group of a tile's pieces, in a warp that goes through them together."""
        row = w.broadcast(left.row, lane=0)
        batch = left.batch if self._batches is None else w.broadcast(left.batch, lane=0)
        return self._group_of(w, LeftTile(row, left.column, batch, left.group), row)

    def _group_of(self, w: Writer, left: LeftTile, row: Value) -> Group:
        """The group of a warp's pieces, of which `row` is a row."""
        groups = (self._pieces + (self._group - 1)) // self._group
        group = row // self._layout.fragment.rows // self._group
        mine, last, first, results = group, groups, group * self._group, self._pieces
        if self._batches is not None:
            counters = (groups + 1) * left.batch
            mine, last = group + counters, groups + counters
            first = first + self._pieces * left.batch
            results = self._pieces * self._batches + groups * left.batch
        members = w.minimum(self._pieces - group * self._group, self._group)
        return Group(group, groups, members, members, first, results, *self._counters_of(w, left, mine, last))

    def _counters_of(self, w: Writer, left: LeftTile, *places: Value) -> list[Value]:
        """The counters of groups, for the tile's columns."""
        strip, strips = left.column // self._raster.tile_n, self._width // self._raster.tile_n
        return [self._counters + w.widen_multiply(place * strips + strip, 4) for place in places]

    def counter(self, w: Writer, left: LeftTile) -> Value:
        """That of the group and the tile's columns.

        Each lane goes by its own row: of an address that it knows to be the same in all lanes ptxas makes one addition
        for the warp, and hands the answer round at once, which waits for it.
        """
        return self._group_of(w, left, self.first_row(w, left.row) if left.group else left.row).counter

    def expected(self, w: Writer, left: LeftTile) -> Value:
        """Warps that have the pieces of a group."""
        return self._place(w, left).members // self._fragments * self._layout.side_by_side

    def combine_parts(self, w: Writer, left: LeftTile) -> None:
        """Combine the group's pieces, and if it is the last group, what all groups came to."""
        acquire(w)
        lane, place = w.lane(), self._place(w, left)
        for column, total in self._gathered(w, place.first, place.kept, left.column, lane):
            at = self._at(w, place.results + place.group, column)
            w.isa.memory.store_global_f32(address=at, value=total, valid=column < self._width)
        reset(w, place.counter.retyped(GMEM))
        w.warp_sync()
        counter = place.last_counter.retyped(GMEM)
        with w.when(count(w, counter) + 1 == place.groups):
            acquire(w)
            for column, total in self._gathered(w, place.results, place.groups, left.column, lane):
                stored = column + self._columns * left.batch if self._vectors else column
                out = (self._out + w.widen_multiply(stored, 4)).retyped(GMEM)
                w.isa.memory.store_global_f32(address=out, value=total, valid=column < self._columns)
            reset(w, counter)

    def _gathered(self, w: Writer, start: Value, count: Value, column: Value, lane: Value) -> list[tuple[Value, Value]]:
        """Combine `count` pieces of the tile's columns, from piece `start` on: several columns a lane at once."""
        width = self._raster.tile_n
        found = []
        for left in range(0, width, w.lanes):
            mine = column + lane + left
            found.append((mine, w.variable(F32, NEUTRAL[self._combine], "column_total")))
        inside = [lane + left < width for left in range(0, width, w.lanes)]
        for index in w.range(count, name="piece"):
            for (mine, total), valid in zip(found, inside, strict=True):
                part = w.isa.memory.load_coherent_f32(address=self._at(w, start + index, mine), valid=valid)
                total.assign(combined(w, self._combine, total, part))
        # Lanes beyond the tile's columns have nothing to store.
        return [(w.select(valid, mine, 0xFFFFFFFF), total) for (mine, total), valid in zip(found, inside, strict=True)]


@dataclass(frozen=True)
class Group:
    """Where a tile's pieces are among those of all.

    Attributes
    ----------
    group, groups
        The group of its pieces, and how many groups there are.
    members, kept
        Pieces of this one, and those of them that are kept: some may be of rows that there are not.
    first, results
        The group's first piece, and the first of the groups' results.
    counter, last_counter
        That of the group, and that of the groups.
    """

    group: Value
    groups: Value
    members: Value
    kept: Value
    first: Value
    results: Value
    counter: Value
    last_counter: Value


@dataclass(frozen=True)
class ColumnTotal:
    """A piece of two columns so far.

    Attributes
    ----------
    column, apart
        The columns: `column` and ``column + apart``.
    values
        Of each.
    added
        Which have been added to.
    """

    column: Value
    apart: int
    values: list[Value]
    added: list[int] = field(default_factory=list)
