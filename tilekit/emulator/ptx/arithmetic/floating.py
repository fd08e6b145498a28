"""Floating-point arithmetic on lanes, as an H200 does it; called by generated code.

NaNs: f32 and 16-bit arithmetic makes one NaN (all ones below the sign), f64 passes on its last NaN operand.
16-bit values are computed in float32 and rounded once; f32 multiply-add is computed in float64 and rounded to float32,
which differs from a fused operation only where the float64 sum was itself rounded to a tie between two float32 values.
The approximate instructions (``ex2``, ``rcp``, ``sin`` …) are computed exactly and rounded, so compare them with a
tolerance, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic import formats, rounding
from tilekit.emulator.core.arithmetic.formats import Rounding

Array = npt.NDArray[Any]
_SMALLEST_NORMAL = {"f32": np.float32(2.0**-126), "f16": np.float32(2.0**-14), "f16x2": np.float32(2.0**-14)}
_NAN32 = np.uint32(0x7FFFFFFF).view(np.float32)
_QUIET64 = np.uint64(1 << 51)
_OUTSIDE = np.uint16(0x7FF7)
"""What a tensor copy that fills with NaN writes, in f16 and in bf16."""


def clean(values: Array) -> Array:
    """Float32 results with their NaNs made the one that the hardware makes."""
    flat = values.ravel()
    square = flat.dot(flat)
    if square == square:
        return values
    return np.where(np.isnan(values), _NAN32, values)


def pass_nan(values: Array, *operands: Array) -> Array:
    """Float64 results; where an operand is a NaN, the last one of them, quieted."""
    square = values.dot(values)
    if square == square:
        return values
    for operand in operands:
        quiet = (np.ascontiguousarray(operand).view(np.uint64) | _QUIET64).view(np.float64)
        values = np.where(np.isnan(operand), quiet, values)
    return values


def widen(pattern: Array, kind: str) -> Array:
    """Values of 16-bit patterns (``f16``, ``bf16``, and the pairs of ``x2``: two values a lane) as float32."""
    if kind == "f16":
        return pattern.astype(np.float32)
    if kind == "f16x2":
        return np.ascontiguousarray(pattern).view(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(pattern).view(np.uint16)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: Array, kind: str) -> Array:
    """Patterns of float32 or float64 values in a 16-bit kind, rounded to nearest even."""
    if kind == "f16":
        return formats.encode(values, "f16").view(np.float16)
    if kind == "f16x2":
        return formats.encode(values, "f16").view(np.uint32)
    patterns = formats.encode(values, "bf16")
    return patterns if kind == "bf16" else patterns.view(np.uint32)


def halves(pattern: Array) -> Array:
    """The two f32 of each 64-bit pattern, the lower first."""
    return np.ascontiguousarray(pattern).view(np.float32)


def flush(values: Array, kind: str = "f32") -> Array:
    """Subnormal values become zeros of their sign (``.ftz``)."""
    limit = _SMALLEST_NORMAL[kind]
    return np.where(np.abs(values) < limit, np.copysign(values.dtype.type(0), values), values)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32, rounded once."""
    return clean((a.astype(np.float64) * b + c).astype(np.float32))


