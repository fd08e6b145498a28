"""Whole numbers in Python epilogues, places above all, are signed; the bits of a hash are those of unsigned ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tilekit.epilogue import absolute, clip, column, maximum, row, uniform, where

TARGETS = ("sm_90a", "sm_100a", "sm_80", "gfx950", pytest.param("gfx942", marks=pytest.mark.breadth))
M, N = 40, 72
ROWS, COLUMNS = np.arange(M)[:, None], np.arange(N)[None]
A = np.random.default_rng(1).integers(-3, 4, (M, 16)).astype(np.float16)
B = np.random.default_rng(2).integers(-3, 4, (16, N)).astype(np.float16)
X = A.astype("f8") @ B.astype("f8")


@tilekit.epilogue
def placed(x, by: int):  # type: ignore[no-untyped-def]
    """What is asked of places: distances from a diagonal, on both its sides."""
    r, c = row(x), column(x)
    found = (
        x + 0.5 * (c - r),
        where(abs(c - r) < 3, x, 0.0),
        where(r - c < 8, x, 0.0),
        where(c - 1 < r, x, 0.0),
        -r,
        np.where(np.int64(-5) < r, np.int64(-5) - r, np.array(-5) - r),
        by - r,
        (r - c) >> 1,
        (r - c) / 4,
        maximum(r - c, by) * 2,
        clip(r - c, by, 1 << (r & 3)),
        where(x > 0, r - c, 2.5),
        where(x > 0, r, ~c),
        (r - c) ** 3,
        np.minimum(absolute(by * c), r),
        np.logical_and(r & 1, c & 2) | np.logical_not(x),
        (c - r).astype("u32") >> 8,
        where((c - r).astype(np.uint32) > r.astype(np.uint32), 1.0, -1.0),
    )
    return tuple(one * 1.0 if index else one for index, one in enumerate(found))


def expected(by: int) -> list[Any]:
    """The same in NumPy, of 64 bits."""
    r, c, x = ROWS, COLUMNS, X
    unsigned = (c - r) % 2**32
    return [
        x + 0.5 * (c - r),
        np.where(abs(c - r) < 3, x, 0.0),
        np.where(r - c < 8, x, 0.0),
        np.where(c - 1 < r, x, 0.0),
        -r,
        -5 - r,
        by - r,
        (r - c) // 2,
        (r - c) / 4,
        np.maximum(r - c, by) * 2,
        np.clip(r - c, by, 2 ** (r % 4)),
        np.where(x > 0, r - c, 2.5),
        np.where(x > 0, r, -1 - c),
        (r - c) ** 3,
        np.minimum(abs(by * c), r),
        ((r % 2 == 1) & (c // 2 % 2 == 1)) | (x == 0),
        unsigned // 256,
        np.where(unsigned > r, 1.0, -1.0),
    ]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
def test_places_have_a_sign(target: str) -> None:
    """Differences of places, comparisons, shifts and floats of them, of both signs: in kernels and in NumPy."""
    call = placed(-5)
    found = tilekit.matmul(A, B, epilogue=call, target=target, out_dtype="f32")
    without = call.reference(X)
    for index, (got, reference, exact) in enumerate(zip(found, without, expected(-5), strict=True)):
        wanted = np.broadcast_to(np.asarray(exact, np.float32), (M, N))
        np.testing.assert_array_equal(got, wanted, err_msg=f"result {index}")
        np.testing.assert_array_equal(reference.astype("f4"), wanted, err_msg=f"reference {index}")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_number_differs_from_all(target: str) -> None:
    """``x != x`` finds NaN, and no other comparison holds of it, as in NumPy."""

    @tilekit.epilogue
    def found(x, like):  # type: ignore[no-untyped-def]
        y = where(like != like, 0.0, like)
        return y, where(like == like, 1.0, 2.0), where(~(like < x), 1.0, 2.0), where(np.logical_not(like), 1.0, 2.0)

    like = np.where(ROWS % 3 == 0, np.nan, np.where(ROWS % 3 == 1, 0, COLUMNS)).astype(np.float32)
    call = found(like)
    wanted = [np.nan_to_num(like), *(1.0 + one for one in (np.isnan(like), like < X, like != 0))]
    for got, reference, exact in zip(
        tilekit.matmul(A, B, epilogue=call, target=target, out_dtype="f32"), call.reference(X), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, exact)
        np.testing.assert_array_equal(reference, exact)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
def test_seeds_are_32_bits_of_either_kind(target: str) -> None:
    """A seed of 2^31 and more is that with the same bits below 0; what asks more than bits has a sign."""

    @tilekit.epilogue
    def random(x, seed: int):  # type: ignore[no-untyped-def]
        return uniform(seed, x)

    high, low = (
        tilekit.matmul(A, B, epilogue=random(seed), target=target, out_dtype="f32") for seed in (2**32 - 5, -5)
    )
    np.testing.assert_array_equal(high, low)
    np.testing.assert_array_equal(high, uniform(-5, X))
    np.testing.assert_array_equal(high, random.reference(X, 2**32 - 5))
    assert len(np.unique(high)) > M * N // 2
