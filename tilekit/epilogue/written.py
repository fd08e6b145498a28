"""The graph of a Python epilogue, traced for each element: a `Fusion` like any other.

A step is computed as seldom as it can be: what follows from scalars alone once a role, what follows from a row's or a
column's operands once for each pair of them, and the rest for each element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from tilekit.annotations import check_fields
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import GMEM, PRED, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F32, DType
from tilekit.epilogue.column_totals import ColumnTotal, ColumnTotals
from tilekit.epilogue.elements import load_element, store_element
from tilekit.epilogue.expression import Graph, Step
from tilekit.epilogue.functions import ACTIVATIONS, ColumnPair, Elementwise, ElementwiseSpec
from tilekit.epilogue.python import EpilogueFunction
from tilekit.epilogue.row_sums import RowSums, RowTotals, Tiles
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.tile import Tile

Where = Literal["number", "scalar", "row", "column", "matrix", "source"]
"""Of an operand: a number of the launch, one element in memory, one a row, one a column, one an element; a matrix that
the epilogue brings itself is its source."""

Level = Literal["shared", "row", "column", "element"]

LONG = 12
"""Steps of an element, with that of the product, beyond which an epilogue takes more registers."""

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


@dataclass(frozen=True)
class Place:
    """Where an operand's elements are.

    Attributes
    ----------
    where
        As its shape says.
    dtype
        Its element type; None for a number.
    batched
        Whether each matrix of a batch has its own.
    """

    where: Where
    dtype: DType | None = None
    batched: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class WrittenSpec:
    """A Python epilogue in a kernel's spec.

    Attributes
    ----------
    graph
        What is computed.
    places
        Of the function's operands, in their order.
    outputs
        Element types of the further matrices that are stored.
    """

    graph: Graph
    places: tuple[Place, ...]
    outputs: tuple[DType, ...] = ()
    scale: None = field(default=None, init=False)
    bias: None = field(default=None, init=False)
    biases: bool = field(default=False, init=False)
    activation: None = field(default=None, init=False)
    scale_b: bool = field(default=False, init=False)

    @property
    def residual(self) -> DType | None:
        """Element type of the matrix that the epilogue brings."""
        return next((place.dtype for place in self.places if place.where == "source"), None)

    @property
    def scale_a(self) -> bool:
        """Whether rows have anything of their own."""
        return self.visits_rows or any(place.where == "row" for place in self.places)

    @property
    def loads_matrices(self) -> bool:
        """Whether threads load elements of matrices."""
        return any(place.where == "matrix" for place in self.places)

    @property
    def visits_rows(self) -> bool:
        """Whether threads reach the rows of matrices by themselves, or make totals."""
        coordinates = self.graph.uses("row") or self.graph.uses("batch")
        return self.loads_matrices or coordinates or bool(self.outputs or self.graph.totals)

    @property
    def reduces(self) -> bool:
        """Whether rows or columns have totals."""
        return bool(self.graph.totals)

    @property
    def loads(self) -> bool:
        """Whether threads load anything."""
        return self.scale_a or any(place.where == "column" for place in self.places)

    @property
    def words(self) -> list[str]:
        """The function in a kernel's name."""
        kinds = "".join(
            {"number": "n", "scalar": "s", "row": "r", "column": "c", "matrix": "m", "source": "x"}[place.where]
            + (place.dtype.name if place.dtype else "")
            + ("b" if place.batched else "")
            for place in self.places
        )
        name = re.sub(r"[^A-Za-z0-9_]+", "_", self.graph.name).strip("_")
        return [name, self.graph.digest, kinds, *(dtype.name for dtype in self.outputs)]

    @property
    def long(self) -> bool:
        """Whether an element has many steps, of which a compiler keeps several elements' in flight."""
        return self.graph.uses("erf") or self.levels().count("element") > LONG

    def levels(self) -> tuple[Level, ...]:
        """How often each step is computed."""
        found: list[Level] = []
        for step in self.graph.steps:
            found.append(self._level(step, {found[arg] for arg in step.args}))
        return tuple(found)

    def _level(self, step: Step, args: set[Level]) -> Level:
        if step.does == "operand":
            where = self.places[int(step.value or 0)].where
            if where in ("row", "column"):
                return cast(Level, where)
            return "shared" if where in ("number", "scalar") else "element"
        if step.does in ("row", "batch"):
            return "row"
        if step.does == "column":
            return "column"
        if step.does == "accumulator" or "element" in args or {"row", "column"} <= args:
            return "element"
        return "row" if "row" in args else "column" if "column" in args else "shared"