def multiply_add_wide(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float64: split so that the product's rounding error is added back."""
    product = a * b
    split = 134217729.0
    a_high = a * split - (a * split - a)
    b_high = b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    total = product + c
    virtual = total - product
    result: Array = total + ((product - (total - virtual)) + (c - virtual) + error)
    return pass_nan(np.where(np.isfinite(result) & (result != 0), result, total), c, a, b)


def zero_outside(patterns: Array, a: Array, b: Array) -> Array:
    """16-bit results, or pairs of them, that are zero where a factor is the NaN of elements out of bounds."""
    halves16 = [np.ascontiguousarray(x).view(np.uint16) for x in (patterns, a, b)]
    outside = (halves16[1] == _OUTSIDE) | (halves16[2] == _OUTSIDE)
    return np.where(outside, np.uint16(0), halves16[0]).view(a.dtype)


def saturate(values: Array) -> Array:
    """Clamp to [0, 1]; a NaN and a negative zero become zero (``.sat``)."""
    zero = values.dtype.type(0)
    clamped: Array = np.clip(values, 0, 1) + zero
    return np.where(np.isnan(values), zero, clamped)


def clamp_negative(values: Array) -> Array:
    """``.relu``: negative values become zero, NaNs stay."""
    return np.where(values <= 0, values.dtype.type(0), values)


def extremum(name: str, a: Array, b: Array, nan: bool) -> Array:
    """``min`` and ``max``: the number beside a NaN unless ``nan``; a negative zero is less than a positive one."""
    result: Array = getattr(np, f"{name}imum")(a, b)
    flat = result.ravel()
    square = flat.dot(flat)
    if square == square and result.all():  # no NaN, which numpy passes on, and no zero
        return result
    result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
    if not result.all():
        first_less = np.signbit(a)
        lesser, greater = np.where(first_less, a, b), np.where(first_less, b, a)
        result = np.where((a == 0) & (b == 0), lesser if name == "min" else greater, result)
    if nan:
        result = np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), result)
    if result.dtype == np.float32:
        return clean(result)
    quiet = (np.ascontiguousarray(b).view(np.uint64) | _QUIET64).view(np.float64)
    return np.where(np.isnan(result), quiet, result)


def extremum_xor_sign(name: str, a: Array, b: Array, nan: bool) -> Array:
    """``min.xorsign.abs``: of the magnitudes, with the product's sign."""
    magnitude = extremum(name, np.abs(a), np.abs(b), nan)
    signed = np.copysign(magnitude, np.copysign(1, a) * np.copysign(1, b)).astype(a.dtype)
    return np.where(np.isnan(magnitude), magnitude, signed)


def negate_wide(values: Array, absolute: bool) -> Array:
    """``neg`` and ``abs`` of float64, which leave a NaN's sign alone."""
    return pass_nan(np.abs(values) if absolute else -values, values)


def approximate(name: str, values: Array) -> Array:
    """One of the approximate functions, computed in float64 and rounded to the argument's type."""
    result = _FUNCTIONS[name](values.astype(np.float64)).astype(values.dtype)
    return clean(result) if result.dtype == np.float32 else pass_nan(result, values)


def _reciprocal(x: Array) -> Array:
    return 1.0 / x


def _reciprocal_root(x: Array) -> Array:
    return np.where(x == 0, np.copysign(np.inf, x), 1.0 / np.sqrt(x))


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rcp": _reciprocal,
    "rsqrt": _reciprocal_root,
}


def directed(name: str, direction: str, *operands: Array) -> Array:
    """Arithmetic rounded in a direction, f32 or f64."""
    if operands[0].dtype == np.float64:
        if name == "rcp":
            return pass_nan(rounding.arithmetic64("div", direction, np.ones_like(operands[0]), *operands), *operands)
        order = (operands[2], *operands[:2]) if name == "fma" else operands[::-1] if name == "div" else operands
        return pass_nan(rounding.arithmetic64(name, direction, *operands), *order)
    if name == "fma":
        return clean(rounding.multiply_add32(operands[0], operands[1], operands[2], direction))
    if name == "sqrt":
        return clean(rounding.root32(operands[0], direction))
    if name == "rcp":
        return clean(rounding.arithmetic32("div", np.ones_like(operands[0]), operands[0], direction))
    return clean(rounding.arithmetic32(name, operands[0], operands[1], direction))


def classify(values: Array, test: str) -> Array:
    """``testp``; a zero is normal."""
    if test == "finite":
        return np.isfinite(values)
    if test == "infinite":
        return np.isinf(values)
    if test == "number":
        return ~np.isnan(values)
    if test == "notanumber":
        return np.isnan(values)
    tiny = np.finfo(values.dtype).tiny
    normal = np.isfinite(values) & ((np.abs(values) >= tiny) | (values == 0))
    result: Array = normal if test == "normal" else np.isfinite(values) & ~normal
    return result


