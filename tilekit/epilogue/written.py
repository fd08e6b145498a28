"""The graph of a Python epilogue, traced for each element: a `Fusion` like any other.

A step is computed as seldom as it can be: what follows from scalars alone once a role, what follows from a row's or a
column's operands once for each pair of them, and the rest for each element.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, cast

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import illegal
from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import GMEM, S32, U32
from tilekit.assembly.uses import Along
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.emulator.core.errors import shown
from tilekit.epilogue.column_totals import ColumnTotal, ColumnTotals
from tilekit.epilogue.elements import load_element, store_element
from tilekit.epilogue.functions import ACTIVATIONS, Elementwise, ElementwiseSpec
from tilekit.epilogue.graph import Step
from tilekit.epilogue.grouped_column_totals import GroupedColumnTotals
from tilekit.epilogue.python import EpilogueCall, EpilogueFunction
from tilekit.epilogue.row_sums import RowSums
from tilekit.epilogue.spread import spread_column, taken
from tilekit.epilogue.totals import Tiles, Totals, Uncounted
from tilekit.epilogue.vectors import Vector
from tilekit.epilogue.written_lines import Columns, Line, Rows, Spread
from tilekit.epilogue.written_operands import ReachedMatrix
from tilekit.epilogue.written_spec import Level, Place, Where, WrittenSpec
from tilekit.epilogue.written_steps import Argument, compute
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.tile import Groups, Tile

STORED = (BF16, F16, F32, E4M3, E5M2)
"""Element types of further matrices."""

_ALONG: Final[dict[Where, Along]] = {"scalar": "scalar", "row": "rows", "column": "columns", "matrix": "matrix"}


@component
class Written:
    """A `WrittenSpec`, traced.

    Parameters
    ----------
    w
        The writer; operands, further outputs and totals become kernel parameters: ``operand0``, ``output1``,
        ``total0``.
    spec
        What to compute.
    columns, rows
        N, and M where rows have anything of their own.
    precise
        Whether the result keeps more than 16 bits.
    batched
        Whether tiles have a batch index.
    layout, tiles
        For totals: how a warpgroup holds the accumulators, and the tiles.
    groups
        How groups of rows are told, where there are any. Of counted ones operands and further outputs are those of a
        batch with a matrix a group, and rows are a group's.
    names
        What the call names the operands; ``operand0`` and so on if there are none.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for rows without M and totals without a layout or tiles; ``TK-PART-001`` for names that are too
        few or too many.
    """

    def __init__(
        self,
        w: Writer,
        spec: WrittenSpec,
        *,
        columns: Value,
        precise: bool,
        rows: Value | None = None,
        batched: bool = False,
        layout: AccumulatorLayout | None = None,
        tiles: Tiles | None = None,
        groups: Groups | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if spec.scale_a and rows is None:
            raise TraceError(
                f"Written(rows=None): {spec.graph.name} has operands or results of rows; pass rows, which is M",
                code="TK-EPI-001",
            )
        if spec.reduces and (layout is None or tiles is None):
            given = "layout" if layout is None else "tiles"
            raise TraceError(
                f"Written({given}=None): {spec.graph.name} has totals; pass the op's layout, and the raster as tiles",
                code="TK-EPI-001",
            )
        if names and len(names) != len(spec.places):
            raise illegal("Written", "names", names, f"a name for each of {len(spec.places)} operands, or none")
        self._spec = spec
        self._names = tuple(names) or tuple(f"operand{index}" for index in range(len(spec.places)))
        self._graph = spec.graph
        self._levels = spec.levels()
        self._grouped = groups is not None
        self._rows, self._columns = rows, columns
        self._batched = batched or groups == "counts"
        self._tile: Tile | None = None
        self._group_rows = None
        if groups == "counts" and spec.scale_a:
            self._group_rows = w.parameter("epilogue_group_rows", U32, lambda call: call.number("group_rows"))
        # What is kept in 32 bits is worth the exact functions. Totals alone are not: an approximation is four times as
        # close as the rounding of the elements that are kept, and of gelu it is one operation instead of two.
        exact = precise or F32 in spec.outputs
        self._activations: dict[str, Elementwise] = {
            name: Elementwise(w, ElementwiseSpec(activation=name), columns=columns, precise=exact)
            for name in ACTIVATIONS
        }
        self._exact = exact
        self._numbers: dict[int, Value] = {}
        self._pitches: dict[int, Value] = {}
        self._vectors: dict[int, Vector] = {}
        self._matrices: dict[int, ReachedMatrix] = {}
        self._shared: dict[int, Value] = {}
        for step in self._graph.steps:
            if step.does == "operand":
                self._declare(w, int(step.value or 0), step)
        for index, dtype in enumerate(spec.outputs, 1):
            w.uses(self, "outputs", f"output{index}", dtype=dtype, along="matrix")
        self._outputs = [
            ReachedMatrix.declare(w, f"output{index}", dtype, batched=self._batched)
            for index, dtype in enumerate(spec.outputs, 1)
        ]
        self._row_totals: dict[int, RowSums] = {}
        self._column_totals: dict[int, ColumnTotals] = {}
        for index, total in enumerate(self._graph.totals):
            raster, name = cast(Tiles, tiles), f"total{index}"
            layout = cast(AccumulatorLayout, layout)
            if total.along == "row":
                self._row_totals[index] = RowSums(
                    w, name, layout=layout, raster=raster, combine=total.combine, grouped=groups is not None
                )
            else:
                kind = ColumnTotals if groups is None else GroupedColumnTotals
                made = kind(w, name, layout=layout, raster=raster, combine=total.combine)
                self._column_totals[index] = made

    @classmethod
    def of(
        cls,
        w: Writer,
        function: EpilogueFunction,
        places: Mapping[str, Place],
        *,
        outputs: Sequence[DType] = (),
        columns: Value,
        rows: Value | None = None,
        precise: bool = False,
        batched: bool = False,
        layout: AccumulatorLayout | None = None,
        tiles: Tiles | None = None,
        groups: Groups | None = None,
    ) -> Written:
        """Trace a function that `tilekit.epilogue` marks in a kernel of your own.

        Parameters
        ----------
        w, columns, rows, precise, batched, layout, tiles, groups
            As for the class; a raster is `tiles`.
        function
            The function.
        places
            Where the elements of each operand are, by their names, which the call has too.
        outputs
            Element types of further matrices, ``output1`` and so on.

        Raises
        ------
        TraceError
            ``TK-EPI-001`` for operands without a place and outputs without a type; what the class raises.
        """
        if not isinstance(function, EpilogueFunction):
            called = isinstance(function, EpilogueCall)
            given = f"{function.function.name}(...), called" if called else shown(function)
            nearest = function.function.name if called else "@tilekit.epilogue above its def"
            legal = "a function that tilekit.epilogue marks, not called: its operands are the kernel's"
            raise TraceError(f"Written.of({given}); legal: {legal}; nearest: {nearest}", code="TK-EPI-001")
        for name in places:
            if name not in function.operands:
                near = difflib.get_close_matches(name, function.operands, 1, 0.0)
                raise TraceError(
                    f"Written.of({function.name}) has no operand {name!r}; it has "
                    f"{', '.join(function.operands) or 'none'}" + (f"; nearest: {near[0]}" if near else ""),
                    code="TK-EPI-001",
                )
        missing = [name for name in function.operands if name not in places]
        if missing:
            raise TraceError(
                f"Written.of({function.name}) lacks the places of {', '.join(missing)}; give a Place of each operand",
                code="TK-EPI-001",
            )
        graph = function.graph({})
        further = len(graph.outputs) - 1
        if (
            not isinstance(outputs, (tuple, list))
            or len(outputs) != further
            or any(one not in STORED for one in outputs)
        ):
            raise TraceError(
                f"Written.of({function.name}, outputs={shown(outputs)}): it returns {further} matrices beside the "
                f"result; legal: as many element types of {', '.join(map(str, STORED))}",
                code="TK-EPI-001",
            )
        spec = WrittenSpec(graph, tuple(places[name] for name in function.operands), tuple(outputs))
        return cls(
            w,
            spec,
            columns=columns,
            precise=precise,
            rows=rows,
            batched=batched,
            layout=layout,
            tiles=tiles,
            groups=groups,
            names=function.operands,
        )

    def _declare(self, w: Writer, index: int, step: Step) -> None:
        """Declare an operand's kernel parameters."""
        place, name = self._spec.places[index], self._names[index]
        if place.where == "source" or place.dtype is None:
            if place.where == "number":
                if step.kind == "f32":
                    self._numbers[index] = w.parameter(name, F32_REGISTER, lambda call: call.number(name))
                else:
                    bits = w.parameter(name, U32, lambda call: int(call.number(name)) & 0xFFFFFFFF)
                    self._numbers[index] = bits.retyped(S32)
            return
        w.uses(self, "places", name, dtype=place.dtype, along=_ALONG[place.where])
        if place.where == "matrix":
            self._matrices[index] = ReachedMatrix.declare(w, name, place.dtype, batched=place.batched)
            return
        if place.where == "scalar":
            self._numbers[index] = w.parameter(name, GMEM, lambda call: call.address(name))
            if place.batched:
                pitch = f"{name}_batch_pitch"
                self._pitches[index] = w.parameter(pitch, U32, lambda call: call.number(pitch))
            return
        rows = cast(Value, self._rows) if self._group_rows is None else self._group_rows
        extent = self._columns if place.where == "column" else rows
        self._vectors[index] = Vector.declare(w, name, place.dtype, extent, batched=place.batched)

    @property
    def source(self) -> DType | None:
        """Element type of the matrix that the epilogue brings, if there is one."""
        return self._spec.residual

    @property
    def uses_rows(self) -> bool:
        """Whether rows have anything of their own."""
        return self._spec.scale_a

    @property
    def reduces_rows(self) -> bool:
        """Whether elements are combined."""
        return self._spec.reduces

    def bind(self, w: Writer) -> None:
        """Compute what all elements share; once a role, after the kernels before this one are complete."""
        self._shared = {}
        for index, place in enumerate(self._spec.places):
            if place.where == "scalar" and not place.batched and index in self._numbers:
                self._scalars[index] = self._scalar(w, cast(DType, place.dtype), self._numbers[index])
            elif place.where == "number" and index in self._numbers:
                self._scalars[index] = self._numbers[index]
        self._evaluate(w, "shared", self._shared)
        totals: list[Totals] = [*self._row_totals.values(), *self._column_totals.values()]
        if totals:
            self._uncounted = Uncounted(w, totals, grouped=self._grouped)

    def _scalar(self, w: Writer, dtype: DType, address: Value) -> Value:
        """The element at `address`."""
        if dtype is F32:
            return w.isa.memory.load_global_scalar(address=address)  # type: ignore[no-any-return]
        return load_element(w, dtype, address=address, valid=self._columns == self._columns)

    def _of_row(self, w: Writer, index: int, row: Value, batch: Operand) -> Value:
        """An operand's element for a row, or for the matrix that the row is in."""
        if index in self._vectors:
            return self._vectors[index].load(w, row, batch)
        dtype, address = cast(DType, self._spec.places[index].dtype), self._numbers[index]
        if isinstance(batch, Value):
            address = (address + w.widen_multiply(batch, self._pitches[index]) * dtype.bytes).retyped(GMEM)
        return self._scalar(w, dtype, address)

    @property
    def _scalars(self) -> dict[int, Value]:
        """Operands that all elements share."""
        found: dict[int, Value] = self.__dict__.setdefault("_scalar_values", {})
        return found

    def enter(self, w: Writer, tile: Tile) -> None:
        """Rows from now on are those of `tile`."""
        self._tile = tile
        for total in self._column_totals.values():
            total.enter(tile)

    def rows(self, w: Writer, row: Value, *, apart: int, batch: Operand = 0) -> Rows:
        """Compute what rows `row` and ``row + apart`` need (of what lies beyond M: zeros)."""
        first = self._row(w, row, batch)
        lines = first, (self._row(w, row + apart, batch) if apart else first)
        totals = {index: total.begin(w, row, apart=apart, batch=batch) for index, total in self._row_totals.items()}
        return Rows(lines, batch, totals)

    def _row(self, w: Writer, row: Value, batch: Operand) -> Line:
        values: dict[int, Value] = dict(self._shared)
        own = row  # in its matrix: of a batch, or of a group that is counted
        if self._group_rows is not None:
            own = row - batch * self._group_rows
        for place, step in enumerate(self._graph.steps):
            if step.does == "operand" and self._levels[place] == "row":
                values[place] = self._of_row(w, int(step.value or 0), own, batch)
            elif step.does == "row":
                values[place] = own.retyped(S32)
            elif step.does == "batch":
                index = batch if isinstance(batch, Value) and self._batched else w.constant(U32, 0)
                values[place] = index.retyped(S32)
        self._evaluate(w, "row", values)
        reached = [*self._matrices.values(), *self._outputs]
        starts = {matrix.name: matrix.start(w, own, batch) for matrix in reached}
        end = self._rows if self._tile is None or self._tile.row_end is None else self._tile.row_end
        inside = row < end if end is not None and (reached or self._spec.reduces) else None
        return Line(values, row, inside, starts)

    def columns(self, w: Writer, column: Value, *, apart: int = 1, batch: Operand = 0) -> Columns:
        """Compute what columns `column` and ``column + apart`` need (of what lies beyond N: zeros)."""
        first = self._column(w, column, batch)
        lines = first, (self._column(w, column + apart, batch) if apart else first)
        return Columns(lines, self._column_pieces(w, column, apart, batch))

    def _column_pieces(self, w: Writer, column: Value, apart: int, batch: Operand) -> dict[int, ColumnTotal]:
        """Begin the totals of two columns."""
        return {index: one.begin(w, column, apart=apart, batch=batch) for index, one in self._column_totals.items()}

    def _column(self, w: Writer, column: Value, batch: Operand) -> Line:
        values = self._of_column(w, column, batch)
        return Line(values, column, column < self._columns if self._asks_inside else None)

    def _of_column(
        self, w: Writer, column: Value, batch: Operand, operands: dict[int, Value] | None = None
    ) -> dict[int, Value]:
        """What a column needs; its operands are loaded where they are not given."""
        values = {**self._shared, **(operands or {})}
        for place, step in enumerate(self._graph.steps):
            if step.does == "operand" and self._levels[place] == "column" and operands is None:
                values[place] = self._vectors[int(step.value or 0)].load(w, column, batch)
            elif step.does == "column":
                values[place] = column.retyped(S32)
        self._evaluate(w, "column", values)
        return values

    @property
    def _asks_inside(self) -> bool:
        """Whether an element asks if the output has its column."""
        return bool(self._matrices or self._outputs or self._spec.reduces)

    @property
    def spreads(self) -> bool:
        """Whether columns have values of their own, or their place is asked."""
        return self._asks_inside or any(place.where == "column" for place in self._spec.places)

    def spread(self, w: Writer, column: Value, *, batch: Operand = 0) -> Spread:
        """Compute what two columns a lane need, of those from `column` on."""
        carried, computed = self._spec.of_columns()
        mine, values = spread_column(w, column), {}
        if computed:
            left, right = (self._of_column(w, one, batch) for one in (mine, mine + 1))
            values = {place: (left[place], right[place]) for place in carried}
        else:
            for place in carried:
                values[place] = self._vectors[int(self._graph.steps[place].value or 0)].pair(w, mine, 1, batch)
        room = None
        if self._asks_inside:
            first = column + (w.lane() & 3) * 2
            room = w.select(first < self._columns, self._columns - first, 0, U32)
        return Spread(values, batch, room)

    def spread_pair(self, w: Writer, spread: Spread, at: int, column: Value) -> Columns:
        """Take what this lane's columns `at` need from those that have it."""
        _, computed = self._spec.of_columns()
        pairs = {place: taken(w, held, at) for place, held in spread.values.items()}
        inside = None if spread.room is None else spread.room > at  # so of both: N is even
        lines = []
        for which, one in enumerate((column, column + 1)):
            values = {place: pair[which] for place, pair in pairs.items()}
            if computed:
                numbers = [place for place, step in enumerate(self._graph.steps) if step.does == "column"]
                values = {**self._shared, **values, **dict.fromkeys(numbers, one.retyped(S32))}
            else:
                values = self._of_column(w, one, spread.batch, values)
            lines.append(Line(values, one, inside))
        return Columns((lines[0], lines[1]), self._column_pieces(w, column, 1, spread.batch))

    def apply(
        self,
        w: Writer,
        value: Value,
        columns: Columns,
        column: int,
        rows: Rows | None,
        row: int,
        source: Value | None = None,
    ) -> Value:
        """Return the output value of an accumulator; store what else is stored of it, and add it to totals."""
        down = columns.lines[column]
        along = rows.lines[row] if rows is not None else None
        values = {**(along.values if along is not None else {}), **down.values}
        valid = None
        if along is not None and along.inside is not None and down.inside is not None:
            valid = along.inside & down.inside
        for place, step in enumerate(self._graph.steps):
            if step.does == "accumulator":
                values[place] = value
            elif step.does == "operand" and self._levels[place] == "element":
                index = int(step.value or 0)
                matrix = self._matrices.get(index)
                if matrix is None:
                    assert source is not None, "a source that the epilogue does not bring"
                    values[place] = source
                else:
                    assert along is not None, "a matrix without rows"
                    assert valid is not None, "a matrix without bounds"
                    address = matrix.at(w, along.starts[matrix.name], down.index)
                    values[place] = load_element(w, matrix.dtype, address=address, valid=valid)
        self._evaluate(w, "element", values)
        for matrix, place in zip(self._outputs, self._graph.outputs[1:], strict=True):
            assert along is not None, "an output without rows"
            assert valid is not None, "an output without bounds"
            address = matrix.at(w, along.starts[matrix.name], down.index)
            store_element(w, matrix.dtype, address=address, value=self._result(w, place, values), valid=valid)
        for index, total in enumerate(self._graph.totals):
            element = self._result(w, total.step, values)
            assert rows is not None, "a total without rows"
            assert valid is not None, "a total without bounds"
            if index in self._row_totals:
                assert down.inside is not None, "a total without columns"
                rows.totals[index].add(w, row, element, down.index, down.inside)
            else:
                self._column_totals[index].add(
                    w,
                    columns.totals[index],
                    column,
                    element,
                    valid,
                    row=rows.lines[0].index,
                    batch=rows.batch if self._batched or self._grouped else 0,
                )
        return self._result(w, self._graph.outputs[0], values)

    def finish_rows(self, w: Writer, rows: Rows | None, tile: Tile) -> None:
        """Leave the totals of a pair of rows in this tile behind; pieces of columns are left as they are complete."""
        if rows is not None:
            for index, total in self._row_totals.items():
                total.finish_rows(w, rows.totals[index], tile)

    def begin_tile(self, w: Writer) -> None:
        """Count what totals left of the tile before."""
        self._uncounted.begin_tile(w)

    def finish_tile(self, w: Writer, rows: Rows, tile: Tile) -> None:
        """Go on to the tile after this one."""
        self._uncounted.finish_tile(w, rows.lines[0].index, tile)

    def finish(self, w: Writer) -> None:
        """Count what totals left of the last tile."""
        self._uncounted.finish(w)

    def _result(self, w: Writer, place: int, values: dict[int, Value]) -> Value:
        """What a step has come to, also where it is a constant."""
        step = self._graph.steps[place]
        return w.constant(F32_REGISTER, step.number) if step.does == "constant" else values[place]

    # -- steps --------------------------------------------------------------------------------------------------------

    def _evaluate(self, w: Writer, level: Level, values: dict[int, Value]) -> None:
        """Compute the steps of a level; `values` has what they take."""
        for place, step in enumerate(self._graph.steps):
            if self._levels[place] == level and place not in values and step.does != "constant":
                values[place] = self._step(w, step, values)

    def _step(self, w: Writer, step: Step, values: dict[int, Value]) -> Value:
        if step.does == "operand":
            return self._scalars[int(step.value or 0)]
        taken = [self._graph.steps[place] for place in step.args]
        args = [
            Argument(one.number if one.does == "constant" else values[place], one.kind)
            for place, one in zip(step.args, taken, strict=True)
        ]
        return compute(w, step, args, activations=self._activations, precise=self._exact)
