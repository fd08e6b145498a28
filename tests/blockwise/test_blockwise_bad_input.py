"""Calls with scales of blocks that are wrong: refused before anything is launched, with what is legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.dtypes import BF16
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def zeros(*shape: int, dtype: Any = E4M3) -> Any:
    return np.zeros(shape, dtype)


def scales(*shape: int) -> Any:
    return np.ones(shape, np.float32)


A, B = zeros(40, 320), zeros(144, 320).T
SA, SB = scales(40, 3), scales(2, 3)
GA, GB = zeros(3, 40, 320), zeros(3, 144, 320).transpose(0, 2, 1)
GSA, GSB = scales(3, 40, 3), scales(3, 2, 3)
ENDS = np.array([10, 20, 40], np.int32)
OVER = np.zeros(40 * 144, np.float32)


def mm(*arrays: Any, **keywords: Any) -> Any:
    return tilekit.scaled_matmul(*arrays, **keywords)


def grouped(*arrays: Any, **keywords: Any) -> Any:
    return tilekit.grouped_matmul(*arrays, **keywords)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "bf16": (
        lambda: mm(A.astype(ml_dtypes.bfloat16), B, SA, SB),
        "8-bit operands.*a is bf16 and b is e4m3.*TK-BLOCK-001",
    ),
    "batches": (lambda: mm(GA, GB, GSA, GSB), r"a is \(3, 40, 320\).*grouped_matmul with counts.*TK-BLOCK-001"),
    "few blocks": (
        lambda: mm(A, B, SA[:, :2], SB),
        r"scale_a is f32 of shape \(40, 2\).*nearest: f32 of shape \(40, 3\)",
    ),
    "a scale a row": (lambda: mm(A, B, scales(40, 1), SB), r"each row of a and 128 of K is needed.*TK-BLOCK-002"),
    "turned": (lambda: mm(A, B, scales(3, 40), SB), r"scale_a looks transposed: pass scale_a\.T"),
    "turned b": (lambda: mm(A, B, SA, SB.T), r"scale_b looks transposed: pass scale_b\.T.*TK-BLOCK-002"),
    "f16 scales": (lambda: mm(A, B, SA.astype(np.float16), SB), "scale_a is f16.*nearest: f32"),
    "f64 scales": (lambda: mm(A, B, SA, SB.astype(np.float64)), "scale_b: given 'float64'; legal: f32.*TK-SCALE-001"),
    "f64": (lambda: mm(A.astype(np.float64), B, SA, SB), "a: given 'float64'; legal: e4m3 or e5m2.*TK-SCALE-001"),
    "gfx950": (lambda: mm(A, B, SA, SB, target="gfx950"), "for gfx950; nearest: ue8m0 scales of 32.*TK-API-005"),
    "sm_120a": (
        lambda: mm(A, B, SA, SB, target="sm_120a"),
        "for sm_120a; nearest: tilekit.matmul with scale_a= of rows.*or tilekit.dequantise.*TK-API-005",
    ),
    "sm_80": (lambda: mm(A, B, SA, SB, target="sm_80"), "for sm_80; nearest: tilekit.dequantise.*TK-API-005"),
    "no scales of b": (lambda: mm(A, B, SA, None), "scale_b is None: pass both scales.*TK-BLOCK-002"),
    "backwards": (lambda: mm(A, B, SA[::-1], SB), r"scale_a has strides \(-3, 1\).*scale_a\.copy\(\).*TK-BLOCK-003"),
    "overlap": (
        lambda: mm(A, B, OVER[:120].reshape(40, 3), SB, out=OVER.reshape(40, 144)),
        "out overlaps scale_a in memory.*TK-ARRAY-009",
    ),
    "N contiguous": (lambda: mm(A, zeros(320, 144), SA, SB), "b is e4m3 and not contiguous along K.*TK-MM-004"),
    "K differs": (lambda: mm(A[:, :256], B, SA[:, :2], SB), "K must agree.*TK-MM-011"),
    "bias": (lambda: mm(A, B, SA, SB, bias=scales(3)), "bias has shape.*TK-MM-017"),
    "out": (lambda: mm(A, B, SA, SB, out=zeros(40, 40)), r"out.*\(40, 40\)"),
    "in flight": (lambda: mm(A, B, SA, SB, config=MatmulConfig()), "in_flight=1: sums that are promoted.*nearest"),
    "slices": (
        lambda: mm(A, B, SA, SB, config=MatmulConfig(tile=(64, 64), consumers=1, k_group=2, in_flight=0)),
        "k_group=2: sums are promoted every 128 products",
    ),
    "sums": (
        lambda: mm(A, B, SA, SB, config=MatmulConfig(tile=(128, 256), in_flight=0)),
        "256 accumulators a thread.*nearest: tile=",
    ),
    "sums of sm_100a": (
        lambda: mm(A, B, SA, SB, config=tilekit.BlackwellConfig(), target="sm_100a"),
        "256 sums a thread of the epilogue are 128 more than fit.*nearest: tile=",
    ),
    "a chip without": (lambda: mm(A, B, SA, SB, target="gfx942"), "gfx942.*TK-"),
    "unaligned": (
        lambda: mm(zeros(40, 300), zeros(144, 300).T, SA, SB, target="sm_100a"),
        "multiples of 4 bytes only, .*on sm_100a.*TK-MM-013",
    ),
    "one of two, grouped": (
        lambda: grouped(GA[0], GB, ENDS, scale_a=GSA[0]),
        "scale_b is None: pass both.*TK-BLOCK-002",
    ),
    "grouped shape": (
        lambda: grouped(GA[0], GB, ENDS, scale_a=GSA, scale_b=GSB),
        r"scale_a is f32 of shape \(3, 40, 3\).*nearest: f32 of shape \(40, 3\)",
    ),
    "grouped b": (
        lambda: grouped(GA, GB, counts=ENDS, scale_a=GSA, scale_b=SB),
        r"scale_b is f32 of shape \(2, 3\).*nearest: f32 of shape \(3, 2, 3\)",
    ),
    "grouped turned b": (
        lambda: grouped(GA, GB, counts=ENDS, scale_a=GSA, scale_b=GSB.transpose(0, 2, 1)),
        r"\(scale_b looks transposed: pass it with its last two dimensions exchanged\).*TK-BLOCK-002",
    ),
    "grouped type": (
        lambda: grouped(GA.astype(np.float16), GB.astype(np.float16), counts=ENDS, scale_a=GSA, scale_b=GSB),
        "a is f16 and b is f16.*TK-BLOCK-001",
    ),
    "bounds": (lambda: grouped(GA[0], GB, scale_a=GSA[0], scale_b=GSB), "pass either ends.*TK-GROUP-001"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_refused(name: str) -> None:
    """The message names the argument, what was given, and the nearest legal value."""
    call, words = BAD[name]
    with pytest.raises((ArgumentError, ConfigError), match=rf"(?s){words}"):
        call()


SPECS: list[tuple[dict[str, Any], Any, str]] = [
    ({"scale_load": "tma"}, "sm_100a", "scale_load: given 'tma'.*on sm_100a direct.*TK-BLOCK-004"),
    ({"batched": True}, "sm_90a", "batched: given True.*nearest.*False.*TK-BLOCK-004"),
    ({"accumulation": "fast"}, "sm_90a", "accumulation: given 'fast'.*promoted.*TK-BLOCK-004"),
    ({"a_dtype": BF16, "b_dtype": BF16}, "sm_90a", "accumulation='promoted' with operands of bf16"),
    ({"scale_load": "cp.async"}, "sm_90a", "scale_load: given 'cp.async'.*tma or direct"),
    ({"scale_b_load": "tma"}, "sm_100a", "scale_b_load: given 'tma'.*on sm_100a direct.*TK-BLOCK-004"),
]


@pytest.mark.parametrize(("fields", "target", "words"), SPECS, ids=str)
def test_a_spec_that_is_none(fields: dict[str, Any], target: Any, words: str) -> None:
    """What no kernel does is refused when it is described or built."""
    with pytest.raises(ArgumentError, match=words):
        tilekit.compile(BlockwiseSpec(**fields), target)


def test_a_kernel_refuses_scales_that_it_cannot_load() -> None:
    """Built for rows behind each other it says so of others; one whose threads read takes both."""
    rows = np.ones((3, 40), np.float32).T
    direct: Any = tilekit.compile(BlockwiseSpec())
    for scale_a in (SA, rows):
        assert (direct.bind(A, B, scale_a=scale_a, scale_b=SB)() == 0).all()
    staged: Any = tilekit.compile(BlockwiseSpec(scale_load="tma"))
    assert (staged.bind(A, B, scale_a=rows, scale_b=SB)() == 0).all()
    with pytest.raises(ArgumentError, match=r"how scale_a is loaded is direct, but .* was built for tma; build a"):
        staged.bind(A, B, scale_a=SA, scale_b=SB)
    with pytest.raises(ArgumentError, match="scale_a is None"):
        staged.bind(A, B)
    both: Any = tilekit.compile(BlockwiseSpec(scale_b_load="tma"))
    with pytest.raises(ArgumentError, match=r"how scale_b is loaded is direct, but .* was built for tma; build a"):
        both.bind(A, B, scale_a=rows, scale_b=SB)