@dataclass(frozen=True)
class Line:
    """A row or a column in a thread's hands.

    Attributes
    ----------
    values
        By the places of their steps.
    index
        Which one.
    inside
        Whether the output has it.
    starts
        Of a row: its address in each matrix that threads reach, by the matrix's name.
    """

    values: dict[int, Value]
    index: Value
    inside: Value | None = None
    starts: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Two rows, and their totals."""

    lines: tuple[Line, Line]
    batch: Operand
    totals: dict[int, RowTotals]


@dataclass(frozen=True)
class Columns:
    """Two columns, and the pieces of their totals."""

    lines: tuple[Line, Line]
    totals: dict[int, ColumnTotal]


@dataclass(frozen=True)
class _Matrix:
    """A matrix like the output that threads reach by their elements' coordinates."""

    name: str
    dtype: DType
    address: Value
    pitch: Value
    batch_pitch: Value | None

    @classmethod
    def declare(cls, w: Writer, name: str, dtype: DType, *, batched: bool) -> _Matrix:
        """Declare its kernel parameters."""
        address = w.parameter(name, GMEM, lambda call: call.address(name))
        pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)
        step = None
        if batched:
            step = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)
        return cls(name, dtype, address, pitch, step)

    def start(self, w: Writer, row: Value, batch: Operand) -> Value:
        """Where a row begins."""
        start = self.address
        if self.batch_pitch is not None and isinstance(batch, Value):
            start = start + w.widen_multiply(batch, self.batch_pitch) * self.dtype.bytes
        return start + w.widen_multiply(row, self.pitch) * self.dtype.bytes

    def at(self, w: Writer, start: Value, column: Value) -> Value:
        """Where an element of the row that begins at `start` lies."""
        return (start + w.widen_multiply(column, self.dtype.bytes)).retyped(GMEM)


