"""Epilogues written in Python behind products with scales of blocks: several results, totals, quantised results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw
from tests.blockwise.scaled_products import ScaledProduct
from tilekit.epilogue import column_max, column_sum, maximum, row_sum
from tilekit.errors import ArgumentError

BF16 = ml_dtypes.bfloat16
M, N, K = 200, 136, 256


@tilekit.epilogue
def gated(x, bias, gate, factor):  # type: ignore[no-untyped-def]
    """A column, a matrix and a row; a second matrix, and totals."""
    y = maximum(x + bias, 0.0) * gate * factor
    return y, y.astype("f32"), row_sum(y), column_max(y), column_sum(y)


@tilekit.epilogue
def kept(x, bias, gate, factor):  # type: ignore[no-untyped-def]
    """The same, of elements alone; the second matrix has no type of its own."""
    y = maximum(x + bias, 0.0) * gate * factor
    return y, y.astype("f32"), y


def operands(seed: int) -> tuple[Any, ...]:
    """Small whole numbers for them."""
    rng = np.random.default_rng(seed)
    whole = (rng.integers(-2, 3, shape) for shape in ((N,), (M, N), (M, 1)))
    return tuple(one.astype(dtype) for one, dtype in zip(whole, ("f4", BF16, "f4"), strict=True))


def check(found: tuple[Any, ...], sums: Any, given: tuple[Any, ...]) -> None:
    """To the bit, where it is exact in f32."""
    for one, wanted in zip(found, gated(*given).reference(sums), strict=True):
        np.testing.assert_array_equal(one, wanted.astype("f4").astype(one.dtype))


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("lie", ["rows", "columns"])
def test_scales_of_128(target: str, lie: Any) -> None:
    """f32 scales of 128 elements, which the copy engine brings or threads read; results made, and given."""
    p = ScaledProduct(3, target, M, N, K, lie=lie)
    arrays, given = p.arrays(), operands(4)
    call = arrays["a"], arrays["b"], arrays["scale_a"], arrays["scale_b"]
    sums = p.expected(arrays)
    found = tilekit.scaled_matmul(*call, epilogue=gated(*given), out_dtype="f32", target=target)
    check(found, sums, given)
    out = tuple(np.full_like(one, np.nan) for one in found)
    again = tilekit.scaled_matmul(*call, epilogue=gated(*given), out_dtype="f32", target=target, out=out)
    assert all(one is two for one, two in zip(again, out, strict=True))
    check(out, sums, given)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    ("kind", "target"), [("mxfp8", "sm_100a"), ("nvfp4", "sm_100a"), ("mxfp8", "gfx950"), ("mxfp4", "gfx950")]
)
def test_scales_of_blocks(kind: str, target: str) -> None:
    """Formats whose scales matrix instructions take."""
    p, given = draw(kind, M, N, 64, seed=5), operands(6)
    check(tilekit.scaled_matmul(*p.call, epilogue=gated(*given), out_dtype="f32", target=target), p.exact, given)


@pytest.mark.parametrize("to", ["mxfp8", "mxfp4", "nvfp4"])
def test_quantised_results(to: str) -> None:
    """Values and scales are those of `quantise`, of the first result; the others come behind them."""
    p, given = draw("mxfp8", M, N, 64, seed=7), operands(8)
    first, exact, _ = kept(*given).reference(p.exact)
    whole = 1.0 if to == "nvfp4" else None
    expected = tilekit.quantise(first.astype(np.float32), to, scale=whole)
    out = np.full((M, N), np.nan, np.float32), np.full((M, N), np.nan).astype(BF16)
    values, scales = np.full_like(expected.values, 77), np.full_like(expected.scales, 77)
    made = tilekit.scaled_matmul(*p.call, epilogue=kept(*given), out_dtype=to)
    stored = tilekit.scaled_matmul(*p.call, epilogue=kept(*given), out_dtype=to, out=(values, scales, *out))
    assert stored[0] is values
    assert stored[3] is out[1]
    for found in (made, stored):
        np.testing.assert_array_equal(found[0].view(np.uint8), expected.values.view(np.uint8))
        np.testing.assert_array_equal(found[1].view(np.uint8), expected.scales.view(np.uint8))
        np.testing.assert_array_equal(found[2], exact)
        np.testing.assert_array_equal(found[3].astype("f4"), exact.astype("f4").astype(BF16).astype("f4"))


def test_kernels_bind() -> None:
    """A kernel that was built for an epilogue takes its operands when it is bound."""
    p, given = ScaledProduct(9, "sm_90a", M, N, K), operands(9)
    arrays = p.arrays()
    call = arrays["a"], arrays["b"], arrays["scale_a"], arrays["scale_b"]
    kernel = tilekit.scaled_kernel_for(*call, epilogue=gated(*given), out_dtype="f32", target="sm_90a")
    check(
        kernel.bind(call[0], call[1], scale_a=call[2], scale_b=call[3], epilogue=gated(*given))(),
        p.expected(arrays),
        given,
    )
    q = draw("mxfp8", M, N, 64, seed=10)
    scaled = tilekit.scaled_kernel_for(*q.call, epilogue=gated(*given), out_dtype="f32")
    laid_out = [tilekit.lay_out_scales(scales) for scales in q.call[2:]]
    check(scaled.bind(*q.call[:2], *laid_out, epilogue=gated(*given))(), q.exact, given)


def test_mistakes() -> None:
    """Each names the argument, and what is legal."""
    p, given = draw("mxfp8", M, N, 64), operands(1)

    def refused(words: str, epilogue: Any, **keywords: Any) -> None:
        with pytest.raises(ArgumentError, match=words):
            tilekit.scaled_matmul(*p.call, epilogue=epilogue, **keywords)

    refused("bias beside epilogue", gated(*given), bias=given[0])
    refused("beta beside epilogue", gated(*given), beta=0.5)
    refused("activation='relu' beside epilogue", gated(*given), activation="relu")
    refused(r"out is a tuple of 2, and gated stores 5", gated(*given), out=(np.empty((M, N), BF16),) * 2)
    refused(r"gated makes totals with out_dtype='nvfp4'", gated(*given), out_dtype="nvfp4")
    values, scales = np.empty((M, N), ml_dtypes.float8_e4m3fn), np.empty((M, 5), ml_dtypes.float8_e8m0fnu)
    refused(r"out is a tuple of 3, and kept stores 4", kept(*given), out_dtype="mxfp8", out=(values, scales, values))
    refused(
        r"out\[3\] is f32.*; the result is bf16",
        kept(*given),
        out_dtype="mxfp8",
        out=(values, scales, *2 * [np.empty((M, N), "f4")]),
    )
    refused(r"gate has shape \(3, 3\)", kept(given[0], np.ones((3, 3), BF16), given[2]))
