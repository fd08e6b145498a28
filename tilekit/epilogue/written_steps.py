"""How a step of a Python epilogue's graph becomes instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import PRED, S32, U32, RegisterType
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.epilogue.functions import ACTIVATIONS, ColumnPair, Elementwise
from tilekit.epilogue.graph import Kind, Step

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453

_REGISTERS: dict[Kind, RegisterType] = {"f32": F32_REGISTER, "s32": S32, "u32": U32, "pred": PRED}


@dataclass(frozen=True)
class Argument:
    """What a step takes: a register or a number, and of which kind it is."""

    given: Operand
    kind: Kind

    def value(self, w: Writer) -> Value:
        """It in a register."""
        return self.given if isinstance(self.given, Value) else w.constant(_REGISTERS[self.kind], self.given)


def compute(
    w: Writer, step: Step, arguments: Sequence[Argument], *, activations: dict[str, Elementwise], precise: bool
) -> Value:
    """Trace one step."""
    elementwise, does = w.isa.elementwise, step.does
    args = [argument.given for argument in arguments]
    if does in _CALLS:
        name, operands = _CALLS[does]
        return cast(Value, getattr(elementwise, name)(**dict(zip(operands, args, strict=True))))
    if does == "pow":
        return _power(w, *arguments)
    x = arguments[0].value(w)
    if does in ACTIVATIONS:
        return activations[does].apply(w, x, ColumnPair(), 0, None, 0)
    if does == "ne" and x.type is F32_REGISTER:
        return ~(x == args[1])  # true of NaN, as in NumPy; a device's own comparisons are all false of it
    if does in _OPERATIONS:
        return cast(Value, getattr(x, _OPERATIONS[does])(args[1]))
    match does:
        case "where":
            return w.select(x, args[1], args[2], _REGISTERS[step.kind])
        case "float":
            if x.type is PRED:
                return w.select(x, 1.0, 0.0, F32_REGISTER)
            convert = w.isa.convert
            return convert.float_s32(whole=x) if x.type is S32 else convert.float_u32(whole=x)  # type: ignore[no-any-return]
        case "bits":
            return x.retyped(_REGISTERS[step.kind])
        case "type":
            return x
        case "round":
            half = BF16.name == step.value
            pack = w.isa.convert.pack_bf16 if half else w.isa.convert.pack_f16
            widen = w.isa.convert.widen_bf16 if half else w.isa.convert.widen_f16
            low, _ = w.isa.convert.unpack(packed=pack(low=args[0], high=0.0))
            return widen(narrow=low)  # type: ignore[no-any-return]
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


def _power(w: Writer, base: Argument, exponent: Argument) -> Value:
    """``x ** y`` as NumPy has it: of a negative number for whole exponents alone.

    It is 2^(y log2 |x|), whose sign is the base's where the exponent is odd. An exponent that is a number says at once
    whether it is whole and odd.
    """
    elementwise = w.isa.elementwise

    def raised(x: Value) -> Value:
        return cast(Value, elementwise.exp2(x=cast(Value, elementwise.log2(x=x)) * exponent.given))

    x, number = base.value(w), exponent.given
    if isinstance(number, float) and math.isfinite(number) and not number.is_integer():
        return raised(x)
    size = cast(Value, elementwise.absolute(x=x))
    found = raised(size)
    if isinstance(number, float) and math.isfinite(number) and number:
        return w.select(x < 0.0, found * -1.0, found, F32_REGISTER) if number % 2 else found
    y = exponent.value(w)
    whole = cast(Value, elementwise.floor(x=y)) == y  # also of infinities, which count as even
    half = y * 0.5
    odd = whole & (cast(Value, elementwise.floor(x=half)) != half)
    found = w.select((y == 0.0) | (size == 1.0), 1.0, found, F32_REGISTER)
    found = w.select((x < 0.0) & odd, found * -1.0, found, F32_REGISTER)
    return w.select((x < 0.0) & (size < math.inf) & ~whole, math.nan, found, F32_REGISTER)


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
