"""Sums of the output's rows, beside it, or their largest or smallest elements: the same every time.

A warp has the rows of a fragment, and all columns of its tile or those of its share. It leaves their sums over these
columns in a workspace and counts itself; the warp that counts last for its rows adds what all of them left, in the
order of the columns, and stores the sums. No warp waits for another, and it does not matter which CTA comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.assembly.fit import component
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.combining import NEUTRAL, Combine, combined, counted
from tilekit.epilogue.totals import Tiles, acquire, count, require_whole_rows, reset
from tilekit.tile_op.accumulator_fragments import ACROSS
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call, fits
from tilekit.tiles.tile import Tile

IN_FLIGHT = 8
"""Parts that the last warp loads before it adds the first of them: a load takes longer than eight additions."""


@component
class RowSums:
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
        require_whole_rows(f"row sums {name!r}", layout, raster)
        self._combine: Combine = combine
        self._layout = layout
        self._raster = raster
        w.uses(self, "name", name, dtype=F32, along="rows")
        self._out = w.parameter(name, GMEM, lambda call: call.address(name))
        self._rows = w.parameter(f"{name}_rows", U32, lambda call: fits(f"{name}'s rows", call.m))
        self._columns = w.parameter(f"{name}_columns", U32, lambda call: fits(f"{name}'s columns", call.n))
        self._tiles = w.parameter(f"{name}_tiles", U32, self._shares)
        self._parts = w.parameter(
            f"{name}_parts",
            GMEM,
            lambda call: call.allocate(f"{name}_parts", 4 * self._shares(call) * self._down(call) * call.batches),
        )
        self._counters = w.parameter(
            f"{name}_counters",
            GMEM,
            lambda call: call.allocate(f"{name}_counters", 4 * self._down(call) // layout.fragment.rows * call.batches),
        )
        self._height = None
        if raster.batched:
            self._height = w.parameter(f"{name}_height", U32, self._down)

    def _shares(self, call: Call) -> int:
        """Parts of a row: those of CTA tiles along N, with tiles that only fill a cluster."""
        return self._raster.plan(call).columns * self._raster.cluster.n * self._layout.side_by_side

    def _down(self, call: Call) -> int:
        """Rows of all CTA tiles along M."""
        return self._raster.plan(call).rows * self._raster.cluster.m * self._raster.tile_m

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

    def finish(self, w: Writer, totals: RowTotals, tile: Tile) -> None:
        """Leave the sums of a tile's rows; the last of those that share the rows stores them."""
        fragment = self._layout.fragment
        across = (w.lane() // fragment.column_lanes) & (ACROSS - 1)
        for total in totals.sums:
            for mask in fragment.masks_across:
                total.assign(combined(w, self._combine, total, w.isa.warp.shuffle_xor_f32(value=total, mask=mask)))
        # Two of the lanes across go on, one with each row.
        row = w.select(across == 0, totals.row, totals.row + totals.apart)
        total = w.select(across == 0, *totals.sums, F32)
        valid = (across < 2) & (row < self._rows)
        # Rows of all matrices of a batch are counted through, here with those that only fill a cluster.
        place, block, stored = row, totals.row // fragment.rows, row
        if self._height is not None and isinstance(tile.batch, Value):
            place = row + tile.batch * self._height
            block = (totals.row + tile.batch * self._height) // fragment.rows
            stored = row + tile.batch * self._rows
        first = self._parts + w.widen_multiply(place, self._tiles) * 4
        share = tile.column // self._raster.tile_n
        if self._layout.side_by_side > 1:
            share = share * self._layout.side_by_side + self._layout.share_of(totals.columns[0])
        part = first + w.widen_multiply(share, 4)
        w.isa.memory.store_global_f32(address=part.retyped(GMEM), value=total, valid=valid)
        counter = (self._counters + w.widen_multiply(block, 4)).retyped(GMEM)
        with w.when(count(w, counter) + 1 == self._tiles):
            acquire(w)
            total = w.variable(F32, NEUTRAL[self._combine], "row_total")
            for index in w.range(self._tiles, step=IN_FLIGHT, name="part"):
                there = [index + ahead < self._tiles for ahead in range(IN_FLIGHT)]
                address = first + w.widen_multiply(index, 4)
                parts = [
                    w.isa.memory.load_coherent_f32(address=(address + 4 * ahead).retyped(GMEM), valid=valid & inside)
                    for ahead, inside in enumerate(there)
                ]
                for part, inside in zip(parts, there, strict=True):
                    total.assign(combined(w, self._combine, total, counted(w, self._combine, part, inside)))
            out = (self._out + w.widen_multiply(stored, 4)).retyped(GMEM)
            w.isa.memory.store_global_f32(address=out, value=total, valid=valid)
            reset(w, counter)


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
        total = self.sums[which]
        total.assign(combined(w, self.combine, total, counted(w, self.combine, value, counts)))
