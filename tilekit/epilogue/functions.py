"""Elementwise functions between accumulators and output: scales, bias, residual, activation, in that order, in f32."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

from tilekit.annotations import call_checked, check_fields
from tilekit.assembly.fit import component
from tilekit.assembly.legal import illegal
from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F16, F32, DType
from tilekit.epilogue.spread import spread_column, taken
from tilekit.epilogue.vectors import Pair, Vector
from tilekit.errors import ArgumentError
from tilekit.tiles.tile import Tile

Activation = Literal["relu", "gelu", "silu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "silu")

SQRT_2_PI = 0.7978845608028654
"""sqrt(2 / pi), of gelu's tanh form."""

ScaleKind = Literal["value", "pointer"]


@call_checked
@dataclass(frozen=True)
class ElementwiseSpec:
    """Which functions a kernel applies.

    Attributes
    ----------
    scale
        ``"value"``: multiply by an f32 parameter; ``"pointer"``: by one f32 in device memory; ``None``: not at all.
    bias
        Element type of a vector of N values added to every row, or ``None``.
    activation
        Applied last.
    residual
        Element type of a matrix like the output, of which ``beta`` times is added before the activation, or ``None``.
    scale_a, scale_b
        Multiply each row by an f32 of its own, and each column.
    biases
        Whether each matrix of a batch has a bias of its own.
    """

    scale: ScaleKind | None = None
    bias: DType | None = None
    activation: Activation | None = None
    residual: DType | None = None
    scale_a: bool = False
    scale_b: bool = False
    biases: bool = False
    visits_rows: ClassVar[bool] = False
    """Whether threads reach the rows of matrices by themselves: an epilogue's own components do."""
    reduces: ClassVar[bool] = False
    """Whether rows or columns have totals."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.scale not in (None, "value", "pointer"):
            raise ArgumentError.of("scale", self.scale, legal="None, 'value' or 'pointer'", code="TK-MM-018")
        if self.bias not in (None, BF16, F16, F32):
            raise ArgumentError.of("bias", self.bias, legal="None, bf16, f16 or f32", nearest=F32, code="TK-MM-017")
        if self.activation not in (None, *ACTIVATIONS):
            raise ArgumentError(
                f"activation={self.activation!r}: choose one of {', '.join(ACTIVATIONS)} or None"
                + _near(self.activation),
                code="TK-MM-005",
            )

    @property
    def loads(self) -> bool:
        """Whether rows or columns have values of their own, which threads load."""
        return self.scale_a or self.scale_b or self.bias is not None

    @property
    def words(self) -> list[str]:
        """The functions in a kernel's name; empty where there is none."""
        return [
            f"scale_{self.scale}" if self.scale else "",
            "scale_a" if self.scale_a else "",
            "scale_b" if self.scale_b else "",
            f"bias{'es' if self.biases else ''}_{self.bias}" if self.bias else "",
            "residual" if self.residual else "",
            self.activation or "",
        ]


@dataclass(frozen=True)
class RowPair:
    """What two rows need: their scales."""

    scale: tuple[Value, Value] | None = None


@dataclass(frozen=True)
class ColumnPair:
    """What two columns need: their scales and bias values."""

    scale: tuple[Value, Value] | None = None
    bias: tuple[Value, Value] | None = None


