"""Floating-point formats: bit patterns to values and back, with the rounding and NaN rules of PTX ``cvt``.

The formats are the IEEE-like f16, bf16, tf32 and f32; the 8-bit e4m3 (no infinity) and e5m2; the 6- and 4-bit e2m3,
e3m2 and e2m1 (neither infinity nor NaN); and the scale format ue8m0. See PTX ISA, "Alternate floating-point data
formats" and ``cvt``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["FORMATS", "Format", "Rounding", "decode", "encode", "encode_randomly", "pack_pair", "unpack_pair"]

Rounding: TypeAlias = Literal["rn", "rna", "rz", "rm", "rp"]
Bits: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Format:
    """A floating-point format of a sign, an exponent and a mantissa.

    Attributes
    ----------
    name
        PTX's name.
    mantissa
        Stored mantissa bits.
    bias
        Exponent bias.
    storage
        Unsigned NumPy type that holds one bit pattern.
    sign
        The sign bit (0 for ue8m0, which has none).
    largest
        Bits of the largest finite magnitude.
    infinity
        Bits of +infinity, or None if the format has none.
    nan
        Bits of the NaN that ``cvt`` makes, or None if the format has none.
    pad
        Low bits of the pattern that are not part of the format (tf32 is f32 without its low 13 bits).
    """

    name: str
    mantissa: int
    bias: int
    storage: type[np.unsignedinteger[Any]]
    sign: int
    largest: int
    infinity: int | None
    nan: int | None
    pad: int = 0


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f32", 23, 127, np.uint32, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF),
        Format("tf32", 10, 127, np.uint32, 1 << 31, 0x7F7FE000, 0x7F800000, 0x7FFFE000, pad=13),
        Format("f16", 10, 15, np.uint16, 1 << 15, 0x7BFF, 0x7C00, 0x7FFF),
        Format("bf16", 7, 127, np.uint16, 1 << 15, 0x7F7F, 0x7F80, 0x7FFF),
        Format("e4m3", 3, 7, np.uint8, 0x80, 0x7E, None, 0x7F),
        Format("e5m2", 2, 15, np.uint8, 0x80, 0x7B, 0x7C, 0x7F),
        Format("e2m3", 3, 1, np.uint8, 0x20, 0x1F, None, None),
        Format("e3m2", 2, 3, np.uint8, 0x20, 0x1F, None, None),
        Format("e2m1", 1, 1, np.uint8, 0x08, 0x07, None, None),
        Format("ue8m0", 0, 127, np.uint8, 0, 0xFE, None, 0xFF),
    )
}
"""Formats by PTX's name."""


def _table(dtype: Any, bits: int) -> npt.NDArray[np.float32]:
    """Return the value of every byte whose low ``bits`` are a pattern of an ml_dtypes type."""
    codes = (np.arange(256) & ((1 << bits) - 1)).astype(np.uint8)
    with np.errstate(invalid="ignore"):
        return np.asarray(codes.view(dtype), np.float32)


def _f16_table() -> npt.NDArray[np.float32]:
    """Return the value of every f16 pattern; a table is twice as fast as NumPy's conversion."""
    with np.errstate(invalid="ignore"):
        values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    values.view(np.uint32)[np.isnan(values)] = 0x7FFFFFFF
    return values


_TABLES: dict[str, npt.NDArray[np.float32]] = {
    "f16": _f16_table(),
    "e4m3": _table(ml_dtypes.float8_e4m3fn, 8),
    "e5m2": _table(ml_dtypes.float8_e5m2, 8),
    "e2m3": _table(ml_dtypes.float6_e2m3fn, 6),
    "e3m2": _table(ml_dtypes.float6_e3m2fn, 6),
    "e2m1": _table(ml_dtypes.float4_e2m1fn, 4),
    "ue8m0": _table(ml_dtypes.float8_e8m0fnu, 8),
}


def decode(bits: npt.ArrayLike, fmt: str) -> npt.NDArray[np.float32]:
    """Return the values of bit patterns; every format's values are exact in float32.

    Parameters
    ----------
    bits
        Patterns in the format's storage type. Bits above a 4- or 6-bit pattern, and tf32's low 13, are ignored.
    fmt
        A key of `FORMATS`.

    Returns
    -------
    values : float32, of the same shape
    """
    form = _format(fmt)
    codes = np.ascontiguousarray(bits, dtype=form.storage)
    if fmt == "bf16":
        widened: npt.NDArray[np.float32] = codes.view(ml_dtypes.bfloat16).astype(np.float32)
        return widened
    if fmt == "f32":
        return codes.view(np.float32)
    if fmt == "tf32":
        return (codes & np.uint32(0xFFFFE000)).view(np.float32)
    return _TABLES[fmt].take(codes)


