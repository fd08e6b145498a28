"""Groups of rows on chips whose threads load and store them: every type, and rows that begin anywhere."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import ArgumentError
from tilekit.targets import target

CHIPS = ("sm_80", "sm_86", "sm_89", "sm_120a", "gfx942", "gfx950")
TYPES = ("bfloat16", "float16", "int8", "float8_e4m3fn", "float8_e4m3fnuz")


def _types(chip: str) -> list[str]:
    fnuz = target(chip).has("fnuz_floats")
    eight = target(chip).isa == "gcn" or target(chip).has("float8_matrix")
    return [name for name in TYPES if "float8" not in name or (eight and name.endswith("fnuz") == fnuz)]


def _padded(matrix: Any, pad: int) -> Any:
    wide = np.full((*matrix.shape[:-1], matrix.shape[-1] + pad), 99).astype(matrix.dtype)
    wide[..., : matrix.shape[-1]] = matrix
    return wide[..., : matrix.shape[-1]]


def run(chip: str, seed: int) -> None:
    """Groups of random sizes in a poisoned output, with a bias of columns or an activation, or neither."""
    random = np.random.default_rng([seed, CHIPS.index(chip)])
    name = str(random.choice(_types(chip)))
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    groups, n, k = int(random.integers(1, 5)), int(random.integers(1, 100)), int(random.integers(1, 150))
    sizes = random.integers(0, 60, groups)
    pad, rest = int(random.choice([0, 3, 16])), int(random.integers(0, 9))
    rows = int(sizes.sum()) + rest
    a, b = random.integers(-2, 3, (rows, k)).astype(dtype), random.integers(-2, 3, (groups, n, k)).astype(dtype)
    ends = np.cumsum(sizes).astype(np.int32)
    out_dtype = np.int32 if name == "int8" and random.integers(2) else np.float32
    activation = "relu" if out_dtype is np.float32 and random.integers(2) else None
    expected = np.full((rows, n), 7, out_dtype)
    for group, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        sums = a[end - size : end].astype(np.float32) @ b[group].astype(np.float32).T
        expected[end - size : end] = np.maximum(sums, 0) if activation else sums
    out = _padded(np.full((rows, n), 7, out_dtype), pad)
    weights = _padded(b, pad).swapaxes(-1, -2)
    if dtype.itemsize == 2 and random.integers(2):  # N contiguous
        weights = _padded(np.ascontiguousarray(b.swapaxes(-1, -2)), pad)
    tilekit.grouped_matmul(_padded(a, pad), weights, ends, out=out, target=chip, activation=activation)
    what = f"{name} {sizes} n={n} k={k} pad={pad} {activation} on {chip}"
    np.testing.assert_array_equal(out, expected, err_msg=what)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("chip", ["sm_80", "sm_120a", "gfx942", "gfx950"])
def test_random_groups(chip: str) -> None:
    """Types, pitches, layouts of the weights, extents and sizes at random."""
    run(chip, 0)


@pytest.mark.breadth
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(25))
def test_further_random_groups(chip: str, seed: int) -> None:
    """The same, more of them."""
    run(chip, seed)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a"])
def test_rows_along_m(chip: str) -> None:
    """Where M is contiguous groups begin between 16 bytes, which copies of 16 do not: refused, with what to pass."""
    a, b = np.ones((64, 56), np.float16).T, np.ones((2, 64, 48), np.float16)
    with pytest.raises(ArgumentError, match=r"a is contiguous along M.*contiguous rows of K \[TK-GROUP-003\]"):
        tilekit.grouped_matmul(a, b, np.array([13, 56], np.int32), target=chip)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a", "gfx950"])
def test_counted_rows_along_m(chip: str) -> None:
    """Groups that begin whole 16 bytes apart are read where M is contiguous, too; on AMD chips any are."""
    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (64, 3, 16)).astype(np.float16).transpose(1, 2, 0)
    b = random.integers(-2, 3, (3, 64, 48)).astype(np.float16)
    counts = np.array([5, 16, 0], np.int32)
    found = tilekit.grouped_matmul(a, b, counts=counts, target=chip, out_dtype="f32")
    for group, count in enumerate(counts):
        wanted = a[group, :count].astype(np.float32) @ b[group].astype(np.float32)
        np.testing.assert_array_equal(found[group, :count], wanted)