@component
class Elementwise:
    """The functions of an `ElementwiseSpec`, traced.

    gelu is the tanh form, ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``; silu is ``x sigmoid(x)``. Where the
    output has 16 bits they cost one ``tanh.approx`` (relative error 2^-11); for an f32 output they use ex2 and rcp.

    Parameters
    ----------
    w
        The writer; scales and bias become kernel parameters.
    spec
        What to apply.
    columns
        N, to stay inside the vectors of columns.
    precise
        Whether the output keeps more than 16 bits.
    rows
        M, to stay inside the scales of rows; None where there are none.
    batched
        Whether the matrices of a batch have scales of rows and columns of their own.
    """

    def __init__(
        self,
        w: Writer,
        spec: ElementwiseSpec,
        *,
        columns: Value,
        precise: bool,
        rows: Value | None = None,
        batched: bool = False,
    ) -> None:
        self._spec = spec
        self._precise = precise
        self._scale: Value | None = None
        self._bias: Vector | None = None
        if spec.scale == "value":
            self._scale = w.parameter("scale", F32_REGISTER, lambda call: call.number("scale"))
        elif spec.scale == "pointer":
            w.uses(self, "spec.scale", "scale", dtype=F32, along="scalar")
            self._scale_address = w.parameter("scale", GMEM, lambda call: call.address("scale"))
        self._scale_a = self._scale_b = None
        if spec.scale_a:
            if rows is None:
                raise illegal("Elementwise", "rows", rows, "the number of rows, each of which has a scale")
            w.uses(self, "spec.scale_a", "scale_a", dtype=F32, along="rows")
            self._scale_a = Vector.declare(w, "scale_a", F32, rows, batched=batched)
        if spec.scale_b:
            w.uses(self, "spec.scale_b", "scale_b", dtype=F32, along="columns")
            self._scale_b = Vector.declare(w, "scale_b", F32, columns, batched=batched)
        if spec.bias is not None:
            w.uses(self, "spec.bias", "bias", dtype=spec.bias, along="columns")
            self._bias = Vector.declare(w, "bias", spec.bias, columns, batched=spec.biases)
        self._beta = None
        if spec.residual is not None:
            self._beta = w.parameter("beta", F32_REGISTER, lambda call: call.number("beta"))

    @property
    def source(self) -> DType | None:
        """Element type of the residual, if there is one."""
        return self._spec.residual

    @property
    def uses_rows(self) -> bool:
        """Whether rows have scales."""
        return self._spec.scale_a

    @property
    def reduces_rows(self) -> bool:
        """Never: each element is its own."""
        return False

    def bind(self, w: Writer) -> None:
        """Fetch what all elements share; once a role, after the kernels before this one are complete."""
        if self._spec.scale == "pointer":
            self._scale = w.isa.memory.load_global_scalar(address=self._scale_address)

    def rows(self, w: Writer, row: Value, *, apart: int, batch: Operand = 0) -> RowPair:
        """Fetch what rows `row` and ``row + apart`` (0: one row) of a matrix of the batch need (zeros beyond M)."""
        return RowPair(_pair(w, self._scale_a, row, apart, batch))

    def columns(self, w: Writer, column: Value, *, apart: int = 1, batch: Operand = 0) -> ColumnPair:
        """Fetch what columns `column` and ``column + apart`` need (zeros beyond N)."""
        return ColumnPair(_pair(w, self._scale_b, column, apart, batch), _pair(w, self._bias, column, apart, batch))

    @property
    def spreads(self) -> bool:
        """Whether columns have scales or a bias."""
        return self._scale_b is not None or self._bias is not None

    def spread(self, w: Writer, column: Value, *, batch: Operand = 0) -> ColumnPair:
        """Fetch what two columns a lane need, of those from `column` on."""
        return self.columns(w, spread_column(w, column), batch=batch)

    def spread_pair(self, w: Writer, spread: ColumnPair, at: int, column: Value) -> ColumnPair:
        """Take what this lane's columns `at` need from those that have it."""
        scale, bias = (None if held is None else taken(w, held, at) for held in (spread.scale, spread.bias))
        return ColumnPair(scale, bias)

    def apply(
        self,
        w: Writer,
        value: Value,
        columns: ColumnPair,
        column: int,
        rows: RowPair | None,
        row: int,
        source: Value | None = None,
    ) -> Value:
        """Return the output value of an accumulator in `column` and `row`, each 0 or 1 of the pair."""
        factors = [] if self._scale is None else [self._scale]
        scales = ((None if rows is None else rows.scale, row), (columns.scale, column))
        factors += [pair[which] for pair, which in scales if pair is not None]
        for factor in factors[:-1]:
            value = value * factor
        if factors and columns.bias is not None:
            value = w.isa.elementwise.fma(a=value, b=factors[-1], c=columns.bias[column])
        elif factors:
            value = value * factors[-1]
        elif columns.bias is not None:
            value = value + columns.bias[column]
        if source is not None:
            value = w.isa.elementwise.fma(a=source, b=self._beta, c=value)
        match self._spec.activation:
            case "relu":
                result: Value = w.isa.elementwise.relu(x=value)
                return result
            case "gelu":
                slope = w.isa.elementwise.fma(a=value * value, b=SQRT_2_PI * 0.044715, c=SQRT_2_PI)
                return self._gate(w, value, value * slope)
            case "silu":
                return self._gate(w, value, value * 0.5)
        return value

    def finish_rows(self, w: Writer, rows: RowPair | None, tile: Tile) -> None:
        """Nothing is left to do with rows."""

    def _gate(self, w: Writer, value: Value, argument: Value) -> Value:
        """``value * (1 + tanh(argument)) / 2``, which equals ``value * sigmoid(2 argument)``."""
        if self._precise:
            sigmoid: Value = w.isa.elementwise.sigmoid(x=argument * 2.0)
            return value * sigmoid
        half = value * 0.5
        gated: Value = w.isa.elementwise.fma(a=half, b=w.isa.elementwise.tanh(x=argument), c=half)
        return gated


def _pair(w: Writer, vector: Vector | None, first: Value, apart: int, batch: Operand) -> Pair | None:
    return None if vector is None else vector.pair(w, first, apart, batch)


def _near(activation: Any) -> str:
    """The activation that may have been meant, in words; swish is another name of silu."""
    close = ["silu"] if activation.lower() == "swish" else get_close_matches(activation.lower(), ACTIVATIONS, 1, 0.5)
    return f"; nearest: {close[0]}" if close else ""


__all__ = ["ACTIVATIONS", "Activation", "ColumnPair", "Elementwise", "ElementwiseSpec", "RowPair", "ScaleKind"]
