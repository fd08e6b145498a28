"""Matrix products rounded as gfx942's matrix core rounds them, by the model that MMA-Sim publishes (arXiv 2511.10909).

- doubles and float32: fused multiply-adds, one after the other along k.
- 16-bit floats in groups of 8 along k, xf32 of 4: the products of a group are cut off 24 bits below the largest one's
  exponent and summed. That sum, cut off downwards 31 bits below the larger of its own and the accumulator's exponent,
  and the accumulator, cut off downwards 24 bits below it, make the new accumulator, rounded to nearest even.
- 8-bit floats in groups of 16: products at even and at odd places are summed apart, each as above, then both cut off
  downwards 24 bits below the larger exponent; an accumulator whose exponent is more than 25 below the sum's is dropped.

An exponent is that of a product of significands in [1, 2), which may reach 4; subnormal operands keep the exponent of
the smallest normal number. Nothing is flushed. Integers are exact without this; for gfx950 no model is published.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.arithmetic.floats import fma32, fma64

__all__ = ["rounded_product"]

Array = npt.NDArray[Any]
_LOWEST = {"f16": -14, "bf16": -126, "xf32": -126}
"""Exponent of the smallest normal number."""
_LOWEST_BYTES = {("fp8", True): -7, ("bf8", True): -15, ("fp8", False): -6, ("bf8", False): -14}
_PRODUCT_BITS, _SUM_BITS, _ADDED_BITS = 24, 31, 24
_SINGLE = -126


def rounded_product(left: Array, right: Array, c: Array, kind: tuple[str, str], fnuz: bool) -> Array:
    """Return A B + C.

    Parameters
    ----------
    left, right
        Values [..., m, k] and [..., n, k].
    c
        What is added, [..., m, n], float32 or float64.
    kind
        Types of A and B.
    fnuz
        Whether 8-bit floats have no negative zero.
    """
    with np.errstate(all="ignore"):
        if kind[0] in ("f32", "f64"):
            add: Callable[[Array, Array, Array], Array] = fma32 if kind[0] == "f32" else fma64
            total: Array = c
            for k in range(left.shape[-1]):
                a, b = np.broadcast_arrays(left[..., :, None, k], right[..., None, :, k])
                total = add(np.ascontiguousarray(a), np.ascontiguousarray(b), total)
            return total
        octets = kind[0] in ("fp8", "bf8")
        lowest = [_LOWEST_BYTES[name, fnuz] if octets else _LOWEST[name] for name in kind]
        (sa, ea), (sb, eb) = _parts(left, lowest[0]), _parts(right, lowest[1])
        group = 16 if octets else 4 if kind[0] == "xf32" else 8
        for start in range(0, left.shape[-1], group):
            part = slice(start, start + group)
            significands = sa[..., :, None, part] * sb[..., None, :, part]
            exponents = ea[..., :, None, part] + eb[..., None, :, part]
            c = _add_group(significands, exponents, c, octets)
        return c


def _parts(values: Array, lowest: int) -> tuple[Array, Array]:
    """Significands in [1, 2) and exponents; below the smallest normal number the exponent stays."""
    fractions, exponents = np.frexp(values.astype(np.float64))
    exponents = np.where(values == 0, lowest, np.maximum(exponents - 1, lowest))
    plain = np.isfinite(values)
    significands = np.where(plain, np.ldexp(np.where(plain, values, 0).astype(np.float64), -exponents), fractions)
    return significands, exponents


def _sum(significands: Array, exponents: Array) -> tuple[Array, Array]:
    """Sum products, cut off below the largest exponent; zeros count as having float32's smallest one."""
    exponents = np.where(significands == 0, _SINGLE, exponents)
    largest = exponents.max(axis=-1)
    units = np.trunc(np.ldexp(significands, exponents - largest[..., None] + _PRODUCT_BITS))
    return np.ldexp(units.sum(axis=-1), -_PRODUCT_BITS), largest


def _down(values: Array, exponents: Array, to: Array, bits: int) -> Array:
    """Values of one exponent, cut off downwards some bits below another."""
    cut: Array = np.ldexp(np.floor(np.ldexp(values, exponents - to + bits)), -bits)
    return cut


def _add_group(significands: Array, exponents: Array, c: Array, octets: bool) -> Array:
    """The accumulator after one group."""
    if octets:
        sides = [_sum(significands[..., side::2], exponents[..., side::2]) for side in range(2)]
        largest = np.maximum(sides[0][1], sides[1][1])
        total = sum(_down(value, exponent, largest, _ADDED_BITS) for value, exponent in sides)
    else:
        overflow = np.where(np.abs(significands) >= 2, 1, 0) + exponents >= 128
        total, largest = _sum(np.where(overflow, significands * np.inf, significands), exponents)
    added, exponent = _parts(c, _SINGLE)
    top = np.maximum(largest, exponent)
    cut = _down(added, exponent, top, _ADDED_BITS)
    if octets:
        cut = np.where(exponent < top - _ADDED_BITS - 1, 0.0, cut)
    result: Array = np.ldexp(_down(np.asarray(total), largest, top, _SUM_BITS) + cut, top).astype(np.float32)
    return result
