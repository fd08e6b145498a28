"""Where operands lie: a residual for each matrix of a batch or one for all, matrices apart, arrays of one address."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit

BF16 = ml_dtypes.bfloat16
BATCH, M, K = 3, 40, 64


def strided(values: np.ndarray[Any, Any], pad: int, between: int) -> np.ndarray[Any, Any]:
    """The same values, rows `pad` elements further apart and matrices `between` rows; all around them is NaN."""
    *batch, m, n = values.shape
    memory = np.full((*batch, m + between, n + pad), np.nan, values.dtype)
    view = memory[..., :m, :n]
    view[...] = values
    return view


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("between", "pad"), [(0, 0), (2, 8), (1, 3)], ids=["dense", "padded", "unaligned"])
@pytest.mark.parametrize("n", [48, 45], ids=["tma", "direct"])
@pytest.mark.parametrize("shape", ["matrix", "one", "each"])
def test_a_residual_of_a_batch(shape: str, n: int, between: int, pad: int) -> None:
    """Each element of each matrix gets its own residual, and none outside of it is read."""
    rng = np.random.default_rng(BATCH)
    a, b = (rng.integers(-2, 3, size).astype(BF16) for size in ((BATCH, M, K), (BATCH, K, n)))
    count = {"matrix": (), "one": (1,), "each": (BATCH,)}[shape]
    residual = rng.integers(-9, 10, (*count, M, n)).astype(BF16)
    expected = (a.astype("f8") @ b.astype("f8")) - 2 * residual.astype("f8")
    b = strided(b, -n % 8, 0)
    out = np.full((BATCH, M, n), np.nan, BF16)
    plan = tilekit.kernel_for(a, b, out=out, residual=residual).bind(
        a, b, out, residual=residual, beta=-2.0, schedule="random"
    )
    assert plan() is out
    assert plan.report.clean
    np.testing.assert_array_equal(out.astype("f8"), expected.astype(BF16).astype("f8"))
    given = strided(residual, pad, between)
    result = tilekit.matmul(a, b, residual=given, beta=-2.0)
    np.testing.assert_array_equal(result.astype("f8"), expected.astype(BF16).astype("f8"))


@pytest.mark.parametrize("n", [48, 45], ids=["tma", "direct"])
@pytest.mark.parametrize("repeated", ["matrix", "row"])
def test_a_residual_with_a_pitch_of_zero(n: int, repeated: str) -> None:
    """A matrix that NumPy broadcasts over the batch, or a row over the matrix, is read where it lies."""
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-2, 3, size).astype(BF16) for size in ((BATCH, M, K), (BATCH, K, 48)))
    part = (M, n) if repeated == "matrix" else (BATCH, 1, n)
    residual = np.broadcast_to(rng.integers(-9, 10, part).astype(BF16), (BATCH, M, n))
    b = b[..., :n]
    expected = (a.astype("f8") @ b.astype("f8")) + residual.astype("f8")
    kernel = tilekit.kernel_for(a, b, out=np.empty((BATCH, M, n), BF16), residual=residual)
    # The driver takes no tensor map whose rows are all the same one.
    assert kernel.spec.store == ("tma" if (repeated, n) == ("matrix", 48) else "direct")
    result = tilekit.matmul(a, b, residual=residual)
    np.testing.assert_array_equal(result.astype("f8"), expected.astype(BF16).astype("f8"))


def test_a_matrix_between_others() -> None:
    """An output whose matrices lie apart by no multiple of 16 bytes is stored by threads, each in its place."""
    a, b = np.ones((BATCH, M, K), BF16), np.ones((BATCH, 48, K), BF16).transpose(0, 2, 1)
    memory = np.full(BATCH * (M * 48 + 4), 7, BF16)
    out = np.lib.stride_tricks.as_strided(memory, (BATCH, M, 48), (2 * (M * 48 + 4), 2 * 48, 2))
    assert tilekit.kernel_for(a, b, out=out).spec.store == "direct"
    assert tilekit.matmul(a, b, out=out) is out
    assert (out == K).all()
    assert (memory.reshape(BATCH, -1)[:, M * 48 :] == 7).all()


@pytest.mark.parametrize("first", ["a", "b"])
def test_operands_that_begin_at_one_place(first: str) -> None:
    """Two arrays of one address, of which one is longer, are each copied as far as they reach."""
    values = np.arange(64 * 64).reshape(64, 64) % 7 - 3
    whole = values.astype(BF16)
    a, b = (whole[:16], whole) if first == "a" else (whole, whole[:, :16])
    expected = a.astype("f8") @ b.astype("f8")
    out = np.empty(expected.shape, np.float32)
    assert tilekit.matmul(a, b, out=out) is out
    np.testing.assert_array_equal(out, expected)
