"""Epilogues written in Python behind products of groups of rows: operands of every place, several results, totals."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit import MatmulConfig
from tilekit.epilogue import batch, column, column_min, column_sum, row, row_max, row_sum, uniform, where
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

BF16 = ml_dtypes.bfloat16
EMULATED = ("sm_90a", "sm_100a", "gfx942", "sm_80")
TARGETS = (*EMULATED, pytest.param("cuda", marks=pytest.mark.gpu))
KINDS = ("ends", "counts")


@tilekit.epilogue
def everything(x, like, other, columns, rows, each, number):  # type: ignore[no-untyped-def]
    """All places of operands, a second matrix of another type, and totals of rows and columns."""
    y = (x + columns) * rows + like * 2 - other + each + number + row(x) + column(x) * 2 + batch(x) * 3
    return y, y.astype("f32"), row_sum(y), row_max(y), column_sum(y), column_min(y)


@tilekit.epilogue
def placed(x, like, other, columns, rows, each, number):  # type: ignore[no-untyped-def]
    """The same without totals, which are of upright tiles."""
    y = (x + columns) * rows + like * 2 - other + each + number + row(x) + column(x) * 2 + batch(x) * 3
    return y, y.astype("f32")


@dataclass(frozen=True)
class Groups:
    """A case: groups of `sizes` rows, behind each other or with `counts` each of so many."""

    kind: str
    sizes: tuple[int, ...]
    n: int
    k: int = 64
    apart: int = 0
    """Rows that are no group's: in all, or of a counted group at least."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Extents of the result before its columns."""
        if self.kind == "ends":
            return (max(1, sum(self.sizes) + self.apart),)
        return len(self.sizes), max(1, max(self.sizes) + self.apart)

    def places(self) -> list[Any]:
        """Where the groups' rows are."""
        if self.kind == "counts":
            return [(group, slice(0, size)) for group, size in enumerate(self.sizes)]
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    @property
    def bounds(self) -> dict[str, Any]:
        """As `grouped_matmul` takes them."""
        return {self.kind: (np.cumsum(self.sizes) if self.kind == "ends" else np.array(self.sizes)).astype(np.int32)}

    def check(self, target: str, seed: int, *, totals: bool = True, **keywords: Any) -> None:
        """Compute, into arrays full of NaN, and compare to the bit; rows of no group stay as they are."""
        function = everything if totals else placed
        rng = np.random.default_rng(seed)

        def whole(*shape: int, dtype: Any = BF16) -> np.ndarray[Any, Any]:
            return rng.integers(-2, 3, shape).astype(dtype)

        groups, rows, n = len(self.sizes), self.rows, self.n
        a, b = whole(*rows, self.k), whole(groups, self.k, n)
        shared = self.kind == "counts" and seed % 2  # one matrix, and rows, for all groups
        like = whole(*rows[:-1], rows[-1] + 3, n)[..., : rows[-1], :]
        other = whole(*(rows[1:] if shared else rows), n, dtype="f4")
        columns = whole(groups, 1, n) if seed % 3 else whole(n, dtype="f4")
        of_rows, each = whole(*(rows[1:] if shared else rows), 1, dtype="f2"), whole(groups, 1, 1)
        sums, of_columns, of_groups = (np.zeros((*rows, n)) for _ in range(3))
        inside = np.zeros(rows, bool)
        for group, place in enumerate(self.places()):
            sums[place] = a[place].astype("f8") @ b[group].astype("f8")
            of_columns[place] = columns if columns.ndim == 1 else columns[group]
            of_groups[place], inside[place] = each[group, 0, 0], True
        y, exact, *of_rows_all = function(like, other, of_columns, of_rows, of_groups, 1.5).reference(sums)[:4]
        per_group = (groups, n)
        shapes = [((*rows, n), BF16), ((*rows, n), "f4"), *2 * [(rows, "f4")], *2 * [(per_group, "f4")]]
        out = tuple(np.full(shape, np.nan, dtype) for shape, dtype in shapes[: 6 if totals else 2])
        call = function(like, other, columns, of_rows, each, 1.5)
        found = tilekit.grouped_matmul(a, b, epilogue=call, target=target, out=out, **self.bounds, **keywords)
        assert all(one is given for one, given in zip(found, out, strict=True))
        for one, wanted in zip(found, (y, exact, *of_rows_all), strict=False):
            values = np.broadcast_to(wanted, one.shape)[inside].astype(one.dtype)
            np.testing.assert_array_equal(one[inside].astype("f8"), values.astype("f8"), err_msg=str((self, seed)))
            assert np.isnan(one.astype("f8")[~inside]).all()
        for group, place in enumerate(self.places() if totals else ()):
            # One without rows has a sum of 0, and no smallest element.
            np.testing.assert_array_equal(found[4][group], exact[place].sum(0), err_msg=str((self, seed)))
            np.testing.assert_array_equal(found[5][group], exact[place].min(0, initial=np.inf))