@dataclass(frozen=True)
class _Line:
    """A vector of rows or columns."""

    address: Value
    dtype: DType
    extent: Value
    batch_pitch: Value | None

    def load(self, w: Writer, index: Value, batch: Operand) -> Value:
        """The element at `index`, 0 beyond the last."""
        start = self.address
        if self.batch_pitch is not None and isinstance(batch, Value):
            start = start + w.widen_multiply(batch, self.batch_pitch) * self.dtype.bytes
        address = (start + w.widen_multiply(index, self.dtype.bytes)).retyped(GMEM)
        return load_element(w, self.dtype, address=address, valid=index < self.extent)


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
    names
        What the call names the operands; ``operand0`` and so on if there are none.
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
        tiles: object = None,
        names: Sequence[str] = (),
    ) -> None:
        self._spec = spec
        self._names = tuple(names) or tuple(f"operand{index}" for index in range(len(spec.places)))
        self._graph = spec.graph
        self._levels = spec.levels()
        self._rows, self._columns = rows, columns
        self._batched = batched
        # What is added up, or kept in 32 bits, is worth the exact functions.
        exact = precise or spec.reduces or F32 in spec.outputs
        self._activations: dict[str, Elementwise] = {
            name: Elementwise(w, ElementwiseSpec(activation=name), columns=columns, precise=exact)
            for name in ACTIVATIONS
        }
        self._exact = exact
        self._numbers: dict[int, Value] = {}
        self._vectors: dict[int, _Line] = {}
        self._matrices: dict[int, _Matrix] = {}
        self._shared: dict[int, Value] = {}
        for step in self._graph.steps:
            if step.does == "operand":
                self._declare(w, int(step.value or 0), step)
        self._outputs = [
            _Matrix.declare(w, f"output{index}", dtype, batched=batched) for index, dtype in enumerate(spec.outputs, 1)
        ]
        self._row_totals: dict[int, RowSums] = {}
        self._column_totals: dict[int, ColumnTotals] = {}
        for index, total in enumerate(self._graph.totals):
            assert layout is not None, "totals of a layout that is not known"
            raster, name = cast(Tiles, tiles), f"total{index}"
            if total.along == "row":
                self._row_totals[index] = RowSums(w, name, layout=layout, raster=raster, combine=total.combine)
            else:
                made = ColumnTotals(w, name, layout=layout, raster=raster, combine=total.combine)
                self._column_totals[index] = made
        self._batches = None
        if self._column_totals:
            self._batches = w.parameter("batches", U32, lambda call: call.batches)

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
        tiles: object = None,
    ) -> Written:
        """Trace a function that `tilekit.epilogue` marks in a kernel of your own.

        Parameters
        ----------
        w, columns, rows, precise, batched, layout, tiles
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
            ``TK-EPI-001`` for operands without a place, and for rows without M.
        """
        missing = [name for name in function.operands if name not in places]
        if missing:
            raise TraceError(
                f"Written.of({function.name}) lacks the places of {', '.join(missing)}; give a Place of each operand",
                code="TK-EPI-001",
            )
        spec = WrittenSpec(function.graph({}), tuple(places[name] for name in function.operands), tuple(outputs))
        if spec.scale_a and rows is None:
            raise TraceError(
                f"Written.of({function.name}) has operands or results of rows: pass rows", code="TK-EPI-001"
            )
        return cls(
            w,
            spec,
            columns=columns,
            precise=precise,
            rows=rows,
            batched=batched,
            layout=layout,
            tiles=tiles,
            names=function.operands,
        )

    def _declare(self, w: Writer, index: int, step: Step) -> None:
        """Declare an operand's kernel parameters."""
        place, name = self._spec.places[index], self._names[index]
        if place.where == "source" or place.dtype is None:
            if place.where == "number":
                type_ = U32 if step.kind == "u32" else F32_REGISTER
                self._numbers[index] = w.parameter(name, type_, lambda call: call.number(name))
            return
        if place.where == "matrix":
            self._matrices[index] = _Matrix.declare(w, name, place.dtype, batched=place.batched)
            return
        address = w.parameter(name, GMEM, lambda call: call.address(name))
        if place.where == "scalar":
            self._numbers[index] = address
            return
        pitch = None
        if place.batched:
            pitch = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.number(f"{name}_batch_pitch"))
        extent = self._columns if place.where == "column" else cast(Value, self._rows)
        self._vectors[index] = _Line(address, place.dtype, extent, pitch)

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
            if place.where == "scalar" and index in self._numbers:
                address = self._numbers[index]
                dtype = cast(DType, place.dtype)
                if dtype is F32:
                    value = w.isa.memory.load_global_scalar(address=address)
                else:
                    always = self._columns == self._columns
                    value = load_element(w, dtype, address=address, valid=always)
                self._scalars[index] = value
            elif place.where == "number" and index in self._numbers:
                self._scalars[index] = self._numbers[index]
        self._evaluate(w, "shared", self._shared)

    @property
    def _scalars(self) -> dict[int, Value]:
        """Operands that all elements share."""
        found: dict[int, Value] = self.__dict__.setdefault("_scalar_values", {})
        return found

    def rows(self, w: Writer, row: Value, *, apart: int, batch: Operand = 0) -> Rows:
        """Compute what rows `row` and ``row + apart`` need (of what lies beyond M: zeros)."""
        first = self._row(w, row, batch)
        lines = first, (self._row(w, row + apart, batch) if apart else first)
        totals = {index: total.begin(w, row, apart=apart, batch=batch) for index, total in self._row_totals.items()}
        return Rows(lines, batch, totals)

    def _row(self, w: Writer, row: Value, batch: Operand) -> Line:
        values: dict[int, Value] = dict(self._shared)
        for place, step in enumerate(self._graph.steps):
            if step.does == "operand" and self._levels[place] == "row":
                values[place] = self._vectors[int(step.value or 0)].load(w, row, batch)
            elif step.does == "row":
                values[place] = row
            elif step.does == "batch":
                values[place] = batch if isinstance(batch, Value) and self._batched else w.constant(U32, 0)
        self._evaluate(w, "row", values)
        reached = [*self._matrices.values(), *self._outputs]
        starts = {matrix.name: matrix.start(w, row, batch) for matrix in reached}
        inside = row < self._rows if self._rows is not None and (reached or self._spec.reduces) else None
        return Line(values, row, inside, starts)

    def columns(self, w: Writer, column: Value, *, apart: int = 1, batch: Operand = 0) -> Columns:
        """Compute what columns `column` and ``column + apart`` need (of what lies beyond N: zeros)."""
        first = self._column(w, column, batch)
        lines = first, (self._column(w, column + apart, batch) if apart else first)
        totals = {
            index: total.begin(w, column, apart=apart, batch=batch) for index, total in self._column_totals.items()
        }
        return Columns(lines, totals)

    def _column(self, w: Writer, column: Value, batch: Operand) -> Line:
        values: dict[int, Value] = dict(self._shared)
        for place, step in enumerate(self._graph.steps):
            if step.does == "operand" and self._levels[place] == "column":
                values[place] = self._vectors[int(step.value or 0)].load(w, column, batch)
            elif step.does == "column":
                values[place] = column
        self._evaluate(w, "column", values)
        inside = column < self._columns if self._matrices or self._outputs or self._spec.reduces else None
        return Line(values, column, inside)

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
                rows.totals[index].add(w, row, element, down.inside)
            else:
                self._column_totals[index].add(
                    w,
                    columns.totals[index],
                    column,
                    element,
                    valid,
                    row=rows.lines[0].index,
                    batch=rows.batch if self._batched else 0,
                )
        return self._result(w, self._graph.outputs[0], values)

    def finish_rows(self, w: Writer, rows: Rows | None, tile: Tile) -> None:
        """Hand the totals of a pair of rows in this tile over."""
        if rows is None:
            return
        for index, total in self._row_totals.items():
            total.finish(w, rows.totals[index], tile)
        for column_total in self._column_totals.values():
            column_total.finish(w, rows.lines[0].index, tile, cast(Value, self._batches))

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
        args: list[Operand] = []
        for place in step.args:
            taken = self._graph.steps[place]
            args.append(taken.number if taken.does == "constant" else values[place])
        return compute(w, step, args, activations=self._activations, precise=self._exact)


