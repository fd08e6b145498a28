"""Scalar values of a batch of waves: one Python number where all waves agree, else one a wave.

A 32-bit value is an int from 0 to 2**32 - 1, or int64[waves, 1] with such numbers. A 64-bit one is an int,
uint64[waves, 1], or a mask of lanes, bool[waves, 64], which is what most 64-bit values are on these machines. A truth
is a bool or bool[waves, 1]. Generated code uses the same operators for both kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "HIGH",
    "and64",
    "choose",
    "choose64",
    "halves",
    "join64",
    "mask_of",
    "nonzero",
    "not64",
    "number",
    "opposite",
    "or64",
    "put32",
    "put64",
    "settle",
    "settle_number",
    "signed",
    "signed64",
    "wide",
    "word",
    "xor64",
]

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
Mask = npt.NDArray[np.bool_]


class _High:
    """Stands in the second register of a pair that holds a mask."""


HIGH = _High()


def settle(truth: Any) -> Any:
    """A truth as a bool where all waves agree."""
    if type(truth) is bool:
        return truth
    if isinstance(truth, np.ndarray) and truth.size > 1:
        first = bool(truth.flat[0])
        return first if (truth == first).all() else truth
    return bool(truth)


def settle_number(value: Any) -> Any:
    """A number as an int where all waves agree."""
    if type(value) is int:
        return value
    first = int(value.flat[0])
    return first if (value == first).all() else value


def choose(truth: Any, yes: Any, no: Any) -> Any:
    """One of two 32-bit values."""
    if type(truth) is bool:
        return yes if truth else no
    return np.where(truth, yes, no)


def signed(value: Any) -> Any:
    """A 32-bit value as a signed number."""
    return (value ^ 0x80000000) - 0x80000000


def signed64(value: Any) -> Any:
    """A 64-bit value that is no mask as a signed number."""
    value = number(value)
    if type(value) is int:
        return (value ^ (1 << 63)) - (1 << 63)
    return value.view(np.int64)


def is_mask(value: Any) -> bool:
    """Whether a 64-bit value is held as a mask."""
    return isinstance(value, np.ndarray) and value.dtype == np.bool_


def number(value: Any) -> Any:
    """A 64-bit value as numbers."""
    if is_mask(value):
        bits = np.packbits(np.ascontiguousarray(value), axis=1, bitorder="little").view(np.uint64)
        return settle_number(bits)
    return value


def mask_of(value: Any, waves: int) -> Mask:
    """A 64-bit value as a mask of lanes."""
    if type(value) is int:
        if value == 0:
            return np.zeros((waves, 64), np.bool_)
        if value == M64:
            return np.ones((waves, 64), np.bool_)
        bits = np.unpackbits(np.array([[value]], np.uint64).view(np.uint8), axis=1, bitorder="little")
        return np.broadcast_to(bits.view(np.bool_), (waves, 64))
    if value.dtype == np.bool_:
        return value  # type: ignore[no-any-return]
    words = np.ascontiguousarray(np.broadcast_to(value, (waves, 1)))
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)


def halves(value: Any) -> tuple[Any, Any]:
    """The two words of a 64-bit value."""
    value = number(value)
    if type(value) is int:
        return value & M32, value >> 32
    return (value & np.uint64(M32)).astype(np.int64), (value >> np.uint64(32)).astype(np.int64)


def word(file: list[Any], index: int) -> Any:
    """A scalar register that may be part of a mask."""
    value = file[index]
    if type(value) is int:
        return value
    if value is HIGH:
        return halves(file[index - 1])[1]
    return halves(value)[0] if value.dtype == np.bool_ else value


def wide(file: list[Any], index: int) -> Any:
    """A pair of scalar registers."""
    low = file[index]
    if type(low) is not int and is_mask(low) and file[index + 1] is HIGH:
        return low
    return join64(word(file, index), word(file, index + 1))


def join64(low: Any, high: Any) -> Any:
    """A 64-bit value of two words."""
    if type(low) is int and type(high) is int:
        return low | high << 32
    parts = [np.asarray(part).astype(np.uint64) for part in (low, high)]
    return parts[0] | parts[1] << np.uint64(32)


def put32(file: list[Any], index: int, value: Any) -> None:
    """Write a scalar register that may be part of a mask."""
    old = file[index]
    if type(old) is not int:
        if old is HIGH:
            file[index - 1] = halves(file[index - 1])[0]
        elif old.dtype == np.bool_:
            file[index + 1] = halves(old)[1]
    file[index] = value


def put64(file: list[Any], index: int, value: Any) -> None:
    """Write a pair of scalar registers."""
    if type(file[index]) is not int and file[index] is HIGH:
        file[index - 1] = halves(file[index - 1])[0]
    after = file[index + 1]
    if type(after) is not int and is_mask(after):
        file[index + 2] = halves(after)[1]
    if is_mask(value):
        file[index], file[index + 1] = value, HIGH
    else:
        file[index], file[index + 1] = halves(value)


def _both(a: Any, b: Any) -> tuple[Any, Any]:
    """Two 64-bit values in one form."""
    if is_mask(a):
        return a, mask_of(b, len(a))
    if is_mask(b):
        return mask_of(a, len(b)), b
    if type(a) is int and type(b) is int:
        return a, b
    return np.asarray(a, np.uint64), np.asarray(b, np.uint64)


def and64(a: Any, b: Any) -> Any:
    """Bitwise and."""
    a, b = _both(a, b)
    return a & b


def or64(a: Any, b: Any) -> Any:
    """Bitwise or."""
    a, b = _both(a, b)
    return a | b


def xor64(a: Any, b: Any) -> Any:
    """Bitwise exclusive or."""
    a, b = _both(a, b)
    return a ^ b


def not64(a: Any) -> Any:
    """Bitwise complement."""
    return a ^ M64 if type(a) is int else ~a


def choose64(truth: Any, yes: Any, no: Any) -> Any:
    """One of two 64-bit values."""
    if type(truth) is bool:
        return yes if truth else no
    yes, no = _both(yes, no)
    return np.where(truth, yes, no) if is_mask(yes) else np.where(truth, np.uint64(yes), np.uint64(no))


def opposite(truth: Any) -> Any:
    """The other truth."""
    return not truth if type(truth) is bool else ~truth


def nonzero(value: Any) -> Any:
    """Whether a 32- or 64-bit value has a bit set."""
    if type(value) is int:
        return value != 0
    if value.dtype == np.bool_:
        return settle(value.any(axis=1, keepdims=True))
    return settle(value != 0)
