"""`tilekit.scaled_matmul` of MXFP8, MXFP4 and NVFP4 on the emulator, against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw, laid_out, pairs
from tilekit.tile_op.block_scaled import FORMATS

SINGLE = {"cta_group": 1, "cluster": (1, 1), "clc_stages": 0}
PAIR = {"cta_group": 2, "cluster": (2, 1), "clc_stages": 0}
KINDS = tuple(FORMATS)


def config(tile: int = 128, **fields: Any) -> tilekit.BlackwellConfig:
    """A config with room for scales."""
    return tilekit.BlackwellConfig(tile=(128, tile), accumulator_stages=1, **fields)


def check(found: Any, exact: Any) -> None:
    """Compare with what float64 gives, rounded once."""
    np.testing.assert_array_equal(found.astype(np.float64), exact.astype(found.dtype).astype(np.float64))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_exact_products(kind: str, seed: int) -> None:
    """Bit for bit, of 20 seeds a format: shapes, types, one CTA or a pair, and the layout of scales going round."""
    rng = np.random.default_rng(seed + 100)
    m, n, k = (int(rng.integers(1, most)) for most in (300, 300, 400))
    m, n, k = max(m, 2), -(-n // 4) * 4, k + k % 2 if kind != "mxfp8" else k
    types = ("e4m3 e4m3", "e5m2 e4m3", "e4m3 e5m2", "e5m2 e5m2")[seed % 4]
    p = draw(kind, m, n, k, seed=seed, types=types)
    scales = (laid_out(p.scale_a), laid_out(p.scale_b)) if seed % 3 == 0 else (p.scale_a, p.scale_b)
    chosen = None if seed % 5 == 4 else config((128, 256)[seed // 2 % 2], **(SINGLE, PAIR)[seed % 2])
    check(tilekit.scaled_matmul(p.a, p.b, *scales, out_dtype="f32", config=chosen), p.exact)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_within_the_documented_accumulation(kind: str) -> None:
    """Of any numbers: an instruction cuts its terms off 25 bits below the largest, and its sum to f32."""
    p = draw(kind, 130, 132, 512, seed=5, spread=True)
    found = tilekit.scaled_matmul(*p.call, out_dtype="f32")
    instructions = 512 // (32 * FORMATS[kind].packed)
    assert (abs(found - p.exact) <= instructions * 2.0**-22 * p.size).all()
    assert (found != 0).any()


@pytest.mark.parametrize("fields", [SINGLE, PAIR], ids=["single", "pair"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_scale_has_its_place(kind: str, fields: dict[str, Any]) -> None:
    """Each block's scale is another than its neighbours', in rows, columns and K; ones show where each goes."""
    block, m, n, count = FORMATS[kind].block, 256, 256, 19
    rows, columns = np.arange(m)[:, None], np.arange(n)[:, None]
    steps = np.arange(count)[None, :]
    a_codes, b_codes = (rows * 5 + steps * 3 + rows // 32) % 8, (columns * 3 + steps * 7 + columns // 32) % 5
    dtype = ml_dtypes.float8_e4m3fn if kind == "nvfp4" else ml_dtypes.float8_e8m0fnu
    scale_a, scale_b = ((2.0 ** (codes - 4)).astype(dtype) for codes in (a_codes, b_codes))
    element = ml_dtypes.float8_e4m3fn if kind == "mxfp8" else ml_dtypes.float4_e2m1fn
    ones = np.ones((m, block * count), element)
    found = tilekit.scaled_matmul(ones, ones.T, scale_a, scale_b, out_dtype="f32", config=config(**fields))
    check(found, block * scale_a.astype(np.float64) @ scale_b.astype(np.float64).T)


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_claims_and_split_sums(kind: str) -> None:
    """What the matmul can do otherwise, it does with scales: multicast, claimed tiles, shares of K, longer k-blocks."""
    p = draw(kind, 260, 516, 1056, seed=7)
    for fields in (
        {"cta_group": 2, "cluster": (4, 1), "clc_stages": 2},
        {"cta_group": 1, "cluster": (2, 2), "clc_stages": 0},
        {"cta_group": 2, "cluster": (2, 2), "clc_stages": 0, "k_group": 2, "stages": 2},
        {**SINGLE, "split_k": 2},
    ):
        check(tilekit.scaled_matmul(*p.call, out_dtype="f32", config=config(**fields)), p.exact)


def test_swapped_operands() -> None:
    """The transpose of the product, whose rows are columns of B: scales change places too."""
    p = draw("nvfp4", 140, 260, 192, seed=8)
    for fields in (SINGLE, PAIR):
        check(tilekit.scaled_matmul(*p.call, out_dtype="f32", config=config(swap_ab=True, **fields)), p.exact)


@pytest.mark.parametrize("kind", KINDS)
def test_epilogue_and_outputs(kind: str) -> None:
    """Bias, residual, activation and a scale of the whole, into each type of output, unchanged from the matmul."""
    p = draw(kind, 65, 136, 128, seed=9)
    bias, residual = np.arange(136, dtype=np.float32), np.ones((65, 136), np.float32)
    found = tilekit.scaled_matmul(
        *p.call, bias=bias, residual=residual, beta=2.0, activation="relu", scale=0.5, out_dtype="f32"
    )
    check(found, np.maximum(p.exact / 2 + bias + 2, 0))
    check(tilekit.scaled_matmul(*p.call), p.exact.astype(ml_dtypes.bfloat16))
    out = np.full((65, 136), np.nan, np.float16)
    assert tilekit.scaled_matmul(*p.call, out=out) is out
    check(out, p.exact)


def test_packed_pairs_and_bytes_of_scales() -> None:
    """Pairs of e2m1 as uint8, and ue8m0 as uint8, are the same operands."""
    p = draw("mxfp4", 33, 40, 96, seed=10)
    packed = pairs(p.a), pairs(p.b.T).T
    found = tilekit.scaled_matmul(*packed, p.scale_a.view(np.uint8), p.scale_b.view(np.uint8), out_dtype="f32")
    check(found, p.exact)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_products(kind: str) -> None:
    """Without rows there is nothing to compute, and an empty sum is zero."""
    p = draw(kind, 4, 8, 64)
    assert tilekit.scaled_matmul(p.a[:0], p.b, p.scale_a[:0], p.scale_b).shape == (0, 8)
    found = tilekit.scaled_matmul(p.a[:, :0], p.b[:0], p.scale_a[:, :0], p.scale_b[:, :0], out_dtype="f32")
    assert found.shape == (4, 8)
    assert (found == 0).all()
