"""Operands quantised and made numbers again, and scales laid out by their kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import laid_out
from tilekit.errors import ArgumentError

KINDS = ("mxfp8", "mxfp4", "nvfp4")
UE8M0, E4M3 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn
CODES = np.ones((4, 3), np.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (129, 5), (300, 13)])
@pytest.mark.parametrize("dtype", [UE8M0, E4M3, np.uint8])
def test_scales_are_laid_out(shape: tuple[int, int], dtype: Any) -> None:
    """Each at its place, zeros behind them, in their own type; also of a transpose and of every other row."""
    codes = np.random.default_rng(1).integers(1, 120, shape).astype(np.uint8).view(dtype)
    found = tilekit.lay_out_scales(codes)
    assert found.dtype == codes.dtype
    assert found.shape == (-(-shape[0] // 128), -(-shape[1] // 4), 32, 4, 4)
    np.testing.assert_array_equal(found.reshape(-1).view(np.uint8), laid_out(codes).view(np.uint8))
    np.testing.assert_array_equal(tilekit.lay_out_scales(np.asfortranarray(codes)).view(np.uint8), found.view(np.uint8))
    twice = np.repeat(codes.view(np.uint8), 2, 0).view(dtype)[::2]
    np.testing.assert_array_equal(tilekit.lay_out_scales(twice).view(np.uint8), found.view(np.uint8))


def nearest(values: Any, dtype: Any) -> Any:
    """What ml_dtypes rounds to."""
    return values.astype(dtype).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_quantised_as_specified(kind: str, seed: int) -> None:
    """A block's scale follows from its largest number, and each element is the nearest one (OCP MX 1.0, 6.3; NVFP4)."""
    rng = np.random.default_rng(seed)
    block, rows, k = (16 if kind == "nvfp4" else 32), 5, int(rng.integers(1, 50)) * 2
    x = (rng.normal(size=(rows, k)) * 10.0 ** rng.integers(-6, 7, (rows, k))).astype(np.float32)
    x[0] = 0
    found = tilekit.quantise(x, kind)
    element, largest = (E4M3, 448) if kind == "mxfp8" else (ml_dtypes.float4_e2m1fn, 6)
    numbers = tilekit.dequantise(found.values)
    overall = abs(x).max() / 2688 if kind == "nvfp4" else 1.0
    assert found.scale == pytest.approx(overall)
    for column in range(found.scales.shape[1]):
        part = x[:, column * block : (column + 1) * block]
        most = abs(part).max(1)
        scale = found.scales[:, column].astype(np.float64)
        if kind == "nvfp4":
            expected = nearest(np.minimum(most / np.float32(6 * found.scale), 448), E4M3)
        else:
            with np.errstate(divide="ignore"):
                expected = 2.0 ** np.clip(np.floor(np.log2(most)) - np.floor(np.log2(largest)), -127, 127)
        np.testing.assert_array_equal(scale, expected)
        factor = (scale.astype(np.float32) * np.float32(found.scale))[:, None]
        divided = part / np.where(factor == 0, 1, factor)
        rounded = nearest(np.clip(divided, -largest, largest), element)
        np.testing.assert_array_equal(numbers[:, column * block : (column + 1) * block], rounded)


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_and_multiplied(kind: str) -> None:
    """What was quantised is near, does not change a second time, and is what the kernel multiplies."""
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(rows, 128)).astype(np.float32) for rows in (40, 48))
    a, b = tilekit.quantise(x, kind), tilekit.quantise(y, kind)
    back = tilekit.dequantise(*a)
    assert np.linalg.norm(back - x) < (0.04 if kind == "mxfp8" else 0.2) * np.linalg.norm(x)
    np.testing.assert_allclose(tilekit.dequantise(*tilekit.quantise(back, kind)), back, rtol=1e-6)
    found = tilekit.scaled_matmul(
        a.values, b.values.T, a.scales, b.scales, scale=a.scale * b.scale, out_dtype="f32", target="sm_100a"
    )
    exact = back.astype(np.float64) @ tilekit.dequantise(*b).astype(np.float64).T
    np.testing.assert_allclose(found, exact, atol=1e-3)


