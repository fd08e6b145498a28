"""What the operands of a case hold, and the result they must give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.matmul.matmul_case import Case
from tilekit.dtypes import F32, DType, as_dtype

Array = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """Host arrays of a case, C-ordered, and the scale as a number.

    Scales of rows and columns keep the product's other dimension as 1.
    """

    a: Array
    b: Array
    bias: Array | None
    scale: float | None
    scale_a: Array | None = None
    scale_b: Array | None = None


def inputs_of(case: Case) -> Inputs:
    """The inputs of a case: the same for the same case, on every machine."""
    rng = np.random.default_rng(case.seed)
    a_shape, b_shape = case.a_layout.shape, case.b_layout.shape
    positive = case.kernel.activation is not None
    plain = case.data.startswith("coded")  # one value goes through unchanged, so that it still tells its place
    if case.data == "coded_a":
        a = coded(a_shape, case.a_dtype, case.out_dtype, rng, positive=positive)
        b = picking(b_shape, -1, case.b_dtype, rng)
    elif case.data == "coded_b":
        a = picking(a_shape, -2, case.a_dtype, rng)
        b = coded(b_shape, case.b_dtype, case.out_dtype, rng, positive=positive)
    elif case.data == "integers":
        most = _largest_integer(case)
        a = _integers(rng, most, a_shape, case.a_dtype)
        b = _integers(rng, most, b_shape, case.b_dtype)
    else:
        a = rng.standard_normal(a_shape, np.float32).astype(case.a_dtype.numpy)
        b = rng.standard_normal(b_shape, np.float32).astype(case.b_dtype.numpy)
    bias = None
    if case.kernel.bias is not None:
        dtype = as_dtype(case.kernel.bias)
        values = rng.standard_normal(case.n) if case.data == "normal" else rng.integers(-8, 9, case.n)
        bias = (np.zeros(case.n) if plain else values).astype(dtype.numpy)
    scale = None
    if case.kernel.scale is not None:
        scale = 1.0 if plain else 0.0625 if case.data == "normal" else float(rng.choice([-0.5, 0.25, 2.0]))
    # Each matrix of a batch has its own, or all have the same.
    lead = case.out_shape[:-2] if case.seed % 3 else ()
    scale_a = _factors(rng, case, (*lead, case.m, 1)) if "a" in case.kernel.scales else None
    scale_b = _factors(rng, case, (*lead, 1, case.n)) if "b" in case.kernel.scales else None
    return Inputs(a, b, bias, scale, scale_a, scale_b)


def _factors(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> Array:
    """Scales of rows or columns: powers of two where the result must be exact, in rows and columns of their own."""
    drawn = rng.uniform(0.05, 1, shape) if case.data == "normal" else rng.choice([-1.0, -0.5, 0.25, 0.5, 1.0], shape)
    return drawn.astype(np.float32)


def _largest_integer(case: Case) -> int:
    """Bound of the operands for which no sum loses a bit.

    The sum of magnitudes stays below 2^24, what f32 counts to; below 2^13 for fp8, whose products the tensor core adds
    with 14 bits; and below 2^14 where the output is f16, which ends at 65504.
    """
    room = 1 << (13 if case.a_dtype.bits == 8 else 14 if case.kernel.out == "f16" else 24)
    return int(max(1, min(8, (room / max(case.k, 1)) ** 0.5)))


def _integers(rng: np.random.Generator, most: int, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(-most, most, shape, np.int8, endpoint=True).astype(dtype.numpy)


def coded(
    shape: tuple[int, ...], dtype: DType, out: DType, rng: np.random.Generator, *, positive: bool = False
) -> Array:
    """Values that tell places apart: along each axis the type's values take their turns, by a step of the axis's own.

    A matrix of no more elements than there are values (30 thousand for bf16) has each at most once. In a larger one,
    and for fp8 with its two hundred, two elements of a row or column still share a value only at multiples of a prime
    distance, which no tile, subtile or swizzle has, and two others for one pair of distances in that many, another one
    for each seed.
    """
    table = distinct_values(dtype, out, positive=positive)
    steps = [int(step) for step in rng.integers(2, len(table), len(shape))]
    steps[-1] = 1
    if shape[-1] * shape[-2] <= len(table):
        steps[-2] = shape[-1]
    place = np.zeros(shape, np.int64)
    for axis, step in enumerate(steps):
        place += np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]) * step
    return table[place % len(table)]


def picking(shape: tuple[int, ...], line_axis: int, dtype: DType, rng: np.random.Generator) -> Array:
    """A single 1 in each row of A (``line_axis`` -2) or column of B (-1), at a k that walks over all of them."""
    k_axis = -3 - line_axis
    array = np.zeros(shape, dtype.numpy)
    k = shape[k_axis]
    if k == 0:
        return array
    lines = np.arange(shape[line_axis])
    for matrix in array.reshape(-1, *shape[-2:]):
        # A step coprime to K visits every k; one that is no power of two crosses the k-blocks.
        step = next(s for s in range(int(rng.integers(1, max(2, k))), 2 * k + 2) if np.gcd(s, k) == 1)
        chosen = (lines * step + int(rng.integers(k))) % k
        matrix[(lines, chosen) if line_axis == -2 else (chosen, lines)] = 1
    return array


@cache
def distinct_values(dtype: DType, out: DType, *, positive: bool = False) -> Array:
    """A prime number of values of `dtype`, from 2^-60 to 2^60 in magnitude, that `out` holds unchanged.

    Activations need positive ones: they make one value of many negative ones.
    """
    if dtype == F32:
        bits: Array = np.arange(1 << 19, dtype=np.uint32) << 13  # those of tf32
    else:
        bits = np.arange(1 << dtype.bits, dtype=np.uint8 if dtype.bits == 8 else np.uint16)
    values = bits.view(dtype.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = values.astype(np.float32)
        kept = np.isfinite(wide) & (wide == wide.astype(out.numpy).astype(np.float32))
    magnitude = np.where(kept, wide if positive else np.abs(wide), 0)
    found = np.ascontiguousarray(values[kept & (magnitude > 2.0**-60) & (magnitude < 2.0**60)])
    return found[: next(n for n in range(len(found), 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))]
