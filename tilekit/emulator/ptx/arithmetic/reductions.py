"""Reductions of the bulk copy engine: what ``cp.reduce.async.bulk`` does to each element of memory.

Which types and operations exist, and what becomes of NaN, was compared with an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.ptx.arithmetic.floating import extremum

__all__ = ["Combine", "ReduceOp", "add_wide_in_l2", "reduction"]

ReduceOp: TypeAlias = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]
Combine: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]

_STORAGE: dict[str, np.dtype[Any]] = {
    "u32": np.dtype(np.uint32),
    "s32": np.dtype(np.int32),
    "u64": np.dtype(np.uint64),
    "s64": np.dtype(np.int64),
    "f32": np.dtype(np.float32),
    "f32_ftz": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16),
}


def _increment(held: npt.NDArray[Any], limit: npt.NDArray[Any]) -> npt.NDArray[Any]:
    result: npt.NDArray[Any] = np.where(held >= limit, held.dtype.type(0), held + held.dtype.type(1))
    return result


def _decrement(held: npt.NDArray[Any], limit: npt.NDArray[Any]) -> npt.NDArray[Any]:
    result: npt.NDArray[Any] = np.where((held == 0) | (held > limit), limit, held - held.dtype.type(1))
    return result


def _in_format(fmt: str, operation: Combine) -> Combine:
    """Return a reduction on 16-bit patterns, done in f32 (wide enough to round only once)."""

    def combine(held: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(invalid="ignore", over="ignore"):
            return encode(operation(decode(held, fmt), decode(added, fmt)), fmt)

    return combine


def _add(held: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(held + added)


def _add_f32(held: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return encode(_add(held, added), "f32").view(np.float32)


def add_wide_in_l2(held: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add f64 in global memory: a NaN is stored as it is, the added one before memory's."""
    return np.where(np.isnan(added), added, np.where(np.isnan(held), held, _add(held, added)))


_BITWISE: dict[str, Combine] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_ORDERED: dict[str, Combine] = {"min": np.minimum, "max": np.maximum}
_FLOAT_ORDERED: dict[str, Combine] = {
    "add": np.add,
    "min": lambda held, added: extremum("min", held, added, False),
    "max": lambda held, added: extremum("max", held, added, False),
}
_REDUCTIONS: dict[str, dict[str, Combine]] = {
    "u32": {"add": np.add, "inc": _increment, "dec": _decrement, **_ORDERED, **_BITWISE},
    "s32": {"add": np.add, **_ORDERED, **_BITWISE},
    "u64": {"add": np.add, **_ORDERED, **_BITWISE},
    "s64": _ORDERED,
    "f32": {"add": _add_f32},
    "f32_ftz": {"add": _add_f32},
    "f64": {"add": add_wide_in_l2},
    "f16": {name: _in_format("f16", operation) for name, operation in _FLOAT_ORDERED.items()},
    "bf16": {name: _in_format("bf16", operation) for name, operation in _FLOAT_ORDERED.items()},
}


def reduction(dtype: str, op: ReduceOp) -> tuple[np.dtype[Any], Combine]:
    """Return how a reduction acts on memory.

    Parameters
    ----------
    dtype
        Element type, as tensor maps name it.
    op
        Operation, as PTX names it.

    Returns
    -------
    storage
        NumPy type to view memory in (f16 and bf16 as their bit patterns).
    combine
        Function from (memory's values, added values) to memory's new values.

    Raises
    ------
    ValueError
        If the type has no such reduction.
    """
    operations = _REDUCTIONS.get(dtype, {})
    if op not in operations:
        legal = ", ".join(operations) or "none"
        raise ValueError(f"op = {op!r}: the reductions of {dtype} are {legal}")
    return _STORAGE[dtype], operations[op]