def compute(w: Writer, step: Step, args: list[Operand], *, activations: dict[str, Elementwise], precise: bool) -> Value:
    """Trace one step."""
    elementwise, does = w.isa.elementwise, step.does
    if does in ACTIVATIONS:
        x = _value(w, args[0])
        return activations[does].apply(w, x, ColumnPair(), 0, None, 0)
    if does in _OPERATIONS:
        x = _value(w, args[0], whole=isinstance(args[0], int) or _whole(args))
        return cast(Value, getattr(x, _OPERATIONS[does])(args[1]))
    if does in _CALLS:
        name, operands = _CALLS[does]
        return cast(Value, getattr(elementwise, name)(**dict(zip(operands, args, strict=True))))
    match does:
        case "where":
            type_ = U32 if step.kind == "u32" else F32_REGISTER
            return w.select(_value(w, args[0]), args[1], args[2], type_)
        case "float":
            x = _value(w, args[0], whole=True)
            if x.type is PRED:
                return w.select(x, 1.0, 0.0, F32_REGISTER)
            return w.isa.convert.float_u32(whole=x)  # type: ignore[no-any-return]
        case "type":
            return _value(w, args[0])
        case "round":
            half = BF16.name == step.value
            pack = w.isa.convert.pack_bf16 if half else w.isa.convert.pack_f16
            widen = w.isa.convert.widen_bf16 if half else w.isa.convert.widen_f16
            low, _ = w.isa.convert.unpack(packed=pack(low=args[0], high=0.0))
            return widen(narrow=low)  # type: ignore[no-any-return]
    x = _value(w, args[0])
    match does:
        case "exp":
            return elementwise.exp2(x=x * LOG2_E)  # type: ignore[no-any-return]
        case "log":
            return cast(Value, elementwise.log2(x=x)) * LN_2
        case "sigmoid":
            if precise:
                return elementwise.sigmoid(x=x)  # type: ignore[no-any-return]
            return elementwise.fma(a=elementwise.tanh(x=x * 0.5), b=0.5, c=0.5)  # type: ignore[no-any-return]
        case "tanh":
            return _tanh(w, x, precise=precise)
        case "erf":
            return _erf(w, x)
    raise AssertionError(f"no way to compute {does}")