def encode(
    values: npt.ArrayLike,
    fmt: str,
    rounding: Rounding = "rn",
    *,
    saturate: bool = False,
    ftz: bool = False,
    relu: bool = False,
) -> Bits:
    """Return the bit patterns nearest to values, as ``cvt.<rounding>.<fmt>`` does.

    Parameters
    ----------
    values
        float32 or float64 (anything else is converted to float64).
    fmt
        A key of `FORMATS`.
    rounding
        To nearest even, to nearest with ties away from zero, towards zero, down, or up.
    saturate
        ``.satfinite``: what is too large, infinity too, becomes the largest finite magnitude. Formats without infinity
        and NaN always do.
    ftz
        Flush subnormal float32 inputs, and subnormal f32 results, to a zero of the same sign.
    relu
        Clamp negative inputs to zero.

    Returns
    -------
    bits : the format's storage type, of the same shape

    Notes
    -----
    NaN becomes the format's one canonical NaN, or the largest value if it has none; but f64 to f32, and ``rna`` to
    tf32, keep sign and payload. An overflow becomes infinity if the format has one and NaN otherwise, except where the
    rounding direction forbids to leave the finite range. All of this was compared with an H200, NaN patterns included.
    """
    form = _format(fmt)
    given = np.asarray(values)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):  # Signalling NaNs are no accident here.
        if rounding == "rn" and given.dtype == np.float32 and fmt in NEAREST and not (ftz or relu):
            return NEAREST[fmt](given, saturate)
        x = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
        if ftz and x.dtype == np.float32:
            x = np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(x.dtype.type(0), x), x)
        if relu:
            x = np.where(x <= 0, x.dtype.type(0), x)
        if form.name == "ue8m0":
            return _encode_scale(np.asarray(x, np.float64), rounding, saturate)
        bits = _encode(np.asarray(x, np.float64), form, rounding, saturate)
        if fmt == "f32" and given.dtype == np.float64:
            bits = np.where(np.isnan(x), x.astype(np.float32).view(np.uint32), bits)
        if fmt == "tf32" and rounding == "rna":
            bits = np.where(np.isnan(x), x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000), bits)
        if ftz and fmt == "f32":
            bits = np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(np.uint32)
        return bits


def encode_randomly(
    values: npt.NDArray[np.float32],
    fmt: str,
    draws: npt.NDArray[np.float64],
    *,
    saturate: bool = False,
    relu: bool = False,
) -> Bits:
    """Return bit patterns rounded by random numbers, as ``cvt.rs.<fmt>`` does.

    Parameters
    ----------
    values
        Numbers to round.
    fmt
        A key of `FORMATS`, not ue8m0.
    draws
        In [0, 1): a magnitude is rounded up where its draw carries it over the last bit that is kept.
    saturate, relu
        As for `encode`.
    """
    x = np.where(values <= 0, 0.0, values.astype(np.float64)) if relu else values.astype(np.float64)
    return _encode(x, _format(fmt), "rz", saturate, draws)


def pack_pair(upper: npt.ArrayLike, lower: npt.ArrayLike, width: int) -> npt.NDArray[np.uint32]:
    """Return ``upper << width | lower``: the two patterns of an x2 format in one register."""
    return (np.asarray(upper).astype(np.uint32) << np.uint32(width)) | np.asarray(lower).astype(np.uint32)


