"""Fragments that quantise, run alone by the emulator of sm_100a and compared with NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from blackwell_kernel import BlackwellKernel

from tilekit.assembly.types import U32

LANES = 32
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, -3.4e38, 0.25, -0.75, 5.0, 6.5], np.float32)


def numbers(seed: int, scale: float) -> np.ndarray:
    """Special and ordinary values, one a lane, in some order."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=LANES - len(SPECIAL)) * scale
    return rng.permutation(np.concatenate([SPECIAL, drawn.astype(np.float32)]))


def test_larger_size_is_that_of_the_bits() -> None:
    """The size of a number without its sign, or the one before if that is larger; a NaN is larger than infinity."""
    value, most = numbers(1, 4.0), numbers(2, 4.0).view(np.uint32) & 0x7FFFFFFF
    out = np.zeros(LANES, np.uint32)
    k = BlackwellKernel(pointers=3, threads=LANES)
    found = k.w.ptx.quantise.larger_size(value=k.load(0, k.thread), most=k.load(1, k.thread, U32))
    k.store(2, k.thread, found)
    k.run(value, most, out)
    np.testing.assert_array_equal(out, np.maximum(value.view(np.uint32) & 0x7FFFFFFF, most))


def test_divide_nearest_rounds_once() -> None:
    """As NumPy divides in f32, subnormal quotients too."""
    a, b = numbers(3, 1e-38), numbers(4, 100.0)
    out = np.zeros(LANES, np.float32)
    k = BlackwellKernel(pointers=3, threads=LANES)
    k.store(2, k.thread, k.w.ptx.quantise.divide_nearest(a=k.load(0, k.thread), b=k.load(1, k.thread)))
    k.run(a, b, out)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, a / b)


def test_four_e2m1_in_order() -> None:
    """Rounded to the nearest, half to even, at most 6, the first in the lowest bits."""
    values = [np.nan_to_num(numbers(seed, 3.0), nan=1.0) for seed in range(5, 9)]
    out = np.zeros(LANES, np.uint16)
    k = BlackwellKernel(pointers=5, threads=LANES)
    loaded = [k.load(pointer, k.thread) for pointer in range(4)]
    packed = k.w.ptx.quantise.pack_e2m1x4(**dict(zip(("first", "second", "third", "fourth"), loaded, strict=True)))
    k.store(4, k.thread, packed)
    k.run(*values, out)
    codes = [np.clip(v, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8).astype(np.uint16) & 15 for v in values]
    np.testing.assert_array_equal(out, sum(code << 4 * index for index, code in enumerate(codes)))
