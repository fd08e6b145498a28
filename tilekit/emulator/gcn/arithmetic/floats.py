"""Floating-point operations of vector instructions, over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.arithmetic.bits import f2, f4, f8, i4, i8, u2, u4, u8

Array = npt.NDArray[Any]
_SIGN = {"f16": u2(0x8000), "f32": u4(1 << 31), "f64": u8(1 << 63)}
_BITS = {"f16": u2, "f32": u4, "f64": u8}
_FLOAT = {"f16": f2, "f32": f4, "f64": f8}


def _signs(kind: str) -> tuple[Any, Any]:
    bits: Any
    sign: Any
    bits, sign, kind_of = _BITS[kind], _SIGN[kind], _FLOAT[kind]
    everything: Any = bits(~sign)

    def negative(x: Any) -> Any:
        return (np.asarray(x).view(bits) ^ sign).view(kind_of)

    def absolute(x: Any) -> Any:
        return (np.asarray(x).view(bits) & everything).view(kind_of)

    return negative, absolute


neg_f16, abs_f16 = _signs("f16")
neg_f32, abs_f32 = _signs("f32")
neg_f64, abs_f64 = _signs("f64")


def neg_b32(x: Any) -> Any:
    """Change the sign of what an instruction that moves bits takes as float32."""
    return x ^ _SIGN["f32"]


def abs_b32(x: Any) -> Any:
    """Clear the sign of what an instruction that moves bits takes as float32."""
    return x & u4(0x7FFFFFFF)


def flushed(x: Array) -> Any:
    """Float32 without denormals: zeros of their sign."""
    return np.where(np.abs(x) < f4(2.0**-126), np.copysign(f4(0), x), x)


def clamped(x: Array) -> Any:
    """Between 0 and 1; NaN becomes 0."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, 0, 1))


def fma32(a: Any, b: Any, c: Any) -> Any:
    """Multiply and add, rounded once (through float64: a double rounding is possible, and very rare)."""
    return (np.asarray(a, f8) * b + c).astype(f4)


def fma16(a: Any, b: Any, c: Any) -> Any:
    """Multiply and add, rounded once: the exact result fits float64."""
    return (np.asarray(a, f8) * b + c).astype(f2)


def fma64(a: Any, b: Any, c: Any) -> Any:
    """Multiply and add of doubles, rounded once: the product and the sum with their remainders."""
    a, b, c = np.broadcast_arrays(np.asarray(a, f8), np.asarray(b, f8), np.asarray(c, f8))
    return _fma_two_parts(a, b, c, a * b)


def _fma_two_parts(a: Array, b: Array, c: Array, high: Array) -> Any:
    """Product as high + low exactly (Dekker), then a sum of three with one rounding that matters."""
    factor = f8(134217729.0)
    with np.errstate(all="ignore"):
        ah = a * factor
        ah = ah - (ah - a)
        al = a - ah
        bh = b * factor
        bh = bh - (bh - b)
        bl = b - bh
        low = ((ah * bh - high) + ah * bl + al * bh) + al * bl
        total = high + c
        back = total - high
        error = (high - (total - back)) + (c - back)
        result = total + (error + low)
    return np.where(np.isfinite(result) & np.isfinite(low), result, a * b + c)


def maximum(a: Any, b: Any) -> Any:
    """The larger; the other one where one is NaN; +0 above -0."""
    result = np.fmax(a, b)
    return np.where((result == 0) & (a == b), np.where(np.signbit(a), b, a), result)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; the other one where one is NaN; -0 below +0."""
    result = np.fmin(a, b)
    return np.where((result == 0) & (a == b), np.where(np.signbit(a), a, b), result)


def median(a: Any, b: Any, c: Any) -> Any:
    """The middle one of three; the smallest where one is NaN."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    middle = maximum(minimum(a, b), minimum(maximum(a, b), c))
    return np.where(nan, minimum(minimum(a, b), c), middle)


def fraction(x: Any) -> Any:
    """What is above the next whole number below, and less than 1."""
    most = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.minimum(x - np.floor(x), most)


def to_integer(x: Any, least: int, most: int) -> Any:
    """Truncate, within bounds; NaN becomes 0."""
    wide = np.where(np.isnan(x), 0, np.asarray(x, f8))
    return np.clip(np.trunc(wide), float(least), float(most)).astype(i8)


def scale_by_power(x: Any, power: Any) -> Any:
    """``v_ldexp``: rounded once."""
    kind = np.asarray(x).dtype.type
    power = np.clip(power, -4096, 4096).astype(np.int64)
    if kind is f8:
        return np.ldexp(x, power.astype(i4))
    return np.ldexp(np.asarray(x, f8), power.astype(i4)).astype(kind)


def mantissa(x: Any) -> Any:
    """``v_frexp_mant``."""
    found, _ = np.frexp(x)
    return np.where(np.isfinite(x), found, x)


def exponent(x: Any) -> Any:
    """``v_frexp_exp_i32``: 0 of zero, infinity and NaN."""
    _, found = np.frexp(x)
    return np.where(np.isfinite(x), found, 0).astype(i4)


def _biased(x: Array) -> Any:
    """The exponent field."""
    if x.dtype == f4:
        return (x.view(u4) >> u4(23) & u4(0xFF)).astype(i8)
    return (x.view(u8) >> u8(52) & u8(0x7FF)).astype(i8)