def unpack_pair(packed: npt.ArrayLike, width: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the (upper, lower) patterns of ``width`` bits of an x2 format."""
    word = np.asarray(packed).astype(np.uint32)
    mask = np.uint32((1 << width) - 1)
    return (word >> np.uint32(width)) & mask, word & mask


def _format(name: str) -> Format:
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"fmt = {name!r}: must be one of {', '.join(FORMATS)}") from None


def _encode_f32(x: npt.NDArray[np.float32], saturate: bool) -> npt.NDArray[np.uint32]:
    bits = np.array(x).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    if saturate:
        bits -= magnitude == 0x7F800000
    bits[magnitude > 0x7F800000] = 0x7FFFFFFF
    return bits


def _encode_bf16(x: npt.NDArray[np.float32], saturate: bool) -> npt.NDArray[np.uint16]:
    bits: npt.NDArray[np.uint16] = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    if saturate:
        bits -= (bits & np.uint16(0x7FFF)) == 0x7F80
    missing = np.isnan(x)
    if np.count_nonzero(missing):
        bits[missing] = 0x7FFF
    return bits


def _encode_by_cast(x: npt.NDArray[np.float32], saturate: bool, form: Format, dtype: Any) -> Bits:
    """Encode through a NumPy type that rounds to nearest even but may differ in NaN and overflow."""
    bits: Bits = x.astype(dtype).view(form.storage)
    if saturate:
        # What rounds beyond the largest value has become the pattern after it: infinity, or e4m3's NaN.
        beyond = bits & form.storage(form.sign - 1) > form.largest
        bits[beyond] = (bits[beyond] & form.storage(form.sign)) | form.storage(form.largest)
    missing = np.isnan(x)
    if np.count_nonzero(missing):
        assert form.nan is not None
        bits[missing] = form.nan
    return bits


NEAREST: dict[str, Callable[[npt.NDArray[np.float32], bool], Bits]] = {
    "f32": _encode_f32,
    "bf16": _encode_bf16,
    "f16": partial(_encode_by_cast, form=FORMATS["f16"], dtype=np.float16),
    "e4m3": partial(_encode_by_cast, form=FORMATS["e4m3"], dtype=ml_dtypes.float8_e4m3fn),
    "e5m2": partial(_encode_by_cast, form=FORMATS["e5m2"], dtype=ml_dtypes.float8_e5m2),
}
"""Fast paths for the conversions that epilogues are made of: round to nearest even from float32. NumPy's floating-point
warnings must be off, as they are while a launch runs."""


def _encode(
    x: npt.NDArray[np.float64],
    form: Format,
    rounding: Rounding,
    saturate: bool,
    draws: npt.NDArray[np.float64] | None = None,
) -> Bits:
    """Round by scaling every value until its last kept bit weighs one, which is exact."""
    negative = np.signbit(x)
    finite = np.isfinite(x)
    magnitude = np.where(finite, np.abs(x), 0.0)
    lowest = 1 - form.bias
    exponent = np.where(magnitude > 0, np.maximum(np.frexp(magnitude)[1] - 1, lowest), lowest)
    scaled = np.ldexp(magnitude, form.mantissa - exponent)
    scaled = _round(scaled, negative, rounding) if draws is None else np.floor(scaled + draws)
    # A subnormal has no implicit bit and a carry out of the mantissa raises the exponent: both come out of this sum.
    bits = ((exponent - lowest).astype(np.int64) << form.mantissa) + scaled.astype(np.int64)
    largest = form.largest >> form.pad
    infinite = ~finite & ~np.isnan(x)
    if saturate or form.nan is None:
        bits = np.where(infinite | (bits > largest), largest, bits)
    else:
        beyond = (form.infinity if form.infinity is not None else form.nan) >> form.pad
        stays = {"rz": np.full_like(negative, draws is None), "rm": ~negative, "rp": negative}.get(
            rounding, np.zeros_like(negative)
        )
        bits = np.where(bits > largest, np.where(stays, largest, beyond), bits)
        bits = np.where(infinite, beyond, bits)
    bits = (bits << form.pad) | np.where(negative, form.sign, 0)
    return np.where(np.isnan(x), form.largest if form.nan is None else form.nan, bits).astype(form.storage)


def _round(scaled: npt.NDArray[np.float64], negative: npt.NDArray[np.bool_], rounding: Rounding) -> Any:
    """Round magnitudes to integers in a direction that is meant for the signed values."""
    if rounding == "rn":
        return np.rint(scaled)
    whole = np.floor(scaled)
    if rounding == "rz":
        return whole
    if rounding == "rna":
        return whole + (scaled - whole >= 0.5)
    away = negative if rounding == "rm" else ~negative
    return whole + ((scaled != whole) & away)


def _encode_scale(x: npt.NDArray[np.float64], rounding: Rounding, saturate: bool) -> npt.NDArray[np.uint8]:
    """Encode the powers of two of ue8m0: of magnitudes, towards zero or up."""
    if rounding not in ("rz", "rp"):
        raise ValueError(f"rounding = {rounding!r}: ue8m0 is made with 'rz' or 'rp' only")
    fraction, exponent = np.frexp(np.where(np.isfinite(x), np.abs(x), 1.0))
    # frexp gives [0.5, 1) * 2**exponent, so a power of two has fraction 0.5 and its own exponent is one less.
    power = exponent - 1 + ((fraction > 0.5) if rounding == "rp" else 0)
    bits = np.where(fraction == 0, 0, np.maximum(power + 127, 0))
    overflow = np.isinf(x) | (bits > 0xFE)
    bits = np.where(overflow, 0xFE if saturate else 0xFF, bits)
    return np.where(np.isnan(x), 0xFF, bits).astype(np.uint8)