def drawn(kind: str, seed: int) -> Groups:
    """A case of a seed."""
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.choice([0, 1, 5, 15, 16, 17, 40, 100, 130, 200], rng.integers(1, 6)).tolist())
    n, k = int(rng.choice([8, 72, 136, 264])), int(rng.choice([64, 80, 128]))
    return Groups(kind, sizes, n, k, int(rng.choice([0, 3])))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_place_and_totals_of_rows(target: str, kind: str) -> None:
    """Groups that end within a fragment's rows, one without any, and rows of none; two seeds of operands."""
    for seed in (2, 3):
        Groups(kind, (21, 0, 3, 130), 136, apart=2).check(target, seed)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_groups(target: str, kind: str) -> None:
    """Groups at random, others each time: the seed is in what fails."""
    seed = secrets.randbelow(1 << 30)
    drawn(kind, seed).check(target, seed)


@pytest.mark.breadth
@pytest.mark.parametrize("target", EMULATED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_more_drawn_groups(target: str, kind: str, seed: int) -> None:
    """More of the same."""
    drawn(kind, seed).check(target, seed)


CONFIGS = (
    ("sm_90a", MatmulConfig((64, 64), (1, 1), consumers=1)),
    ("sm_90a", MatmulConfig((128, 72), (1, 1))),
    ("sm_90a", MatmulConfig((128, 56), (2, 1), schedule="pingpong")),
    ("sm_90a", MatmulConfig((256, 64), (2, 2), output_buffers=1)),
    ("sm_100a", BlackwellConfig((128, 64), (1, 1), cta_group=1, clc_stages=0)),
    ("sm_100a", BlackwellConfig((128, 96), (2, 1), clc_stages=0)),
    ("gfx950", tilekit.Cdna4Config((128, 128), driver="ping_pong")),
)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("target", "config"), CONFIGS)
def test_configs(target: str, config: Any) -> None:
    """Several tiles along N add parts of a row, by warps of one block or more, in CTAs of clusters below each other."""
    Groups("ends", (70, 1, 200, 0, 33), 200).check(target, 5, config=config)


TURNED = (
    ("sm_90a", MatmulConfig((64, 24), (1, 2), consumers=1, swap_ab=True)),
    ("sm_90a", MatmulConfig((128, 40), (2, 1), swap_ab=True)),
    ("sm_90a", MatmulConfig((128, 56), (1, 1), schedule="pingpong", swap_ab=True)),
    ("sm_100a", BlackwellConfig((128, 48), (1, 1), cta_group=1, clc_stages=0, swap_ab=True)),
    ("gfx942", tilekit.Cdna3Config((128, 32), swap_ab=True)),
)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("target", "config"), TURNED)
def test_groups_along_columns(target: str, config: Any, kind: str) -> None:
    """Where a kernel computes the transpose, every operand's places are still those of the result."""
    Groups(kind, (21, 0, 3, 130, 40), 136, apart=2).check(target, 7, totals=False, config=config)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_at_random_are_those_of_the_reference(kind: str) -> None:
    """Places are those of the result's shape, so that dropout is what NumPy makes of it."""
    case = Groups(kind, (20, 30), 72)
    a, b = np.ones((*case.rows, 64), np.float16), np.ones((2, 64, 72), np.float16)

    @tilekit.epilogue
    def dropout(x, seed: int):  # type: ignore[no-untyped-def]
        return where(uniform(seed, x) < 0.5, x, 0.0)

    call = dropout(11)
    found = tilekit.grouped_matmul(a, b, epilogue=call, target="sm_90a", **case.bounds)
    expected = call.reference(np.full(found.shape, 64.0))
    for place in case.places():
        np.testing.assert_array_equal(found[place], expected[place])