def test_e5m2_and_what_is_no_number() -> None:
    """MXFP8 of e5m2; a block with an infinity has a scale that is none."""
    x = np.array([[1.0, -3.5, 60000.0, 0.25]], np.float32)
    found = tilekit.quantise(x, dtype="e5m2")
    assert found.values.dtype == ml_dtypes.float8_e5m2
    np.testing.assert_array_equal(tilekit.dequantise(*found), [[1, -3.5, 57344, 0.25]])
    assert np.isnan(tilekit.quantise(np.array([[np.inf, 1]], np.float32)).scales.astype(np.float32)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_torch_has_the_same_bytes(kind: str) -> None:
    """torch's tensors are quantised, made numbers and laid out as NumPy's are."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(4).normal(size=(130, 96)).astype(np.float32)
    ours, theirs = tilekit.quantise(x, kind), tilekit.quantise(torch.from_numpy(x), kind)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(torch.uint8).numpy())
    assert ours.scale == theirs.scale
    np.testing.assert_array_equal(tilekit.dequantise(*ours), tilekit.dequantise(*theirs).numpy())
    scales = tilekit.lay_out_scales(theirs.scales)
    assert scales.dtype == theirs.scales.dtype
    np.testing.assert_array_equal(scales.view(torch.uint8).numpy().reshape(-1), laid_out(ours.scales).view(np.uint8))
    found = tilekit.scaled_matmul(theirs.values, theirs.values.T, theirs.scales, scales, out_dtype="f32")
    again = tilekit.scaled_matmul(ours.values, ours.values.T, ours.scales, ours.scales, out_dtype="f32")
    np.testing.assert_array_equal(found.numpy(), again)


def test_wrong_calls() -> None:
    """Formats that do not exist, an odd K of pairs, and what is no matrix of scales."""
    x = np.ones((3, 31), np.float32)
    for call, message in (
        (lambda: tilekit.quantise(x, "mxfp6"), "to: given 'mxfp6'.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x, "nvfp4"), "K even.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x, dtype="bf16"), "dtype: given 'bf16'; legal: e4m3 or e5m2"),
        (lambda: tilekit.quantise(x, scale=2.0), "scale: given 2.0.*nvfp4.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x, "nvfp4", scale=0.0), "scale: given 0.0.*above 0.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x[:, :30], "nvfp4", scale=1e-40), "scale: given 1e-40.*1.18e-38.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x[:, :30], "nvfp4", scale=1e-40), "nearest legal: 1.175.*e-38"),
        (lambda: tilekit.quantise(x[:, :30], "nvfp4", dtype="e5m2"), "dtype: given 'e5m2'.*nvfp4.*e2m1.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x[:, :30], "mxfp4", dtype="e4m3"), "dtype: given 'e4m3'.*mxfp4.*e2m1.*TK-SCALE-005"),
        (lambda: tilekit.dequantise((x, x)), r"values: given 'a tuple of 2'.*dequantise\(\*values\).*TK-SCALE-005"),
        (lambda: tilekit.quantise(x[:, :30], "nvfp4", scale="1"), "scale: given '1'.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x, ["mxfp8"]), r"to: given \['mxfp8'\].*TK-SCALE-005"),
        (lambda: tilekit.quantise(x + 1j), "x: given dtype.*complex64.*an array of floats.*TK-SCALE-005"),
        (lambda: tilekit.quantise(x.astype(np.int32)), "x: given dtype.*int32.*an array of floats"),
        (lambda: tilekit.dequantise(np.ones(8, np.uint8)), r"values: given \(8,\); legal: \(rows, K\)"),
        (lambda: tilekit.dequantise(np.ones((2, 3, 4), np.uint8)), r"values: given \(2, 3, 4\)"),
        (
            lambda: tilekit.dequantise(np.ones((2, 3, 4), E4M3), np.ones((2, 3, 1), UE8M0)),
            r"values: given \(2, 3, 4\).*TK-SCALE-005",
        ),
        (lambda: tilekit.dequantise(x.astype(E4M3), x[:, :1].astype(np.float16)), "given f16; legal: .*e4m3 or f32"),
        (lambda: tilekit.dequantise(x.astype(E4M3), x[:2, :1]), r"given \(2, 1\); legal: \(3, 1\), .*or \(1, 1\), "),
        (lambda: tilekit.dequantise(x.astype(E4M3), [[1]]), "scales: given.*an array of NumPy, torch or CuPy"),
        (lambda: tilekit.dequantise(x.astype(E4M3), scale="2"), "scale: given '2'; legal: a number"),
        (lambda: tilekit.quantise([1.0]), "x: given.*an array of NumPy, torch or CuPy"),
        (lambda: tilekit.dequantise(x), "values: given f32"),
        (lambda: tilekit.dequantise(x.astype(E4M3), np.ones((3, 2), UE8M0)), r"legal: \(3, 1\), one for 32"),
        (lambda: tilekit.dequantise(tilekit.quantise(x), None, np.ones(3)), r"scale: given array.*TK-SCALE-005"),
        (lambda: tilekit.quantise(np.zeros((2, 32), "V4")), "x: given dtype.*V4.*an array of floats.*TK-SCALE-005"),
        (lambda: tilekit.quantise(np.zeros((2, 32), [("a", "f4")])), "x: given dtype.*an array of floats"),
        (lambda: tilekit.quantise(x.astype(ml_dtypes.int4)), "x: given dtype.*int4.*an array of floats"),
        (lambda: tilekit.quantise(np.ma.masked_array(x)), "x has a mask.*TK-ARRAY-002"),
        (lambda: tilekit.dequantise(np.ma.masked_array(x)), "values has a mask.*TK-ARRAY-002"),
        (lambda: tilekit.matmul(np.ma.masked_array(x), x.T), "a has a mask.*TK-ARRAY-002"),
        (lambda: tilekit.quantise(x, dtype=ml_dtypes.float8_e5m2fnuz), "dtype: given.*nearest legal: 'e5m2'"),
        (lambda: tilekit.lay_out_scales(x), "scales: given f32; legal: ue8m0, uint8 or e4m3.*TK-SCALE-001"),
        (
            lambda: tilekit.lay_out_scales(np.ones((4, 3), np.uint8)[::-1]),
            r"scales has strides \(-3, 1\).*TK-SCALE-002",
        ),
        (lambda: tilekit.lay_out_scales(CODES, target="sm_80"), "target: given 'sm_80'.*'sm_100a'"),
        (lambda: tilekit.lay_out_scales(np.ones(3, np.uint8)), r"scales: given \(3,\).*TK-SCALE-002"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


def test_tensors_that_cannot_be_quantised() -> None:
    """A gradient would be lost, and NVFP4's scale of the whole is not known without memory; both name `x`."""
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 64)
    for to in ("mxfp8", "mxfp4", "nvfp4"):
        with pytest.raises(ArgumentError, match=r"^x requires a gradient.*TK-ARRAY-002"):
            tilekit.quantise(x.clone().requires_grad_(), to)
        with torch.no_grad():
            tilekit.quantise(x.clone().requires_grad_(), to)
    with pytest.raises(ArgumentError, match=r"^x has no memory \(meta\).*TK-ARRAY-002"):
        tilekit.quantise(x.to("meta"), "nvfp4")


