"""Block-scaled matmuls of MI355X: MXFP8 and MXFP4, scales in the payload."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.amd_matmul import Sync
from tests.compose.amd_scaled import matmul
from tests.compose.composed import Array, padded, run
from tilekit.assembly.errors import TraceError
from tilekit.errors import ArgumentError

E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def factors(rng: np.random.Generator, dtype: tk.DType, rows: int, k: int) -> tuple[Array, Array]:
    """Elements as kernels take them, and what they are."""
    if dtype is tk.E2M1X2:
        codes = rng.integers(0, 16, (rows, k), np.uint8)
        signs = np.where(codes >> 3, -1.0, 1.0)
        return codes[:, ::2] | codes[:, 1::2] << 4, np.asarray(E2M1)[codes & 7] * signs
    values = rng.integers(-2, 3, (rows, k)).astype(dtype.numpy)
    return values, values.astype(np.float64)


def scaled(rng: np.random.Generator, dtype: tk.DType, rows: int, k: int) -> tuple[Array, Array, Array]:
    """The same with scales: elements, scales, and what both together are."""
    raw, values = factors(rng, dtype, rows, k)
    powers = rng.integers(124, 131, (rows, k // 32), np.uint8)
    return raw, powers.view(ml_dtypes.float8_e8m0fnu), values * np.repeat(2.0 ** (powers.astype(float) - 127), 32, 1)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("sync", [tk.SplitCounterSync, tk.SingleCounterSync, tk.BarrierSync], ids=lambda s: s.__name__)
@pytest.mark.parametrize("types", [(tk.E4M3,), (tk.E2M1X2,), (tk.E5M2, tk.E4M3)], ids=str)
def test_exact(types: tuple[tk.DType, ...], sync: Sync) -> None:
    """Small factors and powers of two, whose sums are exact: bit for bit, in shapes that end inside tiles."""
    kernel = matmul(dtype=types[0], b_dtype=types[-1], sync=sync)
    for seed, (m, n, k) in enumerate(((64, 64, 256), (70, 33, 384), (1, 130, 128))):
        rng = np.random.default_rng(seed)
        a, a_scale, left = scaled(rng, types[0], m, k)
        b, b_scale, right = scaled(rng, types[-1], n, k)
        d = np.zeros((m, n), np.float32)
        inputs = {"a": padded(a), "b": padded(b), "a_scale": padded(a_scale), "b_scale": padded(b_scale)}
        run(kernel, inputs, {"d": d}, on="emulator", seed=seed)
        np.testing.assert_array_equal(d, left @ right.T)


@pytest.mark.parametrize(
    "options", [{"columns": 2}, {"load": tk.BufferLoader}, {"tile": (128, 64), "stages": 3}], ids=str
)
def test_grids_and_loaders(options: dict[str, Any]) -> None:
    """Waves side by side, factors through registers, other tiles; no scratch memory."""
    kernel = matmul(dtype=tk.E2M1X2, **options)
    assert kernel.resources.stack_bytes == 0
    rng = np.random.default_rng(9)
    a, a_scale, left = scaled(rng, tk.E2M1X2, 140, 512)
    b, b_scale, right = scaled(rng, tk.E2M1X2, 70, 512)
    d = np.zeros((140, 70), np.float32)
    run(kernel, {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale}, {"d": d}, on="emulator", seed=9)
    np.testing.assert_array_equal(d, left @ right.T)


def test_what_is_refused() -> None:
    """Another chip, types that do not meet, and scales for rows of another length."""
    with pytest.raises(TraceError, match=r"gfx942 has no matrix instruction that takes scales.*TK-TARGET-003"):
        assert matmul(target="gfx942").assembly
    with pytest.raises(TraceError, match=r"mfma multiplies e4m3 with e5m2; e2m1x2.*TK-TRACE-017"):
        assert matmul(dtype=tk.E4M3, b_dtype=tk.E2M1X2).assembly
    with pytest.raises(TraceError, match=r"'a' holds 64 elements of K, and a word of its scales.*slices=2.*TK-TRACE"):
        assert matmul(dtype=tk.BF16).assembly
    a, s = np.zeros((64, 144), ml_dtypes.float8_e4m3fn), np.zeros((64, 4), ml_dtypes.float8_e8m0fnu)
    with pytest.raises(ArgumentError, match=r"a_scale at address .*for rows of 144 elements.*nearest: rows of 256"):
        matmul().bind(a, a, s, s)