def test_scales_of_blocks() -> None:
    """Operands of 8 bits with scales of blocks take the same epilogues."""
    rng = np.random.default_rng(3)
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = rng.integers(-2, 3, (60, 256)).astype(e4m3), rng.integers(-2, 3, (3, 72, 256)).astype(e4m3)
    scale_a, scale_b = np.exp2(rng.integers(-1, 2, (60, 2))), np.exp2(rng.integers(-1, 2, (3, 1, 2)))
    weights = rng.integers(1, 4, (60, 1)).astype(np.float32)
    ends = np.array([17, 17, 60], np.int32)

    @tilekit.epilogue
    def weighted(x, weight):  # type: ignore[no-untyped-def]
        return x * weight, row_sum(x)

    x = a.astype("f8") * np.repeat(scale_a, 128, 1)
    y = b.astype("f8") * np.repeat(scale_b, 128, 2)
    sums = np.concatenate([x[:17] @ y[0].T, x[17:] @ y[2].T])
    found, totals = tilekit.grouped_matmul(
        a,
        np.swapaxes(b, 1, 2),
        ends,
        scale_a=scale_a.astype("f4"),
        scale_b=scale_b.astype("f4"),
        epilogue=weighted(weights),
        out_dtype="f32",
        target="sm_90a",
    )
    np.testing.assert_array_equal(found, (sums * weights).astype("f4"))
    np.testing.assert_array_equal(totals, sums.sum(1).astype("f4"))


def test_mistakes() -> None:
    """Each names what was given, what is legal, and what is nearest."""
    a, b = np.ones((2, 40, 64), np.float16), np.ones((2, 64, 72), np.float16)

    @tilekit.epilogue
    def added(x, other):  # type: ignore[no-untyped-def]
        return x + other, row_sum(x)

    def refused(words: str, operand: Any = 1.0, epilogue: Any = None, **keywords: Any) -> None:
        with pytest.raises(ArgumentError, match=words):
            tilekit.grouped_matmul(a, b, counts=[40, 40], epilogue=epilogue or added(operand), **keywords)

    refused(r"other has shape \(3, 1, 72\).*\(2, 1, 72\)", np.ones((3, 1, 72), np.float32))
    refused(r"out is a tuple of 3, and added stores 2", out=(np.empty((2, 40, 72), np.float16),) * 3)
    refused(r"out\[1\] is f32 of shape \(80,\)", out=(np.empty((2, 40, 72), np.float16), np.empty(80, np.float32)))
    flat = a.reshape(80, 64)
    with pytest.raises(ArgumentError, match=r"other has shape \(80,\).*other\[:, None\] for a value a row"):
        tilekit.grouped_matmul(flat, b, [40, 80], epilogue=added(np.ones(80, np.float32)))


def test_no_groups_have_no_totals() -> None:
    """Where there is no group nothing is computed, and there is a vector for each of none."""
    a, b = np.ones((40, 64), np.float16), np.ones((0, 64, 72), np.float16)
    call = tilekit.epilogue(lambda x: (x, row_sum(x), column_sum(x)))()
    found = tilekit.grouped_matmul(a, b, np.zeros(0, np.int32), epilogue=call)
    assert [one.shape for one in found] == [(40, 72), (40,), (0, 72)]
