"""The arithmetic of tensor cores, bit for bit.

One wgmma or mma.sync on Hopper adds all products of its k and the accumulator at once: every term is cut off (towards
zero) at a fixed distance below the largest exponent among them, where a product's exponent is the sum of its factors',
and that of a subnormal factor the smallest normal one; the sum is exact and then cut off to the width of the result.
16-bit types and tf32 keep 25 bits below the largest exponent and make a full f32; fp8 keeps 13 and makes an f32 of 13
mantissa bits. This reproduces every result recorded on an H200 (all wgmma types, mma.sync, f32 and f16 accumulators,
values of all sizes).

One tcgen05.mma keeps 25 bits of all types and makes a full f32, and a factor that is zero has the smallest exponent of
f32, by MMA-Sim (arXiv 2511.10909), whose authors found it bit-exact on a B200; here it has not been compared with one.

It costs a few milliseconds an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TCGEN05", "Adder", "multiply_add"]

_SMALLEST_NORMAL = {
    "e2m1": 0,
    "e2m3": 0,
    "e3m2": -2,
    "e4m3": -6,
    "e5m2": -14,
    "f16": -14,
    "bf16": -126,
    "tf32": -126,
    "f32": -126,
}
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_FP8 = ("e4m3", "e5m2")


@dataclass(frozen=True)
class Adder:
    """How one instruction adds.

    Attributes
    ----------
    kept
        Bits below the largest exponent that a term keeps.
    mantissa
        Of an f32 result.
    zero
        Exponent of a factor, or an accumulator, that is zero.
    """

    kept: int = 25
    mantissa: int = 23
    zero: int = -1000


_HOPPER = Adder()  # Below every product's exponent, so that zeros never set the scale.
_HOPPER_FP8 = Adder(13, 13)
TCGEN05 = Adder(zero=-126)
"""That of tcgen05.mma without block scales."""


def multiply_add(
    a: npt.NDArray[np.float32],
    b: npt.NDArray[np.float32],
    c: npt.NDArray[np.float32],
    a_type: str,
    b_type: str,
    *,
    to_f16: bool,
    adder: Adder | None = None,
) -> npt.NDArray[Any]:
    """Return ``a @ b + c`` as one instruction computes it.

    Parameters
    ----------
    a : float32[m, k]
        Decoded A of one instruction.
    b : float32[k, n]
        Decoded B.
    c : float32[m, n]
        Accumulator before; zeros where scale-d is false.
    a_type, b_type
        f16, bf16, tf32, e4m3 or e5m2.
    to_f16
        The accumulator is f16: sums keep their full width, for one rounding to f16 by the caller.
    adder
        By default Hopper's for the types.

    Returns
    -------
    d : float32[m, n], or float64[m, n] for f16
        Every NaN is the one that arithmetic makes (7fffffff).
    """
    adder = adder or (_HOPPER_FP8 if a_type in _FP8 else _HOPPER)
    wide, columns, start = a.astype(np.float64), b.astype(np.float64), c.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        plain = wide @ columns + start
        terms = np.concatenate([wide.T[:, :, None] * columns[:, None, :], start[None]])
    if not np.isfinite(plain).all():
        terms = np.where(np.isfinite(plain), terms, 0.0)
    left, right = _exponent(wide, adder, a_type), _exponent(columns, adder, b_type)
    exponents = np.concatenate([left.T[:, :, None] + right[:, None, :], _exponent(start, adder)[None]])
    unit = np.ldexp(1.0, exponents.max(axis=0) - adder.kept)
    total = np.trunc(terms / unit).sum(axis=0) * unit
    if to_f16:
        return np.where(np.isfinite(plain), total, plain)
    step = np.ldexp(1.0, _exponent(total, _HOPPER) - adder.mantissa)
    result = np.trunc(total / step) * step
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.where(np.isfinite(plain), result, plain).astype(np.float32)
    return np.where(np.isnan(rounded), _NAN, rounded)


def _exponent(values: npt.NDArray[np.float64], adder: Adder, dtype: str = "f32") -> npt.NDArray[Any]:
    """Return floor(log2(abs(values))); a subnormal has the exponent of the smallest normal number."""
    return np.where(values == 0, adder.zero, np.maximum(np.frexp(values)[1] - 1, _SMALLEST_NORMAL[dtype]))
