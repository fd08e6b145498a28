"""Calls of Python epilogues without elements: results are empty, totals are those of nothing, nothing is launched."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.epilogue import column_max, column_sum, row_min, row_sum

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


@tilekit.epilogue
def everything(x, gate):  # type: ignore[no-untyped-def]
    y = x * gate
    return y, y.astype("f32"), row_sum(y), column_sum(y), row_min(y), column_max(y)


def ones(*shape: int, dtype: Any = BF16) -> Any:
    """An operand."""
    return np.ones(shape, dtype)


def product(shape: tuple[int, ...], library: Any = np, **keywords: Any) -> Any:
    """Multiply, of a shape (M, N) or (B, M, N)."""
    *batch, m, n = shape
    a, b, gate = (library.asarray(one) for one in (ones(*batch, m, 16), ones(*batch, 16, n), ones(*shape)))
    return tilekit.matmul(a, b, epilogue=everything(gate), **keywords)


def check(found: tuple[Any, ...], shape: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    """Compare shapes, and totals with those of nothing."""
    assert [one.shape for one in found] == [shape, shape, rows, columns, rows, columns]
    for total, value in zip(found[2:], (0.0, 0.0, inf, -inf), strict=True):
        assert (total == value).all()


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("shape", [(0, 72), (40, 0), (0, 0), (2, 0, 72), (2, 40, 0), (0, 40, 72)], ids=str)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_80", "gfx950"])
def test_products(shape: tuple[int, ...], target: str) -> None:
    """A vector a batch; what the caller has for them is filled too."""
    *batch, m, n = shape
    rows, columns = (*batch, m), (*batch, n)
    check(product(shape, target=target), shape, rows, columns)
    made = [np.full(extent, np.nan, np.float32) for extent in (rows, columns, rows, columns)]
    out = (np.empty(shape, BF16), np.empty(shape, np.float32), *made)
    found = product(shape, target=target, out=out)
    assert all(one is other for one, other in zip(found, out, strict=True))
    check(found, shape, rows, columns)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(0, 72), (40, 0), (2, 0, 72)], ids=str)
def test_in_device_memory(shape: tuple[int, ...]) -> None:
    """The same on the GPU, in the order of a stream."""
    cupy = pytest.importorskip("cupy")
    *batch, m, n = shape
    with cupy.cuda.Stream(non_blocking=True):
        found = product(shape, cupy)
        check(tuple(map(cupy.asnumpy, found)), shape, (*batch, m), (*batch, n))


CALLS: dict[str, tuple[Callable[[], Any], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "ends": (
        lambda: tilekit.grouped_matmul(
            ones(0, 64), ones(3, 64, 72), np.zeros(3, np.int32), epilogue=everything(ones(0, 72))
        ),
        (0, 72),
        (0,),
        (3, 72),
    ),
    "counts": (
        lambda: tilekit.grouped_matmul(
            ones(3, 0, 64), ones(3, 64, 72), counts=np.zeros(3, np.int32), epilogue=everything(ones(3, 0, 72))
        ),
        (3, 0, 72),
        (3, 0),
        (3, 72),
    ),
    "scales": (
        lambda: tilekit.scaled_matmul(
            ones(0, 128, dtype=E4M3),
            ones(128, 128, dtype=E4M3).T,
            ones(0, 1, dtype=np.float32),
            ones(1, 1, dtype=np.float32),
            epilogue=everything(ones(0, 128)),
        ),
        (0, 128),
        (0,),
        (128,),
    ),
    "images": (
        lambda: tilekit.conv2d(
            ones(0, 8, 8, 64), ones(16, 3, 3, 64), padding=1, epilogue=everything(ones(0, 8, 8, 16))
        ),
        (0, 8, 8, 16),
        (0, 8, 8),
        (16,),
    ),
}
"""Calls of other families, the shape of their results, of totals of rows, and of columns."""


@pytest.mark.parametrize("name", CALLS)
def test_other_families(name: str) -> None:
    """A rank without tokens, no image: the columns' totals are there."""
    call, *shapes = CALLS[name]
    check(call(), *shapes)


def test_rows_of_no_group_are_left() -> None:
    """Where there is no group nothing is written: no result, and no total of its rows."""
    call = tilekit.epilogue(lambda x: (x, row_sum(x)))()
    out = np.full((40, 72), 3, np.float16), np.full(40, 3, np.float32)
    a, b = np.ones((40, 64), np.float16), np.ones((0, 64, 72), np.float16)
    tilekit.grouped_matmul(a, b, np.zeros(0, np.int32), epilogue=call, out=out)
    assert (out[0] == 3).all()
    assert (out[1] == 3).all()