def _value(w: Writer, given: Operand, *, whole: bool = False) -> Value:
    """A number in a register."""
    return given if isinstance(given, Value) else w.constant(U32 if whole else F32_REGISTER, given)


def _whole(args: list[Operand]) -> bool:
    return any(isinstance(arg, Value) and arg.type is U32 for arg in args)


def _tanh(w: Writer, x: Value, *, precise: bool) -> Value:
    """tanh; to some units in the last place where `precise`: 2 sigmoid(2x) - 1, where digits cancel x - x^3 / 3."""
    elementwise = w.isa.elementwise
    if not precise:
        return elementwise.tanh(x=x)  # type: ignore[no-any-return]
    far = cast(Value, elementwise.fma(a=elementwise.sigmoid(x=x * 2.0), b=2.0, c=-1.0))
    near = cast(Value, elementwise.fma(a=x * x * -0.3333333333333333, b=x, c=x))
    return w.select(cast(Value, elementwise.absolute(x=x)) < 0.03, near, far, F32_REGISTER)


def _erf(w: Writer, x: Value) -> Value:
    """erf, with an absolute error of 2e-7 (Abramowitz and Stegun, 7.1.26)."""
    elementwise = w.isa.elementwise
    size = cast(Value, elementwise.absolute(x=x))
    t = cast(Value, elementwise.divide(a=1.0, b=elementwise.fma(a=size, b=0.3275911, c=1.0)))
    polynomial = w.constant(F32_REGISTER, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial = cast(Value, elementwise.fma(a=polynomial, b=t, c=coefficient))
    tail = polynomial * t * cast(Value, elementwise.exp2(x=x * x * -LOG2_E))
    positive = cast(Value, elementwise.fma(a=tail, b=-1.0, c=1.0))
    return w.select(x < 0.0, positive * -1.0, positive, F32_REGISTER)


_OPERATIONS = {
    "add": "__add__",
    "sub": "__sub__",
    "mul": "__mul__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "eq": "__eq__",
    "ne": "__ne__",
    "and": "__and__",
    "or": "__or__",
    "xor": "__xor__",
    "shl": "__lshift__",
    "shr": "__rshift__",
}
"""What a device value does by itself."""

_CALLS = {
    "div": ("divide", ("a", "b")),
    "max": ("maximum", ("a", "b")),
    "min": ("minimum", ("a", "b")),
    "abs": ("absolute", ("x",)),
    "exp2": ("exp2", ("x",)),
    "log2": ("log2", ("x",)),
    "sqrt": ("sqrt", ("x",)),
    "rsqrt": ("rsqrt", ("x",)),
}
"""Which fragment computes it."""
