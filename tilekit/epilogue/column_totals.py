"""Sums of the output's columns, beside it, or their largest or smallest elements: the same every time.

A warp leaves what it makes of a fragment's rows in a workspace, a value a column. Of each 32 such pieces of a tile's
columns the warp that comes last combines all, in the order of the rows, and of these results again the last does: so no
warp waits for another, and none reads more than a few dozen values a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.assembly.fit import component
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.combining import NEUTRAL, Combine, combined, counted
from tilekit.epilogue.totals import Tiles, acquire, count, require_whole_rows, reset
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call, fits
from tilekit.tiles.tile import Tile

GROUP = 32
"""Pieces that are combined at once."""


@component
class ColumnTotals:
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
        require_whole_rows(f"column totals {name!r}", layout, raster)
        self._layout = layout
        self._raster = raster
        self._combine: Combine = combine
        w.uses(self, "name", name, dtype=F32, along="columns")
        self._out = w.parameter(name, GMEM, lambda call: call.address(name))
        self._columns = w.parameter(f"{name}_columns", U32, lambda call: fits(f"{name}'s columns", call.n))
        self._width = w.parameter(f"{name}_width", U32, self._across)
        self._pieces = w.parameter(f"{name}_pieces", U32, self._down)
        self._parts = w.parameter(
            f"{name}_parts",
            GMEM,
            lambda call: call.allocate(
                f"{name}_parts", 4 * self._across(call) * (self._down(call) + self._groups(call)) * call.batches
            ),
        )
        self._counters = w.parameter(
            f"{name}_counters",
            GMEM,
            lambda call: call.allocate(
                f"{name}_counters",
                4 * self._across(call) // raster.tile_n * (self._groups(call) + 1) * call.batches,
            ),
        )

    def _across(self, call: Call) -> int:
        """Columns of all CTA tiles, with those that only fill a cluster."""
        return self._raster.plan(call).columns * self._raster.cluster.n * self._raster.tile_n

    def _down(self, call: Call) -> int:
        """Pieces of a column."""
        return self._raster.plan(call).rows * self._raster.cluster.m * self._raster.tile_m // self._layout.fragment.rows

    def _groups(self, call: Call) -> int:
        return -(-self._down(call) // GROUP)

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
        mine = total.values[which]
        mine.assign(combined(w, self._combine, mine, counted(w, self._combine, value, counts)))
        total.added.append(which)
        if len(total.added) < 4:
            return
        for piece in total.values:
            for mask in fragment.masks_down:
                piece.assign(combined(w, self._combine, piece, w.isa.warp.shuffle_xor_f32(value=piece, mask=mask)))
        lane, (left, right) = w.lane(), total.values
        first = fragment.among(lane, 1)
        column = w.select(first, total.column, total.column + total.apart)
        index = self._piece(row // fragment.rows, batch)
        address = self._at(w, index, column)
        value = w.select(first, left, right, F32)
        w.isa.memory.store_global_f32(address=address, value=value, valid=fragment.among(lane, 2))

    def _piece(self, block: Value, batch: Operand) -> Value:
        """The place of a piece among those of all matrices; behind them come the groups' results."""
        return block + batch * self._pieces if isinstance(batch, Value) else block

    def _at(self, w: Writer, index: Value, column: Value) -> Value:
        """Where a piece's value of a column lies."""
        start = self._parts + w.widen_multiply(index, self._width) * 4
        return (start + w.widen_multiply(column, 4)).retyped(GMEM)

    def finish(self, w: Writer, row: Value, tile: Tile, batches: Value) -> None:
        """Count a fragment's rows of a tile; the last of those that share its columns stores what they combine to."""
        lane = w.lane()
        groups = (self._pieces + (GROUP - 1)) // GROUP
        block = w.broadcast(row // self._layout.fragment.rows, lane=0)
        group = block // GROUP
        batch = tile.batch if isinstance(tile.batch, Value) and self._raster.batched else None
        matrix: Value | int = batch if batch is not None else 0
        columns = self._width // self._raster.tile_n
        strip = tile.column // self._raster.tile_n
        counters = (groups + 1) * matrix if batch is not None else None
        mine = group if counters is None else group + counters
        last = groups if counters is None else groups + counters
        first = group * GROUP
        left = self._pieces - first
        expected = w.minimum(left, GROUP)
        counter = self._counters + w.widen_multiply(mine * columns + strip, 4)
        results = self._pieces * batches + (group if batch is None else group + groups * batch)
        warps = expected if self._layout.side_by_side == 1 else expected * self._layout.side_by_side
        with w.when(count(w, counter.retyped(GMEM)) + 1 == warps):
            acquire(w)
            start = first if batch is None else first + self._pieces * batch
            for column, total in self._gathered(w, start, expected, tile.column, lane):
                at = self._at(w, results, column)
                w.isa.memory.store_global_f32(address=at, value=total, valid=column < self._width)
            reset(w, counter.retyped(GMEM))
            w.warp_sync()
            counter = self._counters + w.widen_multiply(last * columns + strip, 4)
            with w.when(count(w, counter.retyped(GMEM)) + 1 == groups):
                acquire(w)
                start = self._pieces * batches if batch is None else self._pieces * batches + groups * batch
                for column, total in self._gathered(w, start, groups, tile.column, lane):
                    stored = column if batch is None else column + self._columns * batch
                    out = (self._out + w.widen_multiply(stored, 4)).retyped(GMEM)
                    w.isa.memory.store_global_f32(address=out, value=total, valid=column < self._columns)
                reset(w, counter.retyped(GMEM))

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
