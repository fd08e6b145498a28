"""Scalar operations that are more than one operator, on an int or one number a wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def _each(function: Callable[..., int], *values: Any, wide: bool = False) -> Any:
    """Apply a function of Python ints, wave by wave where they differ."""
    if all(type(value) is int for value in values):
        return function(*values)
    arrays = np.broadcast_arrays(*(np.asarray(value) for value in values))
    results = [function(*(int(part) for part in parts)) for parts in zip(*(a.ravel() for a in arrays), strict=True)]
    return np.array(results, np.uint64 if wide else np.int64).reshape(arrays[0].shape)


def product_high(a: Any, b: Any, is_signed: bool) -> Any:
    """Upper half of a product."""
    if is_signed:
        a, b = (a ^ 0x80000000) - 0x80000000, (b ^ 0x80000000) - 0x80000000
        return (a * b >> 32) & M32
    if type(a) is int and type(b) is int:
        return a * b >> 32
    return (np.asarray(a).astype(np.uint64) * np.asarray(b).astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def field_of(value: Any, field: Any) -> Any:
    """``s_bfe_u32``."""
    offset, width = field & 31, field >> 16 & 127
    return (value >> offset) & ((1 << width) - 1) & M32


def signed_field_of(value: Any, field: Any) -> Any:
    """``s_bfe_i32``."""

    def one(v: int, f: int) -> int:
        offset, width = f & 31, f >> 16 & 127
        width = min(width, 32 - offset)
        part = (v >> offset) & ((1 << width) - 1)
        return (part - (1 << width) if width and part >> (width - 1) else part) & M32

    return _each(one, value, field)


def wide_field(value: Any, field: Any) -> Any:
    """``s_bfe_u64``."""
    return _each(lambda v, f: (v >> (f & 63)) & ((1 << min(f >> 16 & 127, 64)) - 1), value, field, wide=True)


def wide_mask(width: Any, offset: Any) -> Any:
    """``s_bfm_b64``."""
    return _each(lambda w, o: (((1 << (w & 63)) - 1) << (o & 63)) & M64, width, offset, wide=True)


def reverse_word(value: Any) -> Any:
    """Bits in the opposite order."""
    return _each(lambda v: int(f"{v:032b}"[::-1], 2), value)


def count_word(value: Any) -> Any:
    """How many bits are set."""
    return _each(int.bit_count, value)


def lowest_bit(value: Any) -> Any:
    """Number of the lowest bit that is set; all ones where none is."""
    return _each(lambda v: (v & -v).bit_length() - 1 if v else M32, value)


def zeros_above(value: Any, size: int) -> Any:
    """Zeros above the highest bit that is set; all ones where none is."""
    return _each(lambda v: size - v.bit_length() if v else M32, value)


def shift64(value: Any, count: Any, how: str) -> Any:
    """Shift a pair."""
    if type(value) is int and type(count) is int:
        count &= 63
        if how == "left":
            return value << count & M64
        if how == "signed":
            value = (value ^ 1 << 63) - (1 << 63)
        return value >> count & M64
    places = (np.asarray(count) & 63).astype(np.uint64)
    wide = np.asarray(value, np.uint64)
    if how == "left":
        return wide << places
    if how == "signed":
        return (wide.view(np.int64) >> places.astype(np.int64)).view(np.uint64)
    return wide >> places