def to_integer(values: Array, direction: str, kind: str) -> Array:
    """``cvt`` to an integer: rounded and clamped to the type's range.

    A NaN gives zero, but the type's top bit when the source has 64 bits or the result does.
    """
    bits = int(kind[1:])
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
    whole = _INTEGRAL[direction](values.astype(np.float64))
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
    nan = np.isnan(whole)
    over, under = whole >= float(high), whole <= float(low)
    result = np.where(nan | over | under, 0.0, whole).astype(dtype)
    result = np.where(over, dtype.type(high), np.where(under, dtype.type(low), result))
    top = bits == 64 or values.dtype == np.float64
    return np.where(nan, np.array(1 << bits - 1 if top else 0, f"u{bits // 8}").view(dtype), result)


_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def round_to_integral(values: Array, direction: str) -> Array:
    """``cvt.rni.f32.f32`` and the like."""
    result = _INTEGRAL[direction](values).astype(values.dtype)
    return clean(result) if result.dtype == np.float32 else pass_nan(result, values)


def from_integer(values: Array, bits: int, direction: str) -> Array:
    """``cvt`` from an integer to f32 or f64."""
    if direction == "rn":
        return values.astype(np.float32 if bits == 32 else np.float64)
    return rounding.integers(values, bits, direction)


def to_odd(values: Array) -> Array:
    """Integers as float64, rounded so that rounding once more, in any direction, gives what one rounding would.

    What does not fit in 53 bits makes the lowest of them odd.
    """
    if values.dtype.itemsize < 8:
        return values.astype(np.float64)
    fits = np.abs(values.astype(np.float64)) < 2.0**53
    kept = (values >> 11) | ((values & 0x7FF) != 0).astype(values.dtype)
    return np.where(fits, values.astype(np.float64), kept.astype(np.float64) * 2048.0)


def clamp_integer(values: Array, kind: str) -> Array:
    """``cvt.sat`` between integers."""
    bits = int(kind[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
    info = np.iinfo(values.dtype)
    clipped = np.clip(values, max(low, int(info.min)), min(high, int(info.max)))
    return clipped.astype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")


def to_single(values: Array, direction: Rounding) -> Array:
    """Float64 to float32; this conversion makes another NaN than float32 arithmetic."""
    rounded = values.astype(np.float32) if direction == "rn" else formats.encode(values, "f32", direction)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


def convert(values: Array, kind: str, direction: Rounding, saturating: bool, relu: bool) -> Array:
    """Float values to the patterns of a format."""
    patterns = formats.encode(values, kind, direction, saturate=saturating, relu=relu)
    if kind in ("f16", "bf16") and values.dtype == np.float64:  # These conversions make another NaN.
        patterns = np.where(np.isnan(values), np.uint16(0x7E00 if kind == "f16" else 0x7FC0), patterns)
    return patterns


def to_tf32_finite(values: Array) -> Array:
    """``cvt.rna.satfinite.tf32``: what is infinite, or no number, loses one from the last place that is kept."""
    special = ~np.isfinite(values)
    pattern = np.where(special, values.view(np.uint32) & 0xFFFFE000, formats.encode(values, "tf32", "rna"))
    return np.where((pattern & 0x7F800000) == 0x7F800000, pattern - 0x2000, pattern).astype(np.uint32)


def convert_pair(upper: Array, lower: Array, kind: str, direction: Rounding, saturating: bool, relu: bool) -> Array:
    """Two floats to one packed register: ``upper`` in the high half."""
    pair = np.empty((*lower.shape, 2), np.float32)
    pair[..., 0] = lower
    pair[..., 1] = upper
    if direction == "rn" and not relu and kind in formats.NEAREST:
        encoded = formats.NEAREST[kind](pair, saturating)
    else:
        encoded = formats.encode(pair, kind, direction, saturate=saturating, relu=relu)
    packed: Array = encoded.view(np.uint32 if kind in ("f16", "bf16") else np.uint16)[..., 0]
    return packed


def decode_bytes(patterns: Array, kind: str) -> Array:
    """Values of two fp8 patterns a lane as float16, in which they are exact."""
    return formats.encode(formats.decode(np.ascontiguousarray(patterns).view(np.uint8), kind), "f16").view(np.float16)
