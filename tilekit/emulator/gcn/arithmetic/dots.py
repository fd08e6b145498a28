"""Sums over the parts of words: dot products, and absolute differences of bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilekit.emulator.gcn.arithmetic.bits import f4, f8, i8, sign_extend, u2, u4, u8
from tilekit.emulator.gcn.arithmetic.conversions import bf16_to_f32, halves_as_f32


def parts(word: Any, size: int, signed: bool) -> list[Any]:
    """The fields of a word, from the lowest, as wide integers."""
    found = [np.asarray(word) >> u4(place) & u4((1 << size) - 1) for place in range(0, 32, size)]
    return [(sign_extend(part, size).view(np.int32) if signed else part).astype(i8) for part in found]


def dot_parts(a: Any, b: Any, c: Any, size: int, signed: bool, clamp: bool) -> Any:
    """Dot product of the fields of two words, and an addend; held within 32 bits with `clamp`."""
    addend = (np.asarray(c).view(np.int32) if signed else np.asarray(c)).astype(i8)
    total = addend + sum(x * y for x, y in zip(parts(a, size, signed), parts(b, size, signed), strict=True))
    if clamp:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1) if signed else np.clip(total, 0, 0xFFFFFFFF)
    return (total & 0xFFFFFFFF).astype(u4)


def dot_halves(a: Any, b: Any, c: Any, kind: str) -> Any:
    """Dot product of two halves, and a float32, rounded once."""
    total = np.asarray(c, f8)
    for high in (0, 1):
        x, y = (halves_as_f32(v, high) if kind == "f16" else bf16_to_f32(v >> u4(16 * high)) for v in (a, b))
        total = total + x.astype(f8) * y.astype(f8)
    return total.astype(f4)


def differences(a: Any, b: Any, size: int, masked: bool = False) -> Any:
    """Sum of the absolute differences of fields; `masked`: of those where the second is not 0."""
    total: Any = i8(0)
    for x, y in zip(parts(a, size, False), parts(b, size, False), strict=True):
        total = total + np.where((y == 0) & masked, 0, np.abs(x - y))
    return total.astype(u4)


def windows(pair: Any) -> list[Any]:
    """The four words that begin at the lower four bytes of two registers."""
    wide = np.asarray(pair, u8)
    return [(wide >> u8(8 * place)).astype(u4) for place in range(4)]


def average_bytes(a: Any, b: Any, c: Any) -> Any:
    """``v_lerp_u8``: averages of bytes, rounded up where a byte of the third is odd."""
    found: Any = u4(0)
    for place, (x, y, z) in enumerate(zip(*(parts(v, 8, False) for v in (a, b, c)), strict=True)):
        found = found | ((x + y + (z & 1)) >> 1).astype(u4) << u4(8 * place)
    return found


def saturated_pair(a: Any, b: Any, least: int, most: int) -> Any:
    """Two integers held within 16 bits, packed."""
    low, high = (np.clip(np.asarray(v).astype(i8), least, most).astype(u2).astype(u4) for v in (a, b))
    return low | high << u4(16)


def saturated_bytes(low: Any, high: Any, least: int, most: int) -> Any:
    """Two integers held within 8 bits, in the lower half of a word."""
    return sum((np.clip(v.astype(i8), least, most) & 255).astype(u4) << u4(8 * n) for n, v in enumerate((low, high)))


_PI_BITS = 1201


@cache
def _two_over_pi() -> int:
    """The first 1201 binary places of 2 / pi."""
    one = 1 << (_PI_BITS + 64)

    def inverse_tangent(n: int) -> int:
        term = total = one // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))  # Machin
    return (2 * one << _PI_BITS) // pi


def two_over_pi(x: Any, segment: Any) -> Any:
    """``v_trig_preop_f64``: 53 bits of 2 / pi from where an argument of that size needs them."""
    bits = np.ascontiguousarray(np.broadcast_to(x, np.broadcast_shapes(np.shape(x), np.shape(segment)))).view(u8)
    exponent = (bits >> u8(52) & u8(0x7FF)).astype(i8)
    shift = (np.asarray(segment, u4) & u4(31)).astype(i8) * 53 + np.maximum(exponent - 1077, 0)
    found = np.empty(bits.shape, f8)
    for place, (by, size) in enumerate(zip(shift.reshape(-1).tolist(), exponent.reshape(-1).tolist(), strict=True)):
        behind = _PI_BITS - 53 - by
        piece = _two_over_pi() >> behind if behind >= 0 else _two_over_pi() << -behind
        value = float(piece & (1 << 53) - 1)
        found.reshape(-1)[place] = np.ldexp(value, -53 - by + (128 if size >= 1968 else 0))
    return found
