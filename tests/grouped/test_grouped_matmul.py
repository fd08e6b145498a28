"""Groups of rows, each times its own matrix: exact, nothing else touched, on chips of each kind and on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.runtime import driver

BF16 = np.dtype(ml_dtypes.bfloat16)

CONFIGS: list[tuple[str, Any]] = [
    ("sm_90a", None),
    ("sm_90a", MatmulConfig(tile=(128, 128), cluster=(2, 1))),
    ("sm_90a", MatmulConfig(tile=(64, 96), cluster=(1, 2), consumers=1, in_flight=0)),
    ("sm_90a", MatmulConfig(tile=(128, 40), cluster=(2, 1), swap_ab=True)),
    ("sm_90a", MatmulConfig(tile=(128, 56), cluster=(1, 2), swap_ab=True, schedule="pingpong", raster_group=1)),
    ("sm_100a", None),
    ("sm_100a", BlackwellConfig(tile=(128, 64), cta_group=2, cluster=(2, 1), clc_stages=0)),
    ("sm_100a", BlackwellConfig(tile=(64, 64), cta_group=2, cluster=(4, 1), clc_stages=0, k_group=2)),
    ("sm_100a", BlackwellConfig(tile=(128, 48), cta_group=1, cluster=(2, 1), clc_stages=0, swap_ab=True)),
    ("gfx942", Cdna3Config(tile=(128, 32), swap_ab=True)),
]
SIZES = [[100, 0, 37, 300, 128], [1, 1, 1], [0, 0, 65], [128, 256]]
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def _skip_without_gpu(target: str) -> None:
    if target == "cuda" and (driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0)):
        pytest.skip("needs a GPU of capability 9.0")


def _weights(rng: np.random.Generator, groups: int, k: int, n: int, major: str) -> np.ndarray[Any, Any]:
    if major == "k":
        return rng.integers(-2, 3, (groups, n, k)).astype(BF16).transpose(0, 2, 1)
    return rng.integers(-2, 3, (groups, k, n)).astype(BF16)


def _product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.astype(np.float32) @ b.astype(np.float32)


def _check_ends(sizes: list[int], k: int, n: int, major: str, out_dtype: Any, config: Any, target: str) -> None:
    rng = np.random.default_rng(len(sizes) + n)
    b = _weights(rng, len(sizes), k, n, major)
    a = rng.integers(-2, 3, (sum(sizes) + 13, k)).astype(BF16)
    out = np.full((len(a), n), 7, out_dtype)
    ends = np.cumsum(sizes).astype(np.int32)
    expected = out.copy()
    for group, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        expected[end - size : end] = _product(a[end - size : end], b[group]).astype(out_dtype)
    assert tilekit.grouped_matmul(a, b, ends, out=out, config=config, target=target) is out
    assert np.array_equal(out, expected)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("target", "config"), CONFIGS, ids=str)
def test_groups_behind_each_other(target: str, config: Any, sizes: list[int]) -> None:
    """Exact for every size of group, empty ones too; rows behind the last group keep what they held."""
    _check_ends(sizes, 200, 136, "k", BF16, config, target)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("major", "out_dtype"), [("mn", BF16), ("k", np.float32), ("mn", np.float16)])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", ON_GPU])
def test_majors_and_outputs(target: str, major: str, out_dtype: Any) -> None:
    """Either major of the matrices, and every type of output."""
    _skip_without_gpu(target)
    _check_ends([90, 3, 200], 136, 72, major, out_dtype, None, target)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "config",
    [
        None,
        MatmulConfig(tile=(128, 256), cluster=(2, 1)),
        MatmulConfig(tile=(128, 128)),
        MatmulConfig(tile=(64, 16), cluster=(2, 1), consumers=1, k_group=2, swap_ab=True),
        MatmulConfig(tile=(128, 120), cluster=(2, 1), schedule="pingpong", swap_ab=True),
        MatmulConfig(tile=(256, 112), cluster=(2, 2), swap_ab=True),
    ],
    ids=str,
)
def test_many_groups_on_the_gpu(config: Any) -> None:
    """A skewed routing of 64 groups."""
    _skip_without_gpu("cuda")
    sizes = np.random.default_rng(5).geometric(0.01, 64).tolist()
    _check_ends(sizes, 320, 512, "k", BF16, config, "cuda")


@pytest.mark.parametrize(("target", "config"), [*CONFIGS, pytest.param("cuda", None, marks=pytest.mark.gpu)], ids=str)
def test_counted_groups(target: str, config: Any) -> None:
    """Groups that begin a fixed number of rows apart: only the counted rows are computed and written."""
    _skip_without_gpu(target)
    rng = np.random.default_rng(2)
    counts = np.array([100, 0, 37, 150], np.int32)
    b = _weights(rng, 4, 72, 136, "k")
    a = rng.integers(-2, 3, (4, 150, 72)).astype(BF16)
    out = np.full((4, 150, 136), 7, BF16)
    expected = out.copy()
    for group, count in enumerate(counts):
        expected[group, :count] = _product(a[group, :count], b[group]).astype(BF16)
    tilekit.grouped_matmul(a, b, counts=counts, out=out, config=config, target=target)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "gfx942"])
def test_a_kernel_is_bound_to_any_groups(target: str) -> None:
    """`grouped_kernel_for` is what a call launches, `compile` builds the same one, and its plans keep a report."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-2, 3, (90, 64)).astype(BF16), _weights(rng, 3, 64, 72, "k")
    kernel = tilekit.grouped_kernel_for(a, b, [30, 30, 90], target=target)
    assert tilekit.compile(kernel.spec, kernel.target.name, kernel.config) is kernel
    for ends in ([30, 30, 90], [0, 89, 90]):
        plan = kernel.bind(a, b, ends=np.array(ends, np.int32), seed=5)
        found, parts = plan(), zip([0, *ends], ends, b, strict=False)
        expected = np.concatenate([_product(a[first:end], weights) for first, end, weights in parts])
        assert np.array_equal(found, expected.astype(BF16))
        assert plan.report.clean
    with pytest.raises(ArgumentError, match="pass either ends"):
        kernel.bind(a, b)
    with pytest.raises(TypeError, match="no keyword 'bias'"):
        kernel.bind(a, b, ends=np.array(ends, np.int32), bias=np.ones(72, np.float32))