def test_element_types_by_any_of_their_names() -> None:
    """A library's type is the element type as much as its name is, and e2m1 of ml_dtypes is what its pairs are."""
    x = np.random.default_rng(3).normal(size=(4, 64)).astype(np.float32)
    named, typed = tilekit.quantise(x, dtype="e5m2"), tilekit.quantise(x, dtype=ml_dtypes.float8_e5m2)
    assert typed.values.dtype == named.values.dtype == ml_dtypes.float8_e5m2
    pairs = tilekit.quantise(x, "mxfp4", dtype="e2m1")
    single = np.stack([pairs.values & 15, pairs.values >> 4], -1).reshape(4, 64).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(tilekit.dequantise(single, pairs.scales), tilekit.dequantise(pairs))


def test_numbers_beyond_f32_come_without_a_warning() -> None:
    """They become infinities, or the largest of a format; warnings are errors of this suite."""
    found = tilekit.quantise(np.full((1, 32), 1e300))
    tilekit.quantise(np.full((1, 32), 3e38, np.float32), "nvfp4", scale=2.0**-60)
    assert np.isinf(tilekit.dequantise(np.ones((1, 32), E4M3), scale=1e300)).all()
    assert found.scales.view(np.uint8)[0, 0] == 255


def test_a_given_scale_of_the_whole() -> None:
    """NVFP4's scales are over the scale that is given, and a negative zero keeps its sign in e2m1."""
    x = np.array([[-0.0, 6.0] + [0.0] * 14 + [12.0, -1.0] + [0.0] * 14], np.float32)
    found = tilekit.quantise(x, "nvfp4", scale=0.5)
    assert found.scale == 0.5
    np.testing.assert_array_equal(found.scales.astype(np.float32), [[2, 4]])
    np.testing.assert_array_equal(tilekit.dequantise(*found), x)
    assert found.values[0, 0] == 0x78


def test_a_scale_of_values_alone() -> None:
    """Values without scales of blocks are multiplied by that of the whole."""
    values = np.array([[1, -2, 0.5]], E4M3)
    np.testing.assert_array_equal(tilekit.dequantise(values, scale=4.0), [[4, -8, 2]])
    np.testing.assert_array_equal(tilekit.dequantise(values), [[1, -2, 0.5]])


@pytest.mark.parametrize("most", [1e-45, 1e-38, 3e-36])
def test_nvfp4_of_the_smallest_numbers(most: float) -> None:
    """Where a 2688th of the largest number is none of f32's normal ones, the smallest of those is the whole's scale."""
    x = np.full((2, 32), most, np.float32)
    x[1, 16:] /= 2
    found = tilekit.quantise(x, "nvfp4")
    assert found.scale == np.finfo(np.float32).tiny
    np.testing.assert_allclose(tilekit.dequantise(found), x, 0.2, 6 * float(np.finfo(np.float32).tiny))


@pytest.mark.parametrize(("rows", "k"), [(1, 100), (4, 128), (130, 300), (257, 384)])
def test_f32_scales_of_blocks_are_multiplied_in(rows: int, k: int) -> None:
    """Those of 1 x 128 elements, as A has them, and those of 128 x 128, as B has."""
    random = np.random.default_rng(rows)
    values, blocks = random.normal(size=(rows, k)).astype(E4M3), -(-k // 128)
    each, tall = random.random((rows, blocks), np.float32), random.random((-(-rows // 128), blocks), np.float32)
    numbers = values.astype(np.float32)
    wide = np.repeat(each, 128, 1)[:, :k]
    np.testing.assert_array_equal(tilekit.dequantise(values, each), numbers * wide)
    both = np.repeat(np.repeat(tall, 128, 0), 128, 1)[:rows, :k]
    np.testing.assert_array_equal(tilekit.dequantise(values, tall, 0.5), numbers * both * np.float32(0.5))
