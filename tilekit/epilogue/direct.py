"""Epilogue straight from registers: for outputs the copy engine cannot write (not in multiples of 16 bytes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.elements import load_element, store_element, store_elements
from tilekit.epilogue.fusion import Fusion, enter, reducing, require_element, require_fusion
from tilekit.tile_op.accumulator_fragments import FOUR
from tilekit.tile_op.accumulators import AccumulatorLayout, AccumulatorTile, Warpgroup, require_layout
from tilekit.tiles.tile import Side, Tile

COLUMNS_AT_ONCE = 64
"""Columns read from the accumulators together, where they are not in registers already."""

MOST_AT_ONCE = 16
"""Bytes of neighbours of a row that are stored at once."""


@component
class DirectEpilogue:
    """Every thread stores its own elements, predicated by the output's bounds.

    Parameters
    ----------
    w
        The writer; address, row pitch and batch pitch (elements) become kernel parameters.
    layout
        How a warpgroup holds the accumulators.
    functions
        What is done with each element.
    out
        Output type.
    rows, columns
        M and N.
    batched
        Whether tiles have a batch index.
    source
        What the call names the matrix that the functions combine elements with, where they do.
    transposed
        Whether the accumulators hold the transpose of the output.
    wide
        Whether address, pitches and rows of the output are multiples of 16 bytes: then a thread stores neighbours of a
        row that it has at once, up to 16 bytes of them.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for functions that do not fit.
    """

    side: ClassVar[Side] = "rows"
    """Along what of a tile the accumulators' rows go."""

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Annotated[Fusion, OWN_RULE],
        *,
        out: DType,
        rows: Value,
        columns: Value,
        batched: bool = False,
        source: str = "c",
        transposed: bool = False,
        wide: bool = False,
    ) -> None:
        readable = getattr(functions, "source", None)  # threads read any second matrix themselves
        require_fusion(functions, type(self).__name__, transposed=transposed, source=readable)
        self._layout = layout
        self._wide = min(layout.fragment.neighbours, MOST_AT_ONCE // out.bytes)
        rows_kind = _AsWideRows if wide else _AsRows
        self._kind: type[_AsRows | _AsColumns] = _AsColumns if transposed else rows_kind
        self._functions = functions
        self._out = out
        self._rows = rows
        self._columns = columns
        self._batched = batched
        w.uses(self, "out", "d", dtype=out)
        w.uses(self, "transposed", "d", along="nm" if transposed else "mn")
        self._address = w.parameter("d", GMEM, lambda call: call.address("d"))
        self._row_pitch = w.parameter("row_pitch", U32, lambda call: call.matrix("d").row_pitch)
        self._batch_pitch = None
        if batched:
            self._batch_pitch = w.parameter("batch_pitch", U32, lambda call: call.matrix("d").matrix_pitch)
        self._source = functions.source
        if self._source is not None:
            w.uses(self, "source", source, dtype=self._source, along="matrix")
            self._source_address = w.parameter("residual", GMEM, lambda call: call.address(source))
            self._source_pitch = w.parameter("residual_pitch", U32, lambda call: call.matrix(source).row_pitch)
            self._source_batch_pitch = None
            if batched:
                self._source_batch_pitch = w.parameter(
                    "residual_batch_pitch", U32, lambda call: call.matrix(source).matrix_pitch
                )

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: the threads load and store for themselves."""

    @checked
    def bind(self, w: Writer, group: Warpgroup) -> BoundDirectEpilogue:
        """Prepare a thread's coordinates; once a role."""
        return BoundDirectEpilogue(w, self, group)

    def placed(self, w: Writer, rows: list[Value], tile: Tile) -> list[tuple[Value, Value]] | None:
        """Where rows of a tile lie, and whether the output has them; None where they follow each other."""
        return None


class BoundDirectEpilogue:
    """A `DirectEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: DirectEpilogue, group: Warpgroup) -> None:
        self._e = epilogue
        epilogue._functions.bind(w)
        layout, thread = epilogue._layout, group.thread
        first, left = layout.place(group.part)
        row, column = layout.corner(w, thread)
        self._row = first + row + layout.fragment.row(thread)
        self._column = layout.fragment.column(thread) + column
        if isinstance(left, Value):
            self._column = self._column + left

    @checked
    def store(self, w: Writer, accumulators: AccumulatorTile, tile: Tile) -> None:
        """Convert and store this thread's elements of `tile`."""
        e, layout = self._e, self._e._layout
        require_layout("DirectEpilogue", layout, accumulators)
        fragment = layout.fragment
        matrix = _Matrix(w, e, tile)
        lefts = range(0, layout.columns, COLUMNS_AT_ONCE)
        totals, first_pair = reducing(e._functions), None
        enter(w, e._functions, tile)
        if totals is not None:
            totals.begin_tile(w)
        for block in range(layout.blocks):
            held: list[_AsColumns | _AsRows] = []
            for part in range(layout.fragments):
                first = layout.row_of(block) + part * fragment.rows
                rows = [tile.row + self._row + (first + fragment.apart * half) for half in range(2)]
                held.append(e._kind(w, matrix, rows, fragment.apart))
            first_pair = first_pair or held[0]
            for left in lefts:
                columns = min(COLUMNS_AT_ONCE, layout.columns - left)
                fragments = accumulators.read(w, block, left, columns)
                if block == layout.blocks - 1 and left == lefts[-1]:
                    accumulators.done(w)
                for pair, registers in zip(held, fragments, strict=True):
                    for four in range(0, len(registers) // FOUR, pair.fours):
                        column = tile.column + layout.column_of(left + fragment.left(four)) + self._column
                        pair.store(w, registers[FOUR * four : FOUR * (four + pair.fours)], column)
            for pair in held:
                pair.finish(w, tile)
        if totals is not None and first_pair is not None:
            totals.finish_tile(w, first_pair.known, tile)

    def finish(self, w: Writer) -> None:
        """Nothing of its own is in flight: the stores are the threads'."""
        totals = reducing(self._e._functions)
        if totals is not None:
            totals.finish(w)


@dataclass(frozen=True)
class _Line:
    """A row of the output in a thread's hands.

    Attributes
    ----------
    start, source
        Where it begins, and where that of the second matrix does.
    inside
        Whether the output has it.
    """

    start: Value
    source: Value | None
    inside: Value


@dataclass(frozen=True)
class _Known:
    """What two rows and two columns need."""

    rows: Any
    columns: Any


class _Matrix:
    """The output's matrix of a tile, and the second one.

    Attributes
    ----------
    wide
        Neighbours of a row that are stored at once.
    """

    def __init__(self, w: Writer, epilogue: DirectEpilogue, tile: Tile) -> None:
        self._e = e = epilogue
        self.wide = e._wide
        self._tile, self._batch = tile, tile.batch
        self._start = _start(w, e._address, tile, e._batch_pitch, e._out)
        # Rows of a group end where the group does.
        self._rows = e._rows if tile.row_end is None else tile.row_end
        self._source = None
        if e._source is not None:
            self._source = _start(w, e._source_address, tile, e._source_batch_pitch, e._source)

    def lines(self, w: Writer, rows: list[Value]) -> list[_Line]:
        """Find rows of it."""
        e = self._e
        placed = e.placed(w, rows, self._tile)
        if placed is not None:
            rows = [row for row, _ in placed]
        starts = [self._start + w.widen_multiply(row, e._row_pitch) * e._out.bytes for row in rows]
        sources: list[Value | None] = [None for _ in rows]
        if self._source is not None and e._source is not None:
            size = e._source.bytes
            sources = [self._source + w.widen_multiply(row, e._source_pitch) * size for row in rows]
        inside = [row < self._rows for row in rows] if placed is None else [own for _, own in placed]
        return [_Line(*line) for line in zip(starts, sources, inside, strict=True)]

    def row_pair(self, w: Writer, row: Value, *, apart: int) -> Any:
        """What rows `row` and ``row + apart`` need."""
        return self._e._functions.rows(w, row, apart=apart, batch=self._batch)

    def column_pair(self, w: Writer, column: Value, *, apart: int) -> Any:
        """What columns `column` and ``column + apart`` need."""
        return self._e._functions.columns(w, column, apart=apart, batch=self._batch)

    def finish_rows(self, w: Writer, pair: Any, tile: Tile) -> None:
        """All elements of a pair of rows in the tile are stored."""
        self._e._functions.finish_rows(w, pair, tile)

    def store(self, w: Writer, value: Value, known: _Known, which: tuple[int, int], line: _Line, column: Value) -> None:
        """Apply the functions to the accumulator in row and column `which` of the known ones, and store it."""
        e = self._e
        address = line.start + w.widen_multiply(column, e._out.bytes)
        valid = line.inside & (column < e._columns)
        value = self.apply(w, value, known, which, line, column, valid)
        store_element(w, e._out, address=address.retyped(GMEM), value=value, valid=valid)

    def inside(self, line: _Line, column: Value) -> Value:
        """Whether the output has an element."""
        return line.inside & (column < self._e._columns)

    def store_wide(self, w: Writer, values: list[Value], line: _Line, column: Value, valid: Value) -> None:
        """Store neighbours of a row, from `column` on, all of which the output has, or none."""
        e = self._e
        address = line.start + w.widen_multiply(column, e._out.bytes)
        store_elements(w, e._out, address=address.retyped(GMEM), values=values, valid=valid)

    def apply(
        self,
        w: Writer,
        value: Value,
        known: _Known,
        which: tuple[int, int],
        line: _Line,
        column: Value,
        valid: Value,
    ) -> Value:
        """What the functions make of the accumulator in row and column `which` of the known ones, if it is `valid`."""
        e = self._e
        old = None
        if line.source is not None and e._source is not None:
            beside = (line.source + w.widen_multiply(column, e._source.bytes)).retyped(GMEM)
            old = load_element(w, e._source, address=beside, valid=valid)
        row, place = which
        made = e._functions.apply(w, value, known.columns, place, known.rows, row, old)
        require_element(f"{type(e._functions).__name__}.apply", made)
        return made


class _AsRows:
    """A thread's two accumulator rows of a fragment: rows of the output.

    Attributes
    ----------
    fours
        Fours of accumulators that are stored together.
    known
        What the functions have of the two.
    """

    fours = 1

    def __init__(self, w: Writer, matrix: _Matrix, rows: list[Value], apart: int) -> None:
        self._matrix = matrix
        self._lines = matrix.lines(w, rows)
        self.known = matrix.row_pair(w, rows[0], apart=apart)

    def store(self, w: Writer, four: RegisterTile, column: Value) -> None:
        """Store the accumulators of `column` and the one after it."""
        known = _Known(self.known, self._matrix.column_pair(w, column, apart=1))
        for index, value in enumerate(four):
            half, odd = divmod(index, 2)
            self._matrix.store(w, value, known, (half, odd), self._lines[half], column + odd)

    def finish(self, w: Writer, tile: Tile) -> None:
        """All columns of the rows are stored."""
        self._matrix.finish_rows(w, self.known, tile)


class _AsWideRows(_AsRows):
    """The same where neighbours of a row that a thread has are stored at once."""

    def __init__(self, w: Writer, matrix: _Matrix, rows: list[Value], apart: int) -> None:
        super().__init__(w, matrix, rows, apart)
        self._wide = matrix.wide
        self.fours = self._wide // 2

    def store(self, w: Writer, four: RegisterTile, column: Value) -> None:
        """Store the accumulators of `column` and of those after it."""
        rows: tuple[list[Value], list[Value]] = [], []
        valid = [self._matrix.inside(line, column) for line in self._lines]
        for first in range(0, self._wide, 2):
            known = _Known(self.known, self._matrix.column_pair(w, column + first, apart=1))
            for index, value in enumerate(four[2 * first : 2 * first + FOUR]):
                half, odd = divmod(index, 2)
                where = self._lines[half], column + (first + odd), valid[half]
                rows[half].append(self._matrix.apply(w, value, known, (half, odd), *where))
        for line, values, inside in zip(self._lines, rows, valid, strict=True):
            self._matrix.store_wide(w, values, line, column, inside)


class _AsColumns:
    """The same as columns of the output, of which the accumulators hold the transpose."""

    fours = 1

    def __init__(self, w: Writer, matrix: _Matrix, rows: list[Value], apart: int) -> None:
        self._matrix = matrix
        self._columns = rows
        self.known = matrix.column_pair(w, rows[0], apart=apart)

    def store(self, w: Writer, four: RegisterTile, column: Value) -> None:
        """Store the accumulators of `column` and the one after it, which are rows of the output."""
        lines = self._matrix.lines(w, [column, column + 1])
        known = _Known(self._matrix.row_pair(w, column, apart=1), self.known)
        for index, value in enumerate(four):
            half, odd = divmod(index, 2)
            self._matrix.store(w, value, known, (odd, half), lines[odd], self._columns[half])

    def finish(self, w: Writer, tile: Tile) -> None:
        """Nothing is left to do with rows of the output, which are spread over the warp."""


def _start(w: Writer, address: Value, tile: Tile, batch_pitch: Value | None, dtype: DType) -> Value:
    """Address of the tile's matrix in a batch of them."""
    if batch_pitch is None or not isinstance(tile.batch, Value):
        return address
    return address + w.widen_multiply(tile.batch, batch_pitch) * dtype.bytes
