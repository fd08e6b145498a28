"""Checks of a call's arrays against each other: place, overlap, and the output that the caller passed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from tilekit.arrays.view import AddressInterface, ArrayView
from tilekit.dtypes import DType
from tilekit.errors import ArgumentError

__all__ = [
    "in_place",
    "overlap",
    "require_apart",
    "require_dtype",
    "require_output",
    "require_result",
    "require_same_place",
]

_OVERLAP_WORK: Final[Any] = 100_000
"""Candidate solutions after which the exact overlap test gives up, some milliseconds of work."""

_MOST_STARTS: Final = 1 << 22
"""Runs of elements up to which it is looked whether they meet; of more, in axes that reach into each other, they do."""


def overlap(first: ArrayView, second: ArrayView) -> bool:
    """Whether two arrays share a byte.

    Exact for arrays of any strides: two column blocks of one matrix do not overlap although their address ranges do.
    Where deciding would take too long (never for three axes or fewer of sane sizes), the answer is True.
    """
    if first.device != second.device:
        return False
    low, high = _byte_range(first)
    other_low, other_high = _byte_range(second)
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    try:
        return np.shares_memory(
            np.asarray(AddressInterface(first)), np.asarray(AddressInterface(second)), max_work=_OVERLAP_WORK
        )
    except np.exceptions.TooHardError:
        return True


def _byte_range(view: ArrayView) -> tuple[int, int]:
    shape = view.shape
    size = view.dtype.bits >> 3
    if len(shape) == 2:
        # Every call with out= comes through here, and this is half the time of the loop.
        rows, columns = shape
        row, column = view.strides
        if rows > 0 and columns > 0 and row >= 0 and column >= 0:
            return view.address, view.address + ((rows - 1) * row + (columns - 1) * column + 1) * size
    if 0 in shape:
        return view.address, view.address
    low = high = 0
    for extent, stride in zip(shape, view.strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return view.address + low * size, view.address + (high + 1) * size


def overlaps_itself(view: ArrayView) -> bool:
    """Whether several of an array's elements share one place."""
    shape, strides = view.shape, view.strides
    if len(shape) == 2 and strides[1] == 1 and strides[0] >= shape[1]:  # most outputs, at once
        return False
    if 0 in shape:
        return False
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    end = 1  # behind the last element of the axes so far
    for stride, extent in axes:
        if stride < end:
            return stride == 0 or _meet(axes)
        end += stride * (extent - 1)
    return False


def _meet(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether elements meet, of axes with these strides, rising, and extents."""
    length, starts = 1, np.zeros(1, np.int64)
    for stride, extent in axes:
        if stride == length and starts.size == 1:
            length *= extent  # a run of elements behind each other
        elif starts.size * extent > _MOST_STARTS:
            return True
        else:
            starts = np.add.outer(starts, stride * np.arange(extent)).ravel()
    return bool((np.diff(np.sort(starts)) < length).any())


def require_same_place(named: Sequence[tuple[str, ArrayView]]) -> None:
    """Raise ``TK-ARRAY-007`` naming both arguments unless all views are of one library and one device."""
    name, first = named[0]
    for other_name, view in named:
        if view.device != first.device or view.library != first.library:
            raise ArgumentError(
                f"{name} is {first.place} and {other_name} is {view.place}; all arrays of a call must be of "
                "one library and one device",
                code="TK-ARRAY-007",
            )


def require_dtype(out: ArrayView, out_dtype: DType) -> None:
    """Raise ``TK-API-004`` unless an output that the caller passed in has the type that was asked for."""
    if out.dtype != out_dtype:
        raise ArgumentError(
            f"out is {out.dtype} and out_dtype={out_dtype}: they must agree; leave out_dtype out", code="TK-API-004"
        )


def require_result(view: ArrayView, shape: tuple[int, ...], dtype: DType, name: str) -> None:
    """Raise `ArgumentError` (``TK-ARRAY-008``) for an array that has not the result's shape and element type."""
    if view.shape != shape or view.dtype is not dtype:
        raise ArgumentError(
            f"{name} is {view.dtype} of shape {tuple(view.shape)}; the result is {dtype} of shape {shape}",
            code="TK-ARRAY-008",
        )


def require_output(
    out: ArrayView, shape: tuple[int, ...], dtype: DType, inputs: Iterable[tuple[str, ArrayView]], name: str = "out"
) -> None:
    """Check an output that the caller passed in.

    Raises
    ------
    ArgumentError
        ``TK-ARRAY-008`` if its shape or element type is not the result's or it is read-only; ``TK-ARRAY-009`` if it
        overlaps an input, or itself.
    """
    require_result(out, shape, dtype, name)
    if not out.writeable:
        raise ArgumentError(f"{name} is read-only; pass a writeable array", code="TK-ARRAY-008")
    if overlaps_itself(out):
        raise ArgumentError(
            f"{name} has strides {tuple(out.strides)}: several elements share one place; pass a plain array",
            code="TK-ARRAY-009",
        )
    require_apart(name, out, inputs)


def require_apart(name: str, out: ArrayView, inputs: Iterable[tuple[str, ArrayView]]) -> None:
    """Raise `ArgumentError` (``TK-ARRAY-009``) for an output, called `name`, that shares memory with an input."""
    for input_name, view in inputs:
        if overlap(out, view):
            raise ArgumentError(
                f"{name} overlaps {input_name} in memory; the kernel would read what it has already written; pass "
                f"another {name}",
                code="TK-ARRAY-009",
            )


def in_place(first: ArrayView, second: ArrayView) -> bool:
    """Whether two arrays are one: their elements lie at the same places, in the same order."""
    steps = (
        [(extent, stride) for extent, stride in zip(view.shape, view.strides, strict=True) if extent > 1]
        for view in (first, second)
    )
    return (first.address, first.dtype, next(steps)) == (second.address, second.dtype, next(steps))
