"""Conversions between number formats, with the chips' 8-bit floats."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.arithmetic.bits import f2, f4, f8, i4, u1, u2, u4

Array = npt.NDArray[Any]

FP8 = {False: ml_dtypes.float8_e4m3fn, True: ml_dtypes.float8_e4m3fnuz}
BF8 = {False: ml_dtypes.float8_e5m2, True: ml_dtypes.float8_e5m2fnuz}
"""Types of 8 bits, by whether the chip's have no negative zero (gfx942)."""
NARROW = {"fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn}


def byte_type(name: str, fnuz: bool) -> Any:
    """The type that ``fp8`` or ``bf8`` means on a chip."""
    return (FP8 if name == "fp8" else BF8)[fnuz]


@lru_cache(16)
def table(dtype: Any, bits: int = 8) -> Any:
    """The value of every pattern of a type as float32."""
    codes = (np.arange(256) & ((1 << bits) - 1)).astype(u1)
    with np.errstate(invalid="ignore"):
        return codes.view(dtype).astype(f4)


@lru_cache(16)
def _largest(dtype: Any) -> Any:
    """The largest finite number of a type."""
    values = table(dtype, {NARROW["fp4"]: 4, NARROW["fp6"]: 6, NARROW["bf6"]: 6}.get(dtype, 8))
    return values[np.isfinite(values)].max()


@lru_cache(1)
def _halves() -> Any:
    return np.arange(1 << 16, dtype=u2).view(f2).astype(f4)


def f16_to_f32(bits: Any) -> Any:
    """Float16 patterns as float32; a table is faster than NumPy's conversion."""
    return _halves()[bits]


def halves_as_f32(bits: Any, high: int) -> Any:
    """One half of registers, float16, as float32."""
    return np.asarray(_halves()[(bits >> u4(16)) if high else (bits & u4(0xFFFF))])


def bf16_to_f32(bits: Any) -> Any:
    """Bfloat16 in the low half as float32."""
    return (np.asarray(bits, u4) << u4(16)).view(f4)


def f32_to_bf16(x: Any) -> Any:
    """Float32 rounded to bfloat16, as uint32."""
    bits = np.ascontiguousarray(x, f4).view(u4)
    rounded = (bits + u4(0x7FFF) + (bits >> u4(16) & u4(1))) >> u4(16)
    return np.where(np.isnan(x), bits >> u4(16) | u4(0x40), rounded)


def to_bf16_pair(a: Any, b: Any) -> Any:
    """``v_cvt_pk_bf16_f32``."""
    return f32_to_bf16(a) | f32_to_bf16(b) << u4(16)


def half_bits(x: Any) -> Any:
    """Numbers rounded to float16, as uint32."""
    return np.asarray(x).astype(f2).view(u2).astype(u4)


def to_half_pair(a: Any, b: Any) -> Any:
    """``v_cvt_pk_f16_f32``."""
    return half_bits(a) | half_bits(b) << u4(16)


def half_toward_zero(x: Any) -> Any:
    """Numbers as float16 without rounding up, as uint32."""
    near = np.asarray(x, f4).astype(f2)
    above = np.abs(near.astype(f4)) > np.abs(x)
    lowered = np.where(above, np.nextafter(near, f2(0)), near)
    return lowered.view(u2).astype(u4)


def to_half_pair_toward_zero(a: Any, b: Any) -> Any:
    """``v_cvt_pkrtz_f16_f32``."""
    return half_toward_zero(a) | half_toward_zero(b) << u4(16)


def byte_bits(x: Any, dtype: Any, saturate: bool = True) -> Any:
    """Float32 rounded to 8 bits, as uint32: beyond the range the largest number, or infinity or NaN."""
    x = np.asarray(x, f4)
    most = _largest(dtype)
    held = np.where(np.isnan(x), x, np.clip(x, -most, most)) if saturate else x
    return held.astype(dtype).view(u1).astype(u4)


def from_byte(bits: Any, dtype: Any) -> Any:
    """8-bit floats in the low byte as float32."""
    return table(dtype)[np.asarray(bits) & u4(0xFF)]


def unsigned_byte(x: Any) -> Any:
    """``v_cvt_pk_u8_f32``'s conversion."""
    return np.clip(np.rint(np.where(np.isnan(x), 0, x)), 0, 255).astype(u4)


def scale_exponent(bits: Any) -> Any:
    """The power of two that the exponent field of a float32 says, or NaN."""
    field = (np.asarray(bits, u4) >> u4(23)) & u4(0xFF)
    return np.where(field == 255, np.nan, np.ldexp(f8(1), field.astype(i4) - 127))


def nearest_integer(x: Any) -> Any:
    """``v_cvt_rpi``: the nearest, halves up."""
    return np.floor(np.asarray(x, f8) + 0.5)


def normalised(x: Any, signed: bool) -> Any:
    """``v_cvt_pknorm``: -1 to 1, or 0 to 1, as 16-bit integers."""
    x = np.where(np.isnan(x), 0, x)
    if signed:
        return np.rint(np.clip(x, -1, 1).astype(f8) * 32767).astype(i4).view(u4) & u4(0xFFFF)
    return np.rint(np.clip(x, 0, 1).astype(f8) * 65535).astype(u4)