def test_a_kernel_with_scales_of_blocks_is_bound() -> None:
    """With its scales, which it asks for."""
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = np.ones((2, 16, 128), e4m3), np.ones((2, 64, 128), e4m3).transpose(0, 2, 1)
    scales = {"scale_a": np.full((2, 16, 1), 0.5, np.float32), "scale_b": np.full((2, 1, 1), 2, np.float32)}
    kernel = tilekit.grouped_kernel_for(a, b, counts=[3, 16], **scales)
    assert (kernel.bind(a, b, counts=np.array([3, 16], np.int32), **scales)()[1] == 128).all()
    with pytest.raises(ArgumentError, match="scale_a is None"):
        kernel.bind(a, b, counts=np.array([3, 16], np.int32))


def test_rows_of_no_group_are_nan() -> None:
    """Numbers of rows where ends belong leave rows to no group: a new output shows them."""
    a, b = np.ones((40, 64), np.float16), np.ones((3, 64, 24), np.float16)
    found = tilekit.grouped_matmul(a, b, np.array([10, 12, 18], np.int32))
    assert (found[:18] == 64).all()
    assert np.isnan(found[18:]).all()


def test_an_activation_and_a_new_output() -> None:
    """Without out an array of the right shape comes back; bounds may be a list."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-2, 3, (30, 64)).astype(BF16), _weights(rng, 2, 64, 64, "k")
    out = tilekit.grouped_matmul(a, b, [10, 30], activation="relu")
    expected = np.concatenate([_product(a[:10], b[0]), _product(a[10:], b[1])]).clip(0).astype(BF16)
    assert out.dtype == BF16
    assert np.array_equal(out, expected)


BAD = [
    ({"ends": [5, 3]}, r"ends\[1\] = 3: legal: 5 to 10; nearest: 5"),
    ({"ends": [5, 100]}, r"ends\[1\] = 100: legal: 5 to 10; nearest: 10"),
    ({"ends": [-1, 10]}, r"ends\[0\] = -1: legal: 0 to 10; nearest: 0"),
    ({"ends": [10]}, "one contiguous int32 for each of b's 2 groups"),
    ({"ends": np.array([10, 5], np.int32)[::-1]}, r"strides \(-1,\).*with strides \(1,\); pass a copy, .*ends.copy"),
    ({"ends": np.array([5, 0, 10, 0], np.int32)[::2]}, r"shape \(2,\) and strides \(2,\)"),
    ({"ends": np.array([5.0, 10.0], np.float32)}, "ends's type: given 'f32'; legal: int32"),
    ({}, "either ends"),
    ({"ends": [5, 10], "counts": [5, 5]}, "either ends"),
    ({"counts": [5, 5]}, r"counts take a \(G, R, K\)"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[str(g) for g, _ in BAD])
def test_bad_bounds_are_refused(given: dict[str, Any], message: str) -> None:
    """The message names the bound, what it is, what is legal and the nearest legal value."""
    a, b = np.ones((10, 64), BF16), np.ones((2, 64, 64), BF16)
    with pytest.raises(ArgumentError, match=message):
        tilekit.grouped_matmul(a, b, **given)


def test_operands_that_do_not_fit() -> None:
    """The shapes in the messages are those that were passed, and rows that share a place are said to."""
    a, b, ends = np.ones((10, 32), BF16), np.ones((2, 64, 32), BF16), [5, 10]
    with pytest.raises(ArgumentError, match=r"a is \(10, 32\) and b is \(2, 64, 32\): K must .*transposed.*TK-MM-011"):
        tilekit.grouped_matmul(a, b, ends)
    with pytest.raises(ArgumentError, match=r"a's rows are 0 bytes apart: they share one place.*TK-GROUP-003"):
        tilekit.grouped_matmul(np.broadcast_to(np.ones((1, 64), BF16), (10, 64)), b, ends)
    narrow = np.ones((10, 64), ml_dtypes.float4_e2m1fn)
    with pytest.raises(ArgumentError, match=r"a is e2m1 and b is e2m1: tensor cores multiply.*TK-MM-001"):
        tilekit.grouped_matmul(narrow, np.ones((2, 64, 32), ml_dtypes.float4_e2m1fn), ends)


def test_counted_groups_whose_rows_are_contiguous() -> None:
    """Those of all groups lie behind each other; where a group's own do, the message says how they are to lie."""
    x, b, counts = np.ones((64, 2, 24), BF16), np.ones((2, 64, 32), BF16), np.array([5, 24], np.int32)
    found = tilekit.grouped_matmul(x.transpose(1, 2, 0), b, counts=counts)
    assert (found[0, :5] == 64).all()
    assert (found[1] == 64).all()
    own = np.ones((2, 64, 24), BF16).transpose(0, 2, 1)
    with pytest.raises(ArgumentError, match=r"an array of shape \(64, 2, 24\), .*transpose\(1, 2, 0\) \[TK-GROUP-003"):
        tilekit.grouped_matmul(own, b, counts=counts)


