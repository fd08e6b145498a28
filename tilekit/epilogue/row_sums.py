"""Sums of the output's rows, beside it, or their largest or smallest elements: the same every time.

A warp has rows of a tile, and all its columns or those of its share. It leaves their sums over these columns in a
workspace; the warp that counts last for its rows adds what all of them left, in an order of its own, and stores the
sums. No warp waits for another, and it does not matter which CTA comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilekit.assembly.fit import component
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.combining import NEUTRAL, Combine, combine_where, combined
from tilekit.epilogue.totals import LeftTile, Tiles, Totals, acquire, reset
from tilekit.tile_op.accumulator_fragments import ACROSS
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call, fits
from tilekit.tiles.tile import Tile

IN_FLIGHT = 16
"""Parts that a lane of the last warp loads before it adds the first of them: a load takes longer than these additions.

Two lanes have every second part of a row each. Of the kernel's last tiles all of this is behind the last product. They
lie beside the accumulators, which ptxas holds to live on from tile to tile: with 32 of them tiles of 128x160 in turn
spill, with 16 those of 128x168 do not.
"""


@component
class RowSums(Totals):
    """A vector of f32: for each row of the output the sum of its elements, before they are rounded to its type.

    Of a batch there is a vector a matrix, one behind the other.

    Parameters
    ----------
    w
        The writer; the vector's address (`name`), M and N, and the addresses of the workspace and its counters become
        kernel parameters. Counters are zero before a launch and after it.
    name
        What the call names the vector.
    layout
        How a warpgroup holds the accumulators: each row in one warp, or in several side by side.
    raster
        The tiles, which all go through one epilogue.
    combine
        ``"sum"``, or ``"max"`` or ``"min"`` for the largest or the smallest element.
    grouped
        Whether tiles are those of groups of rows, which begin and end at any row.

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
        grouped: bool = False,
    ) -> None:
        super().__init__(w, "row sums", name, along="rows", layout=layout, raster=raster, combine=combine)
        self._rows = w.parameter(f"{name}_rows", U32, lambda call: fits(f"{name}'s rows", call.m))
        self._columns = w.parameter(f"{name}_columns", U32, lambda call: fits(f"{name}'s columns", call.n))
        self._tiles = w.parameter(f"{name}_tiles", U32, self._shares)
        self._parts = w.parameter(
            f"{name}_parts",
            GMEM,
            lambda call: call.allocate(f"{name}_parts", 4 * self._shares(call) * self._down(call) * call.batches),
        )
        self._grouped = grouped
        self._counters = w.parameter(
            f"{name}_counters", GMEM, lambda call: call.allocate(f"{name}_counters", 4 * self._counted(call))
        )
        self._height = None
        if raster.batched:
            self._height = w.parameter(f"{name}_height", U32, self._down)

    def _shares(self, call: Call) -> int:
        """Parts of a row: those of CTA tiles along N."""
        return self._across(call) * self._layout.side_by_side

    def _counted(self, call: Call) -> int:
        """Counters: one for rows that are a fragment's, and of groups one more each, which may begin within these."""
        fragments = self._down(call) // self._layout.fragment.rows * call.batches
        return fragments + (int(call.number("groups")) if self._grouped else 0)

    def begin(self, w: Writer, row: Value, *, apart: int, batch: Operand) -> RowTotals:
        """Begin the sums of rows `row` and ``row + apart`` in a tile."""
        none = NEUTRAL[self._combine]
        sums = w.variable(F32, none, "row_sum"), w.variable(F32, none, "row_sum")
        return RowTotals(row, apart, sums, self._combine)

    def columns(self, column: Value, *, apart: int) -> tuple[SummedColumn, SummedColumn]:
        """Columns `column` and ``column + apart``, and whether the output has them."""
        first = SummedColumn(column, column < self._columns)
        other = column + apart
        return first, SummedColumn(other, other < self._columns)

    def finish_rows(self, w: Writer, totals: RowTotals, tile: Tile) -> None:
        """Leave the sums of two rows in a tile behind."""
        for total in totals.sums:
            for mask in self._layout.fragment.masks_across:
                total.assign(combined(w, self._combine, total, w.isa.warp.shuffle_xor_f32(value=total, mask=mask)))
        share = tile.column // self._raster.tile_n
        if self._layout.side_by_side > 1:
            share = share * self._layout.side_by_side + self._layout.share_of(totals.columns[0])
        line = self._line(w, totals.row, tile.batch if isinstance(tile.batch, Value) else None, tile.row_end)
        part = (line.parts + w.widen_multiply(share, 4)).retyped(GMEM)
        total = w.select(line.upper, *totals.sums, F32)
        w.isa.memory.store_global_f32(address=part, value=total, valid=line.valid)

    def _line(self, w: Writer, row: Value, batch: Value | None, end: Value | None) -> SummedRow:
        """Of the two rows from `row` on that of this lane: of the four lanes across, two have one.

        Rows end before `end`, or with the output.
        """
        fragment = self._layout.fragment
        across = (w.lane() // fragment.column_lanes) & (ACROSS - 1)
        upper = (across & 1) == 0
        row = w.select(upper, row, row + fragment.apart)
        # Rows of all matrices of a batch are counted through, here with those that only fill a cluster.
        place, stored = row, row
        if self._height is not None and batch is not None:
            place, stored = row + batch * self._height, row + batch * self._rows
        parts = self._parts + w.widen_multiply(place, self._tiles) * 4
        inside = row < (self._rows if end is None else end)
        return SummedRow(parts, stored, upper, across >> 1, inside, (across < 2) & inside)

    def counter(self, w: Writer, left: LeftTile) -> Value:
        """That of the warp's first fragment: all warps that have those rows have the same others.

        Of groups the rows of two may lie in one fragment's: their number keeps them apart.
        """
        if self._grouped:
            place = self.first_row(w, left.row) // self._layout.fragment.rows + left.batch
            return self._counters + w.widen_multiply(place, 4)
        row = left.row if self._height is None else left.row + left.batch * self._height
        return self._counters + w.widen_multiply(row // self._layout.fragment.rows, 4)

    def due(self, w: Writer, left: LeftTile) -> Value | None:
        """Of groups, whether any of the warp's rows is the group's: of others the counters are the next group's."""
        return None if left.group is None else self.first_row(w, left.row) < left.group.end

    def expected(self, w: Writer, left: LeftTile) -> Value:
        """A warp for each part of a row."""
        return self._tiles

    def combine_parts(self, w: Writer, left: LeftTile) -> None:
        """Add the parts of the warp's rows, every second one in the order of the columns, and store the sums."""
        acquire(w)
        batch = None if self._height is None else left.batch
        end = None if left.group is None else left.group.end
        lines = [self._line(w, left.row + first, batch, end) for first in self._firsts]
        totals = [w.variable(F32, NEUTRAL[self._combine], "row_total") for _ in lines]
        at_once = max(1, IN_FLIGHT // len(lines))
        for index in w.range(self._tiles, step=2 * at_once, name="part"):
            first = index + lines[0].second
            there = [first + 2 * ahead < self._tiles for ahead in range(at_once)]
            parts = [self._load(w, line, first, there) for line in lines]
            for total, values in zip(totals, parts, strict=True):
                for part, inside in zip(values, there, strict=True):
                    combine_where(w, self._combine, total, part, inside)
        for total in totals:
            other = w.isa.warp.shuffle_xor_f32(value=total, mask=self._layout.fragment.masks_across[1])
            total.assign(combined(w, self._combine, total, other))
        for line, total in zip(lines, totals, strict=True):
            out = (self._out + w.widen_multiply(line.stored, 4)).retyped(GMEM)
            w.isa.memory.store_global_f32(address=out, value=total, valid=line.valid)
        reset(w, self.counter(w, left).retyped(GMEM))

    def _load(self, w: Writer, line: SummedRow, first: Value, there: Sequence[Value]) -> list[Value]:
        """Every second part of a row from `first` on, those that are there."""
        address = line.parts + w.widen_multiply(first, 4)
        return [
            w.isa.memory.load_coherent_f32(address=(address + 8 * ahead).retyped(GMEM), valid=line.inside & inside)
            for ahead, inside in enumerate(there)
        ]


@dataclass(frozen=True)
class SummedRow:
    """A row in a lane's hands.

    Attributes
    ----------
    parts
        Address of its parts.
    stored
        Its place in the vector.
    upper
        Whether it is the first of the lane's two rows.
    second
        Which of its parts are this lane's: 1 for every second one, from the second on.
    inside
        Whether the output has it.
    valid
        Whether it is this lane's to store, too.
    """

    parts: Value
    stored: Value
    upper: Value
    second: Value
    inside: Value
    valid: Value


@dataclass(frozen=True)
class SummedColumn:
    """A column, and whether the output has it."""

    index: Value
    inside: Value


@dataclass(frozen=True)
class RowTotals:
    """The sums of two rows so far, in a thread's columns.

    Attributes
    ----------
    row, apart
        The rows: `row` and ``row + apart``.
    sums
        Of each.
    combine
        What they are.
    columns
        Those of the elements so far.
    """

    row: Value
    apart: int
    sums: tuple[Value, Value]
    combine: Combine = "sum"
    columns: list[Value] = field(default_factory=list)

    def add(self, w: Writer, which: int, value: Value, column: Value, counts: Value) -> None:
        """Add an element of row `which` in a column, if it `counts`."""
        self.columns.append(column)
        combine_where(w, self.combine, self.sums[which], value, counts)
