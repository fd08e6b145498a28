"""What a graph computes, in NumPy: to compare a kernel with, and to try a function without one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilekit.dtypes import as_dtype
from tilekit.epilogue.combining import Combine
from tilekit.epilogue.graph import COORDINATES, SHIFTS, Axis, Graph, Step

_erf = np.vectorize(math.erf, otypes=[np.float64])


def function(does: str, x: Any) -> Any:
    """A function of one number, of each element of an array, in its own precision (of 16 bits and whole ones: f32)."""
    x = np.asarray(x)
    x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    with np.errstate(all="ignore"):
        return _FUNCTIONS[does](x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("abs", "exp", "exp2", "log", "log2", "sqrt", "tanh")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: _erf(x).astype(x.dtype),
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _sigmoid(1.5957691216057308 * (x + 0.044715 * x**3)),
}

_OPERATIONS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}

_WHOLE: dict[str, Any] = {"s32": np.int32, "u32": np.uint32}


def coordinate(which: str, like: Any) -> Any:
    """Rows, columns or batch indices of an array's elements."""
    like = np.asarray(like)
    axis = {"column": -1, "row": -2, "batch": -3}[which]
    if -axis > like.ndim:
        return np.int32(0)
    shape = (like.shape[axis], *(1,) * (-axis - 1))
    return np.arange(like.shape[axis], dtype=np.int32).reshape(shape)


def reduced(x: Any, along: Axis, combine: Combine) -> Any:
    """Sums, or largest or smallest elements, of rows or columns."""
    axis = -1 if along == "row" else -2
    combining: dict[Combine, Callable[..., Any]] = {"sum": np.sum, "max": np.max, "min": np.min}
    return combining[combine](np.asarray(x), axis=axis)


def evaluate(graph: Graph, accumulators: Any, operands: Sequence[Any], precision: Any) -> tuple[Any, ...]:
    """All results of a graph, in the order of the function's, unrounded.

    Parameters
    ----------
    graph
        What is computed.
    accumulators
        The product, (M, N) or (B, M, N).
    operands
        Arrays that broadcast to it, and numbers; whole ones where the function says so, of 32 bits.
    precision
        The type that is computed in: ``np.float32`` or ``np.float64``.
    """
    product = np.asarray(accumulators).astype(precision)
    values: list[Any] = []
    with np.errstate(all="ignore"):
        for step in graph.steps:
            values.append(_step(step, values, product, operands, precision))
    results = []
    for kind, index in graph.order:
        if kind == "output":
            results.append(np.broadcast_to(values[graph.outputs[index]], product.shape))
        else:
            total = graph.totals[index]
            results.append(reduced(np.broadcast_to(values[total.step], product.shape), total.along, total.combine))
    return tuple(results)


def _step(step: Step, values: list[Any], product: Any, operands: Sequence[Any], precision: Any) -> Any:
    args = [values[place] for place in step.args]
    if step.does == "accumulator":
        return product
    if step.does == "operand":
        given = operands[int(step.value or 0)]
        return (
            np.asarray(given).astype(precision) if step.kind == "f32" else np.uint32(given & 0xFFFFFFFF).view(np.int32)
        )
    if step.does == "constant":
        return precision(step.number) if step.kind == "f32" else _WHOLE[step.kind](step.number)
    if step.does in COORDINATES:
        return coordinate(step.does, product)
    if step.does == "where":
        return np.where(*args)
    if step.does == "float":
        return np.asarray(args[0]).astype(precision)
    if step.does == "round":
        return np.asarray(args[0]).astype(as_dtype(step.value).numpy).astype(precision)
    if step.does == "bits":
        return np.asarray(args[0]).astype(_WHOLE[step.kind])
    if step.does == "type":
        return args[0]
    if step.does in SHIFTS:
        return _OPERATIONS[step.does](args[0], np.asarray(args[1]).astype(np.asarray(args[0]).dtype))
    if step.does in _OPERATIONS:
        return _OPERATIONS[step.does](*args)
    return _FUNCTIONS[step.does](np.asarray(args[0]))
