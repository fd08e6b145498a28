"""Wrong calls of scaled_matmul: refused before anything is launched, with what is legal and the nearest of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw, laid_out
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.block_scaled.spec import BlockScaledSpec

P, Q = draw("mxfp8", 48, 64, 128), draw("nvfp4", 48, 64, 128)
BF16 = np.dtype(ml_dtypes.bfloat16)
A, B, SA, SB = P.call
FLAT = laid_out(SA)
APART = np.zeros((48, 256), A.dtype)[:, ::2]


def call(a: Any = A, b: Any = B, scale_a: Any = SA, scale_b: Any = SB, **keywords: Any) -> Callable[[], Any]:
    return lambda: tilekit.scaled_matmul(a, b, scale_a, scale_b, **keywords)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "bf16 operands": (call(A.astype(BF16), B.astype(BF16)), "a is bf16, b is bf16.*legal for both.*nearest: mxfp8"),
    "one e2m1": (call(Q.a), "a is e2m1x2, b is e4m3.*TK-SCALE-001"),
    "e4m3 scales of e4m3": (
        call(scale_a=Q.scale_a[:, :4], scale_b=Q.scale_b[:, :4]),
        "scale_a is e4m3.*nearest: mxfp8.*TK-SCALE-001",
    ),
    "two types of scales": (call(*Q.call[:3], np.ones((64, 8), SB.dtype)), "scale_a is e4m3 and scale_b is ue8m0"),
    "scales of f32 beside others": (
        call(scale_b=np.ones((1, 1), np.float32)),
        "scale_a is ue8m0 and scale_b is f32; legal.*both scales f32 for 128 elements.*nearest: mxfp8",
    ),
    "one row of a": (call(a=np.broadcast_to(A[:1], A.shape)), r"rows that share one place \(stride 0\).*TK-MM-013"),
    "scales of bf16": (call(scale_a=SA.astype(BF16)), "scale_a is bf16; legal: ue8m0.*nearest.*TK-SCALE-001"),
    "scales too few": (call(scale_a=SA[:, :3]), r"scale_a has shape \(48, 3\).*M=48 and K=128.*nearest: \(48, 4\)"),
    "scales of rows": (call(scale_b=SB.T), r"scale_b has shape \(4, 64\).*N=64.*TK-SCALE-002"),
    "blocks of 16 for 32": (call(scale_a=np.ones((48, 8), SA.dtype)), r"in blocks of 32.*nearest: \(48, 4\)"),
    "flat scales too short": (call(scale_a=FLAT[:-1]), r"shape \(511,\).*flat \(512,\)"),
    "flat scales apart": (call(scale_a=np.repeat(FLAT, 2)[::2]), r"strides \(2,\).*copy in C order.*TK-SCALE-002"),
    "flat scales askew": (call(scale_a=np.resize(FLAT, 528)[1:513]), "begin at a multiple of 16 bytes"),
    "N contiguous": (call(b=np.ascontiguousarray(B)), "b, e4m3 .* not contiguous along K.*the .T of.*TK-SCALE-003"),
    "M contiguous": (call(a=np.asfortranarray(A)), "a, e4m3 .* not contiguous along K.*contiguous rows"),
    "K apart": (call(a=APART), "a, e4m3 .*must be contiguous.*TK-MM-013"),
    "three dimensions": (call(A[None], B[None]), r"a has shape \(1, 48, 128\).*two dimensions.*TK-SCALE-004"),
    "odd K": (call(Q.a[:, :33], Q.b[:33], Q.scale_a[:, :3], Q.scale_b[:, :3]), "a has K=33.*nearest: 34"),
    "two Ks": (call(a=A[:, :96]), "K must agree.*TK-MM-011"),
    "a chip without": (
        call(target="sm_90a"),
        r"built for sm_100a.*, and the call is for sm_90a; nearest: .*f32 scales of 128 elements.*dequantise.*-API-005",
    ),
    "sm_120a": (call(target="sm_120a"), r"for sm_120a; nearest: tilekit.dequantise.*bf16.*of 32 elements \(mxfp8\)"),
    "scales of f64": (call(scale_a=SA.astype(np.float64)), "scale_a: given 'float64'; legal: ue8m0.*TK-SCALE-001"),
    "one scale of f64": (call(scale_b=SB.astype(np.float64)), "scale_b: given 'float64'; legal: ue8m0.*TK-SCALE-001"),
    "operands of f64": (call(A.astype(np.float64)), "a: given 'float64'; legal: e4m3, e5m2, or e2m1.*TK-SCALE-001"),
    "scales backwards": (call(scale_a=SA[::-1]), r"scale_a has strides \(-4, 1\).*backwards.*copy.*TK-SCALE-002"),
    "scales of columns": (call(scale_a=SA.T), r"scale_a has shape \(4, 48\).*looks transposed: pass scale_a.T"),
    "ue8m0 a 16": (call(*Q.call[:2], np.ones((48, 8), SA.dtype), np.ones((64, 8), SA.dtype)), "of 16 .*e4m3: nvfp4"),
    "e4m3 a 32": (call(*Q.call[:2], Q.scale_a[:, :4], Q.scale_b[:, :4]), r"\(48, 8\) \(of 32 .*ue8m0: mxfp4"),
    "another format out": (call(out_dtype="mxfp6"), "'mxfp6'; legal: mxfp8, mxfp4, nvfp4 with.*nearest legal: 'mxfp8'"),
    "an unpadded pitch": (call(np.ones((48, 40), A.dtype), B[:40], SA[:, :2], SB[:, :2]), "multiples of 8.*TK-MM-013"),
    "out of another shape": (call(out=np.zeros((48, 65), np.float32)), "out"),
    "a bias of M": (call(bias=np.zeros(48, np.float32)), "bias"),
    "a keyword of matmul": (call(precision="tf32"), "precision"),
}


@pytest.mark.parametrize(("wrong", "message"), BAD.values(), ids=BAD.keys())
def test_refused(wrong: Callable[[], Any], message: str) -> None:
    """Each names the argument, what was given, what is legal, and the nearest of it."""
    with pytest.raises((ArgumentError, TypeError), match=f"(?s){message}"):
        wrong()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tile": (64, 128)}, r"tile M=64: a CTA has 128 rows.*nearest: tile=\(128, 128\)"),
        ({"tile": (128, 192)}, r"tile N=192: a multiple of 128.*scales of 128 columns.*nearest: tile=\(128, "),
        ({"accumulator_stages": 2}, "12 columns of scales are 12 over the 512.*nearest: accumulator_stages=1"),
    ],
)
def test_configs_that_scales_exclude(fields: dict[str, Any], message: str) -> None:
    """Whole blocks of 128 rows and columns, and room for scales in tensor memory."""
    chosen = tilekit.BlackwellConfig(**{"accumulator_stages": 1, **fields})
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        tilekit.scaled_matmul(*P.call, config=chosen)


def test_specs_that_cannot_be() -> None:
    """A format has its types, K is contiguous, and chips without tensor memory take no scales."""
    with pytest.raises(ArgumentError, match="a: given e4m3; legal: e2m1x2"):
        BlockScaledSpec(scaled="nvfp4")
    with pytest.raises(ArgumentError, match=r"b is e4m3 and not contiguous along K.*TK-MM-004"):
        tilekit.compile(BlockScaledSpec(b_major="mn"), "sm_100a")
    with pytest.raises(ArgumentError, match=r"mxfp8 on sm_90a.*TK-SCALE-001"):
        tilekit.compile(BlockScaledSpec())


def test_what_a_kernel_binds() -> None:
    """A kernel reads scales that are laid out, of its own format."""
    kernel = tilekit.scaled_kernel_for(*P.call, out_dtype="f32")
    scales = tilekit.lay_out_scales(SA), tilekit.lay_out_scales(SB)
    np.testing.assert_array_equal(kernel.bind(A, B, *scales)(), P.exact)
    with pytest.raises(ArgumentError, match=r"scale_a has shape \(48, 4\).*lay_out_scales\(scale_a\).*TK-SCALE-002"):
        kernel.bind(A, B, SA, SB)
    with pytest.raises(ArgumentError, match=r"the format is nvfp4.*built for mxfp8"):
        kernel.bind(*Q.call[:2], laid_out(Q.scale_a), laid_out(Q.scale_b))
