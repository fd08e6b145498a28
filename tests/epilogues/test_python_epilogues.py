"""Epilogues written in Python against NumPy: every place of operands, several results, totals, every family."""

from __future__ import annotations

import secrets
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from epilogue_trees import EXACT, SMOOTH, tree

import tilekit
from tilekit import MatmulConfig
from tilekit.epilogue import (
    column_max,
    column_min,
    column_sum,
    maximum,
    row_max,
    row_min,
    row_sum,
    silu,
    uniform,
    where,
)
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

BF16 = ml_dtypes.bfloat16
TARGETS = (
    "sm_90a",
    "sm_100a",
    *(pytest.param(chip, marks=pytest.mark.breadth) for chip in ("gfx942", "gfx950", "sm_80")),
    pytest.param("cuda", marks=pytest.mark.gpu),
)
pytestmark = pytest.mark.parametrize("target", TARGETS)


def whole(rng: np.random.Generator, *shape: int, dtype: Any = BF16) -> np.ndarray:
    """Small whole numbers, of which products and sums are exact."""
    return rng.integers(-2, 3, shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the tensor core leaves."""
    return a.astype("f8") @ b.astype("f8")


@tilekit.epilogue
def everything(x, like, other, column, row, number):  # type: ignore[no-untyped-def]
    """All places of operands, a second matrix of another type, and all totals."""
    y = x * like + other * column - row
    return (
        maximum(y, number),
        y.astype("f32"),
        row_sum(y),
        column_sum(y),
        row_max(y),
        column_max(y),
        row_min(y),
        column_min(y),
    )


def check_everything(result: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    """All of it is exact."""
    for found, wanted in zip(result, expected, strict=True):
        assert found.shape == wanted.shape
        assert (found.astype("f8") == wanted.astype(found.dtype).astype("f8")).all()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 16), (200, 136, 72), (129, 131, 40), (72, 1, 64)])
def test_every_place_and_total(target: str, m: int, n: int, k: int) -> None:
    """Matrices, rows, columns and numbers, of ragged shapes and of outputs that TMA does not store."""
    rng = np.random.default_rng(m)
    a, b = whole(rng, m, k), whole(rng, n, k).T  # a row of K is whole units of 16 bytes, which sm_100a needs
    operands = (whole(rng, m, n), whole(rng, m, n, dtype="f4"), whole(rng, n, dtype="f2"), whole(rng, m, 1), 1.0)
    call = everything(*operands)
    check_everything(tilekit.matmul(a, b, epilogue=call, target=target), call.reference(product(a, b)))


def test_batches(target: str) -> None:
    """Operands of every matrix, and of all; totals of each."""
    rng = np.random.default_rng(3)
    batches, m, n, k = 3, 72, 136, 80
    a, b = whole(rng, batches, m, k), whole(rng, k, n)
    operands = (whole(rng, batches, m, n), whole(rng, m, n), whole(rng, batches, 1, n), whole(rng, batches, m, 1), 0.0)
    call = everything(*operands)
    check_everything(tilekit.matmul(a, b[None], epilogue=call, target=target), call.reference(product(a, b)))


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_a_value_for_each_matrix_of_a_batch(target: str, dtype: str) -> None:
    """(B, 1, 1) broadcasts as in NumPy, also where the values lie apart."""
    rng = np.random.default_rng(29)
    a, b = whole(rng, 3, 40, 64), whole(rng, 3, 64, 72)
    wide = whole(rng, 3, 5, 2, dtype=dtype)

    @tilekit.epilogue
    def scaled(x, factor, column):  # type: ignore[no-untyped-def]
        return x * factor + column * (factor - 1)

    call = scaled(wide[:, 2:3, 1:], whole(rng, 72, dtype=dtype))
    result = tilekit.matmul(a, b, epilogue=call, target=target, out_dtype="f32")
    assert (result == call.reference(product(a, b))).all()


def test_values_of_one_column_may_lie_apart(target: str) -> None:
    """A matrix of one column is a part of a wider one, of batches too."""
    rng = np.random.default_rng(31)
    for shape in ((), (3,)):
        a, b = whole(rng, *shape, 40, 64), whole(rng, *shape, 64, 1)

        @tilekit.epilogue
        def added(x, like):  # type: ignore[no-untyped-def]
            return x + like

        call = added(whole(rng, *shape, 40, 3)[..., 1:2])
        result = tilekit.matmul(a, b, epilogue=call, target=target, out_dtype="f32")
        assert (result == call.reference(product(a, b))).all()


CONFIGS = (
    MatmulConfig((128, 128), (1, 1), split_k=3),
    MatmulConfig((128, 64), (2, 1), schedule="pingpong"),
    MatmulConfig((64, 64), (1, 2), consumers=1, stream_k=4),
    BlackwellConfig((128, 128), split_k=2),
    BlackwellConfig((64, 128), (1, 2), cta_group=1),
    BlackwellConfig((128, 96), clc_stages=0),
    tilekit.Cdna3Config((64, 64), mma_waves=2, split_k=3),
    tilekit.Cdna4Config((128, 64), mma_columns=2, counters=2),
    tilekit.Cdna3Config((256, 128), driver="ping_pong", stages=1, raster_order="n"),
    tilekit.Cdna4Config((128, 128), driver="ping_pong", split_k=2),
)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_configs(target: str, config: Any) -> None:
    """Shares of sums, turns, clusters, claims: totals are the same, since every element counts once."""
    if ("sm_90a" if target == "cuda" else target) != config.TARGET:
        pytest.skip("another chip's config")
    rng = np.random.default_rng(5)
    m, n, k = 300, 264, 512
    a, b = whole(rng, m, k), whole(rng, k, n)
    call = everything(whole(rng, m, n), whole(rng, m, n), whole(rng, n), whole(rng, m, 1), 0.0)
    check_everything(tilekit.matmul(a, b, epilogue=call, config=config, target=target), call.reference(product(a, b)))


def test_totals_are_deterministic(target: str) -> None:
    """Sums of elements that do not add up exactly are the same bits under every interleaving."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((300, 96), (96, 200)))

    @tilekit.epilogue
    def sums(x):  # type: ignore[no-untyped-def]
        return x, row_sum(x), column_sum(x)

    kernel = tilekit.kernel_for(a, b, epilogue=sums(), target="sm_90a" if target == "cuda" else target)
    found = []
    for seed in range(3):
        options = {"device": "cuda"} if target == "cuda" else {"seed": seed}
        found.append(kernel.bind(a, b, epilogue=sums(), **options)())
    for again in found[1:]:
        assert all(one.tobytes() == other.tobytes() for one, other in zip(found[0], again, strict=True))
    np.testing.assert_allclose(found[0][1], product(a, b).sum(1), rtol=1e-3, atol=1e-3)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", [1, 2, None], ids=["1", "2", "fresh"])
def test_random_trees_of_whole_numbers_are_exact(target: str, seed: int | None) -> None:
    """Functions at random, with operands of every place, of shapes at random."""
    seed = secrets.randbits(32) if seed is None else seed
    rng = np.random.default_rng(seed)
    m, n, k, batches = (int(rng.integers(low, high)) for low, high in ((1, 200), (1, 200), (1, 9), (0, 3)))
    k *= 8
    shape = (batches,) if batches else ()
    a, b = whole(rng, *shape, m, k), whole(rng, *shape, n, k).swapaxes(-1, -2)
    call = tree(seed, EXACT, m=m, n=n, batches=batches)
    result = tilekit.matmul(a, b, epilogue=call, target=target, out_dtype="f32")
    assert (result == call.reference(product(a, b))).all(), f"seed {seed}"


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", [1, 2, None], ids=["1", "2", "fresh"])
def test_random_trees_of_functions(target: str, seed: int | None) -> None:
    """Functions at random are as near to float64 as an f32 of so many operations."""
    seed = secrets.randbits(32) if seed is None else seed
    rng = np.random.default_rng(seed)
    m, n = 72, 80
    a, b = ((rng.standard_normal(shape) / 4).astype(BF16) for shape in ((m, 64), (64, n)))
    call = tree(seed, SMOOTH, m=m, n=n, most=4)
    result = tilekit.matmul(a, b, epilogue=call, target=target, out_dtype="f32")
    np.testing.assert_allclose(result, call.reference(product(a, b)), rtol=2e-3, atol=2e-3, err_msg=f"seed {seed}")


def test_groups_of_rows(target: str) -> None:
    """A grouped matmul's epilogue has a matrix, and columns of each group."""
    rng = np.random.default_rng(11)
    groups, m, n, k = 3, 300, 136, 72
    ends = np.array([70, 70, 250], np.int32)
    a, b, like, column = whole(rng, m, k), whole(rng, groups, k, n), whole(rng, m, n), whole(rng, groups, 1, n)

    @tilekit.epilogue
    def scaled(x, like, column, number):  # type: ignore[no-untyped-def]
        return (x + like * number) * column

    result = tilekit.grouped_matmul(a, b, ends, epilogue=scaled(like, column, 2.0), target=target)
    for group, (first, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        rows = slice(first, end)
        expected = scaled.reference(product(a[rows], b[group]), like[rows], column[group], 2.0)
        assert (result[rows].astype("f8") == expected.astype(BF16).astype("f8")).all()


def test_dropout_is_the_same_in_every_config(target: str) -> None:
    """Numbers at random follow from seed and place, in NumPy as in the kernel."""
    rng = np.random.default_rng(17)
    a, b = whole(rng, 130, 64), whole(rng, 64, 136)

    @tilekit.epilogue
    def dropout(x, seed: int, keep):  # type: ignore[no-untyped-def]
        return where(uniform(seed, x) < keep, x / keep, 0.0)

    call = dropout(2**32 - 5, 0.5)
    expected = call.reference(product(a, b))
    result = tilekit.matmul(a, b, epilogue=call, target=target, out_dtype="f32")
    assert (result == expected).all()
    kept = (uniform(1, np.zeros((1000, 1000))) < 0.3).mean()
    assert abs(kept - 0.3) < 0.005


def test_8_bits_and_outputs_in_place(target: str) -> None:
    """fp8 operands and results; a residual that is the result's own memory; arrays for several results."""
    if target in ("gfx942", "gfx950", "sm_80"):
        pytest.skip("results of 8 bits are refused on these chips")
    rng = np.random.default_rng(19)
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = whole(rng, 64, 64, dtype=e4m3), whole(rng, 64, 64, dtype=e4m3)

    @tilekit.epilogue
    def added(x, residual):  # type: ignore[no-untyped-def]
        return x + residual, row_max(x)

    out = whole(rng, 64, 64)
    call = added(out)
    expected = call.reference(product(a, b.T))
    most = np.empty(64, np.float32)
    result = tilekit.matmul(a, b.T, out=(out, most), epilogue=call, target=target)
    assert result[0] is out
    assert result[1] is most
    assert (out.astype("f8") == expected[0].astype(BF16).astype("f8")).all()
    assert (most == expected[1]).all()

    @tilekit.epilogue
    def swiglu(x, gate):  # type: ignore[no-untyped-def]
        return silu(x) * gate

    call = swiglu(whole(rng, 64, 64))
    small = tilekit.matmul(a, b.T, epilogue=call, out_dtype="e4m3", target=target)
    wanted = np.clip(call.reference(product(a, b.T)), -448, 448)
    np.testing.assert_allclose(small.astype("f4"), wanted, rtol=0.08, atol=0.02)


def test_odd_functions(target: str) -> None:
    """Names that are no symbols, numbers that are infinite, results that are constants, and empty sums."""
    rng = np.random.default_rng(23)
    a, b = whole(rng, 40, 64), whole(rng, 64, 48)
    expected = product(a, b)
    result = tilekit.matmul(a, b, epilogue=tilekit.epilogue(lambda x: where(x > 0, x, -np.inf)), target=target)
    assert (result.astype("f8") == np.where(expected > 0, expected, -np.inf)).all()

    @tilekit.epilogue
    def größer(x):  # type: ignore[no-untyped-def]
        return where(True, 2.5, x), row_sum(where(x != x, 0.0, 1.0)), row_max(-x)

    constant, counts, most = tilekit.matmul(a, b, epilogue=größer(), out_dtype="f32", target=target)
    assert (constant == 2.5).all()
    assert (counts == 48).all()
    assert (most == (-expected).max(1)).all()

    @tilekit.epilogue
    def shifted(x, by):  # type: ignore[no-untyped-def]
        return x + by, column_sum(x + by)

    empty, sums = tilekit.matmul(a[:, :0], b[:0], epilogue=shifted(3.0), target=target)
    assert (empty == 3).all()
    assert (sums == 120).all()