def division_scale(chosen: Any, denominator: Any, numerator: Any) -> tuple[Array, Array]:
    """``v_div_scale``: one of two numbers, scaled where a division would leave the range; where to undo it."""
    s0, s1, s2 = (np.ascontiguousarray(x) for x in np.broadcast_arrays(chosen, denominator, numerator))
    kind = s0.dtype.type
    far, step, least = (96, 64, 23) if kind is f4 else (768, 128, 53)
    tiny = np.finfo(kind).smallest_normal
    same = {
        name: s0.view(u4 if kind is f4 else u8) == s.view(u4 if kind is f4 else u8)
        for name, s in (("d", s1), ("n", s2))
    }
    up, down = scale_by_power(s0, np.full(s0.shape, step)), scale_by_power(s0, np.full(s0.shape, -step))
    e1, e2 = _biased(s1), _biased(s2)
    inverse, quotient = np.abs(1 / s1.astype(f8)), np.abs(s2.astype(f8) / s1.astype(f8))
    if kind is f8:
        inverse_small, quotient_small = e1 >= 2045, e2 - e1 < -1021
    else:
        inverse_small, quotient_small = inverse < tiny, quotient < tiny
    invalid = (s1 == 0) | (s2 == 0)
    wide = e2 - e1 >= far
    small = (e1 == 0) & (s1 != 0)
    conditions = [invalid, wide, small, inverse_small & quotient_small, inverse_small, quotient_small, e2 <= least]
    results = [
        np.full_like(s0, np.nan),
        np.where(same["d"], up, s0),
        up,
        np.where(same["d"], up, s0),
        down,
        np.where(same["n"], up, s0),
        up,
    ]
    flag = np.select(conditions, [np.full(s0.shape, v) for v in (False, True, False, True, False, True, False)], False)
    return np.select(conditions, results, s0).astype(kind), flag.astype(np.bool_)


def division_step(a: Any, b: Any, c: Any, undo: Any) -> Any:
    """``v_div_fmas``: multiply and add, and undo the scaling where `undo` says so."""
    kind = np.asarray(a).dtype.type
    plain = fma32(a, b, c) if kind is f4 else fma64(a, b, c)
    step, middle = (64, 127) if kind is f4 else (128, 1023)
    power = np.where(_biased(np.broadcast_to(c, plain.shape).copy()) > middle, step, -step)
    return np.where(undo, scale_by_power(plain, power), plain)


def division_fix(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """``v_div_fixup``: the quotient, or what a division gives where it is special."""
    q, d, n = (np.ascontiguousarray(x) for x in np.broadcast_arrays(quotient, denominator, numerator))
    kind = q.dtype.type
    negative = np.signbit(d) ^ np.signbit(n)
    bits: Any
    quiet: Any
    bits, quiet = (u4, u4(1 << 22)) if kind is f4 else (u8, u8(1 << 51)) if kind is f8 else (u2, u2(1 << 9))

    def quieted(x: Array) -> Any:
        return (x.view(bits) | quiet).view(kind)

    infinity = np.where(negative, kind(-np.inf), kind(np.inf))
    zero = np.where(negative, kind(-0.0), kind(0.0))
    conditions = [
        np.isnan(n),
        np.isnan(d),
        ((d == 0) & (n == 0)) | (np.isinf(d) & np.isinf(n)),
        (d == 0) | np.isinf(n),
        np.isinf(d) | (n == 0),
    ]
    results = [quieted(n), quieted(d), np.full_like(q, np.nan), infinity, zero]
    signed = np.where(negative, -np.abs(q), np.abs(q))
    overflow = np.isnan(q) & ~np.isnan(d) & ~np.isnan(n)
    return np.select([*conditions, overflow], [*results, infinity], signed).astype(kind)


def in_class(x: Any, mask: Any) -> Any:
    """``v_cmp_class``: whether a number is one of the kinds whose bits are set."""
    x = np.asarray(x)
    size = x.dtype.itemsize
    quiet = {2: (u2, 1 << 9), 4: (u4, 1 << 22), 8: (u8, 1 << 51)}[size]
    is_quiet = (np.ascontiguousarray(x).view(quiet[0]) & quiet[0](quiet[1])) != 0
    nan, infinite, negative = np.isnan(x), np.isinf(x), np.signbit(x)
    tiny = np.finfo(x.dtype).smallest_normal
    small = (np.abs(x) < tiny) & (x != 0)
    normal = np.isfinite(x) & (x != 0) & ~small
    kinds = [
        nan & ~is_quiet,
        nan & is_quiet,
        infinite & negative,
        normal & negative,
        small & negative,
        (x == 0) & negative,
        (x == 0) & ~negative,
        small & ~negative,
        normal & ~negative,
        infinite & ~negative,
    ]
    result: Any = np.False_
    for place, kind in enumerate(kinds):
        result = result | (kind & (np.asarray(mask) >> u4(place) & u4(1) == 1))
    return result


def sine(x: Any) -> Any:
    """``v_sin_f32``: of so many turns."""
    return np.sin(np.asarray(x, f8) * (2 * np.pi)).astype(np.asarray(x).dtype)


def cosine(x: Any) -> Any:
    """``v_cos_f32``: of so many turns."""
    return np.cos(np.asarray(x, f8) * (2 * np.pi)).astype(np.asarray(x).dtype)


def power_of_two(x: Any) -> Any:
    """``v_exp_f32``."""
    return np.exp2(x)


def logarithm(x: Any) -> Any:
    """``v_log_f32``, to base 2."""
    return np.log2(x)


def reciprocal(x: Any) -> Any:
    """``v_rcp``."""
    return x.dtype.type(1) / x


def reciprocal_root(x: Any) -> Any:
    """``v_rsq``."""
    return (1 / np.sqrt(np.asarray(x, f8))).astype(x.dtype)
