"""How a step of a Python epilogue's graph becomes instructions."""

from __future__ import annotations

from typing import cast

from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.epilogue.functions import ACTIVATIONS, ColumnPair, Elementwise
from tilekit.epilogue.graph import Step

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


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
