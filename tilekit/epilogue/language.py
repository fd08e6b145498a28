"""The functions that an epilogue written in Python calls beside NumPy's: on elements, and on NumPy's arrays.

Of an array they compute what they would of its elements, so that a function of them can be tried without a kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tilekit.epilogue import expression, reference
from tilekit.epilogue.combining import Combine
from tilekit.epilogue.expression import Element, Reduced
from tilekit.epilogue.graph import WHOLE, Axis
from tilekit.epilogue.mistakes import error, shown

__all__ = [
    "absolute",
    "batch",
    "clip",
    "column",
    "column_max",
    "column_min",
    "column_sum",
    "erf",
    "exp",
    "exp2",
    "gelu",
    "log",
    "log2",
    "maximum",
    "minimum",
    "relu",
    "row",
    "row_max",
    "row_min",
    "row_sum",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "uniform",
    "where",
]


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _said(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same function, whose call with other arguments than it has is an error of the caller's, with its line."""
    signature = inspect.signature(function)
    form = f"{function.__name__}({', '.join(signature.parameters)})"

    @wraps(function)
    def called(*given: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            signature.bind(*given, **named)
        except TypeError as wrong:
            raise error(f"{function.__name__} is called with other arguments: {wrong}; legal: {form}") from None
        return function(*given, **named)

    return called


def _function(does: str, about: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if isinstance(x, Element):
            return abs(x) if does == "abs" else expression.unary(does, x)
        return reference.function(does, x)

    function.__name__ = function.__qualname__ = "absolute" if does == "abs" else does
    function.__doc__ = about
    return _said(function)


absolute = _function("abs", "The absolute value.")
exp = _function("exp", "e to the power of x.")
exp2 = _function("exp2", "2 to the power of x.")
log = _function("log", "The natural logarithm.")
log2 = _function("log2", "The logarithm of base 2.")
sqrt = _function("sqrt", "The square root.")
rsqrt = _function("rsqrt", "1 over the square root.")
erf = _function("erf", "The error function, to 2e-7.")
relu = _function("relu", "x where it is above 0, else 0.")
tanh = _function("tanh", "The hyperbolic tangent.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
silu = _function("silu", "x sigmoid(x).")


@_said
def gelu(x: Any, *, approximate: str = "tanh") -> Any:
    """X times the normal distribution's share below x: by ``"tanh"``, or by ``"none"``: by `erf`."""
    if approximate not in ("tanh", "none"):
        raise error(f"gelu(approximate={approximate!r}); legal: 'tanh' or 'none'; nearest: 'tanh'")
    if approximate == "none":
        return x * (0.5 + 0.5 * erf(x * 0.7071067811865476))
    return expression.unary("gelu", x) if isinstance(x, Element) else reference.function("gelu", x)


@_said
def maximum(x: Any, y: Any) -> Any:
    """The larger of two; NaN where one is."""
    return np.maximum(x, y)


@_said
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two; NaN where one is."""
    return np.minimum(x, y)


@_said
def clip(x: Any, low: Any, high: Any) -> Any:
    """x, but at least `low` and at most `high`."""
    return minimum(maximum(x, low), high)


@_said
def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where a condition holds, else `y`."""
    if any(isinstance(value, Element) for value in (condition, x, y)):
        return expression.where(condition, x, y)
    return np.where(condition, x, y)


@_said
def row(like: Any) -> Any:
    """The element's row in the output, a whole number with a sign."""
    return _coordinate("row", like)


@_said
def column(like: Any) -> Any:
    """The element's column in the output, a whole number with a sign."""
    return _coordinate("column", like)


@_said
def batch(like: Any) -> Any:
    """Which matrix of a batch the element is in, a whole number; 0 where there is one matrix."""
    return _coordinate("batch", like)


def _coordinate(which: str, like: Any) -> Any:
    if isinstance(like, Element):
        return like.tracer.step(which, kind="s32")
    if np.ndim(like) == 0:
        raise error(f"{which}({shown(like)}); legal: an element, or an array; nearest: {which}(x)")
    return reference.coordinate(which, like)


@_said
def uniform(seed: Any, like: Any) -> Any:
    """A number from 0 (included) to 1 for each element: the same for the same seed and place, in every config.

    A hash of the element's row, column and batch index and of the seed (murmur3's mixing, twice); `like` is any
    element of the output. A seed is a whole number of 32 bits, with a sign or without.
    """
    rows, columns, matrices = (which(like).astype(np.uint32) for which in (row, column, batch))
    state = _mixed(rows * 0x9E3779B1 + matrices * 0x85EBCA77 + _seed(seed))
    state = _mixed(state + columns * 0xC2B2AE3D + 0x27D4EB2F)
    bits = state >> 8  # as many as an f32's mantissa has
    return (bits.astype("f32") if isinstance(bits, Element) else bits.astype(np.float32)) * 2.0**-24


def _seed(seed: Any) -> Any:
    """A seed's 32 bits."""
    legal = "a whole number from -2147483648 to 4294967295, or a parameter that is annotated as one (seed: int)"
    if isinstance(seed, Element):
        if seed.kind not in WHOLE:
            raise error(f"{seed.tracer.name}: the seed of uniform(seed, x) is an f32 of each element; legal: {legal}")
        return seed.astype(np.uint32)
    if not isinstance(seed, (np.ndarray, np.integer, int)) or np.asarray(seed).dtype.kind not in "iu":
        raise error(f"the seed of uniform(seed, x) is {shown(seed)}; legal: {legal}")
    if np.min(seed) < -(1 << 31) or np.max(seed) >= 1 << 32:
        raise error(f"the seed of uniform(seed, x) is {shown(seed)}; legal: {legal}")
    return np.asarray(seed).astype(np.uint32) if isinstance(seed, np.ndarray) else int(seed) & 0xFFFFFFFF


def _mixed(state: Any) -> Any:
    state = (state ^ (state >> 16)) * 0x85EBCA6B
    state = (state ^ (state >> 13)) * 0xC2B2AE35
    return state ^ (state >> 16)


@_said
def row_sum(x: Any) -> Any:
    """The sum of each row: a vector of f32 beside the result, among what the function returns."""
    return _reduced(x, "row", "sum")


@_said
def row_max(x: Any) -> Any:
    """The largest element of each row; see `row_sum`."""
    return _reduced(x, "row", "max")


@_said
def row_min(x: Any) -> Any:
    """The smallest element of each row; see `row_sum`."""
    return _reduced(x, "row", "min")


@_said
def column_sum(x: Any) -> Any:
    """The sum of each column; see `row_sum`."""
    return _reduced(x, "column", "sum")


@_said
def column_max(x: Any) -> Any:
    """The largest element of each column; see `row_sum`."""
    return _reduced(x, "column", "max")


@_said
def column_min(x: Any) -> Any:
    """The smallest element of each column; see `row_sum`."""
    return _reduced(x, "column", "min")


def _reduced(x: Any, along: Axis, combine: Combine) -> Any:
    if isinstance(x, Reduced):
        x.refuse()
    if isinstance(x, Element):
        return Reduced(expression.as_float(x), along, combine)
    return reference.reduced(x, along, combine)
