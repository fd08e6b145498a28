"""Floating-point arithmetic on lanes; called by generated code.

16-bit values are computed in float32 and rounded once; f32 multiply-add is computed in float64 and rounded to float32,
which differs from a fused operation only where the float64 sum lies exactly between two float32 values. The
approximate instructions (``ex2``, ``rcp``, ``sin`` …) are computed exactly and rounded, so compare them with a
tolerance, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import formats
from .formats import Rounding

Array = npt.NDArray[Any]
_SMALLEST_NORMAL = np.float32(2.0**-126)


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
        return values.astype(np.float16)
    if kind == "f16x2":
        return values.astype(np.float16).view(np.uint32)
    patterns = formats.encode(values, "bf16")
    return patterns if kind == "bf16" else patterns.view(np.uint32)


def halves(pattern: Array) -> Array:
    """The two f32 of each 64-bit pattern, the lower first."""
    return np.ascontiguousarray(pattern).view(np.float32)


def flush(values: Array) -> Array:
    """Subnormal float32 values become zeros of their sign (``.ftz``)."""
    return np.where(np.abs(values) < _SMALLEST_NORMAL, np.copysign(np.float32(0), values), values)


def rounded(values: Array, rounding: Rounding) -> Array:
    """Float64 values as float32 in a rounding mode other than nearest even."""
    return formats.encode(values, "f32", rounding).view(np.float32)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32, rounded once."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


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
    return np.where(np.isfinite(result), result, total)


def saturate(values: Array) -> Array:
    """Clamp to [0, 1]; a NaN becomes zero (``.sat``)."""
    return np.where(np.isnan(values), values.dtype.type(0), np.clip(values, 0, 1))


def approximate(name: str, values: Array) -> Array:
    """One of the approximate functions, computed in float64 and rounded to the argument's type."""
    result: Array = _FUNCTIONS[name](values.astype(np.float64)).astype(values.dtype)
    return result


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


def classify(values: Array, test: str) -> Array:
    """``testp``."""
    if test == "finite":
        return np.isfinite(values)
    if test == "infinite":
        return np.isinf(values)
    if test == "number":
        return ~np.isnan(values)
    if test == "notanumber":
        return np.isnan(values)
    tiny = np.finfo(values.dtype).tiny
    normal = np.isfinite(values) & (np.abs(values) >= tiny)
    result: Array = normal if test == "normal" else np.isfinite(values) & ~normal
    return result


def to_integer(values: Array, rounding: str, kind: str) -> Array:
    """``cvt`` to an integer: rounded, clamped to the type's range, NaN to zero (the top bit for 64 bits)."""
    wide = values.astype(np.float64)
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](wide)
    bits = int(kind[1:])
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
    nan = np.isnan(whole)
    over, under = whole >= float(high), whole <= float(low)
    result = np.where(nan | over | under, 0.0, whole).astype(dtype)
    result = np.where(over, dtype.type(high), np.where(under, dtype.type(low), result))
    nothing = np.iinfo(dtype).min if bits == 64 and kind[0] == "s" else (1 << 63 if bits == 64 else 0)
    return np.where(nan, dtype.type(nothing), result)


def round_to_integral(values: Array, rounding: str) -> Array:
    """``cvt.rni.f32.f32`` and the like."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](values).astype(values.dtype)


def clamp_integer(values: Array, kind: str) -> Array:
    """``cvt.sat`` between integers."""
    bits = int(kind[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
    info = np.iinfo(values.dtype)
    clipped = np.clip(values, max(low, int(info.min)), min(high, int(info.max)))
    return clipped.astype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")


def convert(values: Array, kind: str, rounding: Rounding, saturating: bool, relu: bool) -> Array:
    """Float values to the patterns of a format."""
    return formats.encode(values, kind, rounding, saturate=saturating, relu=relu)


def convert_pair(upper: Array, lower: Array, kind: str, rounding: Rounding, saturating: bool, relu: bool) -> Array:
    """Two floats to one packed register: ``upper`` in the high half."""
    if kind == "bf16" and rounding == "rn" and not saturating and not relu:
        pair = np.empty((32, 2), np.float32)
        pair[:, 0] = lower
        pair[:, 1] = upper
        word = pair.view(np.uint32)
        bits = word + (np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        nan = pair != pair
        if nan.any():
            bits[nan] = 0x7FFF
        return bits.astype(np.uint16).view(np.uint32).ravel()
    width = 16 if kind in ("f16", "bf16") else 8
    encoded = [formats.encode(x, kind, rounding, saturate=saturating, relu=relu) for x in (upper, lower)]
    packed = formats.pack_pair(encoded[0], encoded[1], width)
    return packed if width == 16 else packed.astype(np.uint16)
