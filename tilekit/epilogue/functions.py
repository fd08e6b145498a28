"""Elementwise functions between accumulators and output: scale, bias, residual, activation, in that order, in f32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.elements import load_element

Activation = Literal["relu", "gelu", "silu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "silu")

ScaleKind = Literal["value", "pointer"]


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
    """

    scale: ScaleKind | None = None
    bias: DType | None = None
    activation: Activation | None = None
    residual: DType | None = None


@dataclass(frozen=True)
class ColumnPair:
    """What two columns need: their bias values."""

    bias: tuple[Value, Value] | None


class Elementwise:
    """The functions of an `ElementwiseSpec`, traced.

    gelu is the tanh form, ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``; silu is ``x sigmoid(x)``. Where the
    output has 16 bits they cost one ``tanh.approx`` (relative error 2^-11); for an f32 output they use ex2 and rcp.

    Parameters
    ----------
    w
        The writer; scale and bias become kernel parameters.
    spec
        What to apply.
    columns
        N, to stay inside the bias vector.
    precise
        Whether the output keeps more than 16 bits.
    """

    def __init__(self, w: Writer, spec: ElementwiseSpec, *, columns: Value, precise: bool) -> None:
        self._spec = spec
        self._columns = columns
        self._precise = precise
        self._scale: Value | None = None
        self._bias: Value | None = None
        if spec.scale == "value":
            self._scale = w.parameter("scale", F32_REGISTER)
        elif spec.scale == "pointer":
            self._scale_address = w.parameter("scale", GMEM)
        if spec.bias is not None:
            self._bias = w.parameter("bias", GMEM)
        self._beta = w.parameter("beta", F32_REGISTER) if spec.residual is not None else None

    @property
    def residual(self) -> DType | None:
        """Element type of the residual, if there is one."""
        return self._spec.residual

    def bind(self, w: Writer) -> None:
        """Fetch what all elements share; once a role, after the kernels before this one are complete."""
        if self._spec.scale == "pointer":
            self._scale = w.ptx.memory.load_global_scalar(address=self._scale_address)

    def columns(self, w: Writer, column: Value, *, apart: int = 1) -> ColumnPair:
        """Fetch what columns `column` and ``column + apart`` need (zeros beyond N)."""
        if self._bias is None:
            return ColumnPair(None)
        return ColumnPair((self._load_bias(w, column), self._load_bias(w, column + apart)))

    def apply(self, w: Writer, value: Value, columns: ColumnPair, which: int, residual: Value | None = None) -> Value:
        """Return the output value of an accumulator in column `which` (0 or 1) of the pair."""
        if self._scale is not None and columns.bias is not None:
            value = w.ptx.elementwise.fma(a=value, b=self._scale, c=columns.bias[which])
        elif self._scale is not None:
            value = value * self._scale
        elif columns.bias is not None:
            value = value + columns.bias[which]
        if residual is not None:
            value = w.ptx.elementwise.fma(a=residual, b=self._beta, c=value)
        match self._spec.activation:
            case "relu":
                result: Value = w.ptx.elementwise.relu(x=value)
                return result
            case "gelu":
                cubed = value * value * 0.044715
                argument = w.ptx.elementwise.fma(a=cubed, b=value, c=value) * 0.7978845608028654
                return self._gate(w, value, argument)
            case "silu":
                return self._gate(w, value, value * 0.5)
        return value

    def _gate(self, w: Writer, value: Value, argument: Value) -> Value:
        """``value * (1 + tanh(argument)) / 2``, which equals ``value * sigmoid(2 argument)``."""
        if self._precise:
            sigmoid: Value = w.ptx.elementwise.sigmoid(x=argument * 2.0)
            return value * sigmoid
        half = value * 0.5
        gated: Value = w.ptx.elementwise.fma(a=half, b=w.ptx.elementwise.tanh(x=argument), c=half)
        return gated

    def _load_bias(self, w: Writer, column: Value) -> Value:
        assert self._bias is not None
        assert self._spec.bias is not None
        valid = column < self._columns
        address = (self._bias + w.widen_multiply(column, self._spec.bias.bytes)).retyped(GMEM)
        return load_element(w, self._spec.bias, address=address, valid=valid)


__all__ = ["ACTIVATIONS", "Activation", "ColumnPair", "Elementwise", "ElementwiseSpec", "ScaleKind"]