NONSENSE = [
    [90, 40, 130, 130],
    [-5, 60, 500, 200],
    [70, 70, -2147483648, 2147483647],
    [2147483647, 10, 20, 30],
    [-1, -1, -1, -1],
    [150, 0, 0, 151],
]
"""Bounds that no check could have seen: of four groups, ends of 150 rows or counts of up to 60."""


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("kind", ["ends", "counts"])
@pytest.mark.parametrize("bounds", NONSENSE, ids=str)
@pytest.mark.parametrize(
    ("target", "config"),
    [CONFIGS[0], CONFIGS[1], CONFIGS[4], pytest.param("cuda", None, marks=pytest.mark.gpu)],
    ids=str,
)
def test_nonsense_on_the_device(
    kind: str, bounds: list[int], target: str, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds that only the device knows may be anything: each counts as the nearest legal one, and nothing is found."""
    _skip_without_gpu(target)
    rng = np.random.default_rng(3)
    b = _weights(rng, 4, 72, 136, "k")
    shape = (150, 72) if kind == "ends" else (4, 60, 72)
    a = rng.integers(-2, 3, shape).astype(BF16)
    out = np.full((*shape[:-1], 136), 7, BF16)
    expected, first = out.copy(), 0
    for group, bound in enumerate(bounds):
        if kind == "ends":
            end = min(max(bound, first), 150)
            expected[first:end] = _product(a[first:end], b[group]).astype(BF16)
            first = end
        else:
            rows = min(max(bound, 0), 60)
            expected[group, :rows] = _product(a[group, :rows], b[group]).astype(BF16)
    monkeypatch.setattr("tilekit.kernels.grouped.arguments._check", lambda *_: None)
    tilekit.grouped_matmul(a, b, out=out, config=config, target=target, **{kind: np.array(bounds, np.int32)})
    assert np.array_equal(out, expected)


def test_an_output_that_no_copy_engine_writes() -> None:
    """Of rows that are no whole 16 bytes the error says which N are, whatever the pitch; and else which pitch is."""
    a, b = np.ones((10, 64), BF16), np.ones((1, 62, 64), BF16).transpose(0, 2, 1)
    for out in (None, np.zeros((10, 64), BF16)[:, :62]):
        with pytest.raises(ArgumentError, match=r"N=62.*multiple of 8; nearest: 64, .*TK-GROUP-003"):
            tilekit.grouped_matmul(a, b, [10], out=out)
    with pytest.raises(ArgumentError, match=r"rows are 116 bytes apart.*nearest: no out, .* 128 bytes apart"):
        tilekit.grouped_matmul(a, b[..., :56], [10], out=np.zeros((10, 58), BF16)[:, :56])
    padded = np.zeros((10, 64), BF16)[:, :56]
    tilekit.grouped_matmul(a, b[..., :56], [10], out=padded)
    assert (padded == 64).all()


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("rows", "k"), [(0, 64), (8, 0), (0, 0)])
def test_groups_of_nothing(target: str, rows: int, k: int) -> None:
    """Groups with room for no rows give an empty result; with K of 0 the counted rows are zeros."""
    a, b = np.ones((3, rows, k), BF16), np.ones((3, k, 64), BF16)
    counts = [rows // 2] * 3
    out = np.full((3, rows, 64), 7, BF16)
    tilekit.grouped_matmul(a, b, counts=counts, out=out, target=target)
    expected = np.full((3, rows, 64), 7, BF16)
    expected[:, : rows // 2] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "gfx950"])
@pytest.mark.parametrize(("groups", "rows", "n"), [(3, 12, 0), (0, 12, 64), (0, 0, 64), (0, 12, 3), (3, 0, 0)])
def test_no_groups_and_no_columns(target: str, groups: int, rows: int, n: int) -> None:
    """Groups of matrices without columns give a result without columns; rows of no group keep what they held."""
    a, b = np.ones((rows, 64), BF16), np.ones((groups, n, 64), BF16).transpose(0, 2, 1)
    out = np.full((rows, n), 7, BF16)
    ends = np.full(groups, rows, np.int32)
    assert tilekit.grouped_matmul(a, b, ends, out=out, target=target) is out
    np.testing.assert_array_equal(out, np.full((rows, n), 7, BF16))
    if groups:
        counted = np.ones((groups, 8, 64), BF16)
        found = tilekit.grouped_matmul(counted, b, counts=[8] * groups, target=target)
        assert found.shape == (groups, 8, n)
