"""Results of `tilekit.scaled_matmul` in a block-scaled format: what `tilekit.quantise` makes of the f32 result."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.block_scaled.operands import draw, laid_out, without_numbers_behind
from tilekit.dtypes import BF16, E2M1X2, E4M3, F32
from tilekit.emulator import EmulatorError
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, ConfigError, FindingWarning
from tilekit.kernels.block_scaled.quantised import QuantisedSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_100A
from tilekit.tile_op.block_scaled import FORMATS

KINDS = tuple(FORMATS)
SINGLE = tilekit.BlackwellConfig(tile=(128, 128), accumulator_stages=1, clc_stages=0, cta_group=1, cluster=(1, 1))
PAIR = replace(SINGLE, cta_group=2, cluster=(2, 1))


def codes(array: Any) -> Any:
    """The bytes of an array."""
    return np.asarray(array).view(np.uint8)


def check(found: Any, sums: Any, to: str, scale: float | None = None) -> None:
    """Compare with the helper, bit for bit."""
    expected = tilekit.quantise(sums, to, scale=(scale or 1.0) if to == "nvfp4" else None)
    values, scales = found
    assert (values.dtype, scales.dtype) == (expected.values.dtype, expected.scales.dtype)
    np.testing.assert_array_equal(codes(scales), codes(expected.scales))
    np.testing.assert_array_equal(codes(values), codes(expected.values))


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(2, 20))]


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_bit_for_bit(to: str, seed: int) -> None:
    """Of 20 seeds a format: ragged shapes, formats of operands, functions, configs and scales of the whole."""
    rng = np.random.default_rng(seed + 1000)
    kind = KINDS[seed % 3]
    m, n, k = (int(rng.integers(1, most)) for most in (200, 300, 100))
    m, n, k = max(m, 2), 2 * -(-n // 2), max(2, k + k % 2)
    n = -(-n // 32) * 32 if seed % 3 == 0 else n  # rows of the result are multiples of 16 bytes
    p = draw(kind, m, n, k, seed=seed, spread=True)
    keywords: dict[str, Any] = {
        "config": (SINGLE, PAIR, None)[seed % 3] if seed % 4 else replace(PAIR, tile=(128, 256))
    }
    if seed % 2:
        keywords |= {"bias": rng.normal(0, 50, n).astype(np.float32), "activation": ("relu", "gelu", "silu")[seed % 3]}
    if seed % 5 == 1:
        keywords["scale"] = float(rng.uniform(-1, 1))
    sums = tilekit.scaled_matmul(*p.call, out_dtype="f32", **keywords)
    scale = float(rng.uniform(0.001, 3)) if to == "nvfp4" and seed % 2 else None
    more = {} if scale is None else {"out_scale": scale}
    check(tilekit.scaled_matmul(*p.call, out_dtype=to, **keywords, **more), sums, to, scale)


@pytest.mark.parametrize("to", KINDS)
def test_numbers_of_all_sizes(to: str) -> None:
    """Blocks of zeros of either sign, subnormal, huge and no numbers; each has the helper's scale.

    A block with something that is no number has a scale that is none in MX formats, and its elements mean nothing.
    """
    m, n = 128, 256
    ones = np.zeros((m, 64), ml_dtypes.float8_e4m3fn)
    scales = np.full((m, 2), 127, np.uint8)
    bias = np.zeros(n, np.float32)
    for block, size in enumerate((0.0, 1e-45, 1e-39, 1.2e-38, 3e-36, 1.0, 1e30, 3.4e38)):
        spread = np.random.default_rng(block).uniform(-1, 1, 32).astype(np.float32)
        spread[5], spread[7] = 1, -0.0
        bias[32 * block : 32 * block + 32] = spread * np.float32(size)
    call = ones, np.zeros((n, 64), ml_dtypes.float8_e4m3fn).T, scales, np.full((n, 2), 127, np.uint8)
    sums = tilekit.scaled_matmul(*call, bias=bias, out_dtype="f32", config=SINGLE)
    check(tilekit.scaled_matmul(*call, bias=bias, out_dtype=to, config=SINGLE), sums, to)
    if to != "nvfp4":
        bias[3], bias[40] = np.inf, np.nan
        _, found = tilekit.scaled_matmul(*call, bias=bias, out_dtype=to, config=SINGLE)
        assert (codes(found)[:, :2] == 255).all()
        assert (codes(found)[:, 2:] < 255).all()


def test_what_lies_behind_the_last_column_counts_not() -> None:
    """Scales laid out with no numbers behind the last row leave the last block's scale alone."""
    p = draw("mxfp8", 40, 144, 64, seed=3)
    found = tilekit.scaled_matmul(p.a, p.b, laid_out(p.scale_a), without_numbers_behind(p.scale_b), out_dtype="mxfp8")
    check(found, p.exact.astype(np.float32), "mxfp8")


@pytest.mark.parametrize("to", KINDS)
def test_outputs_and_what_is_beside_them(to: str) -> None:
    """Into given memory, in rows that are parts of wider ones, and nothing else; a bound kernel does the same."""
    p = draw("mxfp4", 70, 96, 96, seed=4)
    size, count = 96 // FORMATS[to].packed, 96 // FORMATS[to].block
    for wide in (128, 101):
        values, scales = np.full((72, wide), 0xAA, np.uint8), np.full((72, count + 3), 0xAA, np.uint8)
        kind = tilekit.quantise(np.ones((1, 32), np.float32), to)
        out = values[:70, :size].view(kind.values.dtype), scales[:70, :count].view(kind.scales.dtype)
        found = tilekit.scaled_matmul(*p.call, out=out, out_dtype=to)
        assert found[0] is out[0]
        assert found[1] is out[1]
        check(out, p.exact.astype(np.float32), to)
        for array, columns in ((values, size), (scales, count)):
            assert (array[:, columns:] == 0xAA).all()
            assert (array[70:] == 0xAA).all()
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype=to)
    bound = kernel.bind(p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    check(bound(), p.exact.astype(np.float32), to)
    assert "swapped      QuantisedEpilogue" in kernel.explain()


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize(("m", "n", "given"), [(130, 34, False), (257, 416, True), (128, 32, True)])
def test_scales_laid_out(to: str, m: int, n: int, given: bool) -> None:
    """They are what `lay_out_scales` makes of the others: zeros behind the last row and block, whatever was there.

    The second CTA of the last pair has no rows.
    """
    p = draw("mxfp8", m, n, 64, seed=3, spread=True)
    config = replace(PAIR, tile=(128, 256), output_buffers=1) if given else None
    values, scales = tilekit.scaled_matmul(*p.call, out_dtype=to, config=config)
    expected = tilekit.lay_out_scales(scales)
    out = None
    if given:
        out = np.empty_like(values), np.full_like(expected.view(np.uint8), 0xFF).view(expected.dtype)
        call = p.a, p.b, without_numbers_behind(p.scale_a), p.scale_b
    found = tilekit.scaled_matmul(
        *(call if given else p.call), out=out, out_dtype=to, config=config, scale_layout="128x4"
    )
    assert (found[1].shape, found[1].dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(codes(found[1]), codes(expected))
    np.testing.assert_array_equal(codes(found[0]), codes(values))
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype=to, scale_layout="128x4")
    bound = kernel.bind(p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    np.testing.assert_array_equal(codes(bound()[1]), codes(expected))


@pytest.mark.parametrize("n", [64, 72])
def test_values_leave_by_the_copy_engine(n: int) -> None:
    """Where rows are multiples of 16 bytes; else threads store them."""
    p = draw("mxfp4", 8, n, 64)
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype="mxfp8")
    assert ("cp.async.bulk.tensor.2d.global" in kernel.ptx) is (n == 64)
    assert ("images of each warp's rows" in kernel.explain()) is (n == 64)
    assert ("output.rows [4]" in kernel.explain()) is (n == 64)


@pytest.mark.parametrize("layout", ["rows", "128x4"])
def test_the_next_product_takes_it(layout: str) -> None:
    """A result is an operand of the next product as it is."""
    p = draw("mxfp8", 64, 96, 64, seed=5)
    values, scales = tilekit.scaled_matmul(*p.call, out_dtype="mxfp8", scale_layout=layout)
    w = tilekit.quantise(np.eye(96, dtype=np.float32), "mxfp8")
    found = tilekit.scaled_matmul(values, w.values.T, scales, w.scales, out_dtype="f32")
    rows = tilekit.scaled_matmul(*p.call, out_dtype="mxfp8")[1]
    np.testing.assert_array_equal(found, tilekit.dequantise(values, rows))


@pytest.mark.parametrize("to", KINDS)
def test_empty_results(to: str) -> None:
    """Without rows or columns there are none, and an empty sum is zero."""
    p = draw("mxfp8", 4, 8, 64)
    values, scales = tilekit.scaled_matmul(p.a[:0], p.b, p.scale_a[:0], p.scale_b, out_dtype=to)
    assert values.shape == (0, 8 // FORMATS[to].packed)
    assert scales.shape == (0, 1)
    call = p.a[:, :0], p.b[:0], p.scale_a[:, :0], p.scale_b[:, :0]
    check(tilekit.scaled_matmul(*call, out_dtype=to), np.zeros((4, 8), np.float32), to)


P = draw("mxfp8", 8, 31, 64, seed=6)
EVEN = draw("mxfp8", 8, 32, 64, seed=6)
ONE = np.zeros((8, 32), ml_dtypes.float8_e4m3fn)


WIDE = draw("mxfp8", 8, 64, 64, seed=6)


@pytest.mark.parametrize(
    ("p", "keywords", "message"),
    [
        (
            WIDE,
            {"out_dtype": "mxfp8", "out": (np.zeros((8, 64), ONE.dtype), np.zeros((8, 4), np.uint8)[:, ::2])},
            r"out\[1\] has strides \(4, 2\).*contiguous\. Pass an array in C order \[TK-MM-014",
        ),
        (P, {"out_dtype": "mxfp4"}, r"b has 31 columns.*nearest: 32.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "e2m1"}, r"'mxfp4' or 'nvfp4'.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "mxfp8", "residual": ONE}, r"residual.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "mxfp8", "residual": np.zeros((8, 32), np.float32)}, "residual.*TK-SCALE-006"),
        (
            EVEN,
            {"out_dtype": "mxfp8", "out": (np.broadcast_to(ONE[:1], (8, 32)), ONE[:, :1])},
            r"out\[0\] is read-only",
        ),
        (EVEN, {"out_dtype": "mxfp8", "out": (ONE, ONE[:, :1].view(np.uint8))}, r"out\[1\] overlaps out\[0\]"),
        (EVEN, {"out_dtype": "mxfp8", "out_scale": 2.0}, r"out_scale=2.0.*nvfp4.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "nvfp4", "out_scale": 0.0}, r"out_scale.*above 0.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "nvfp4", "out_scale": 1e-40}, r"out_scale.*1.18e-38 to.*nearest legal: 1.17.*e-38.*006"),
        (EVEN, {"out_dtype": "nvfp4", "out_scale": 1e39}, r"out_scale.*to 4.25e\+37.*nearest legal: 4.25.*e\+37.*006"),
        (EVEN, {"out_scale": 2.0}, r"out_scale=2.0.*TK-SCALE-006"),
        (EVEN, {"scale_layout": "128x4"}, r"scale_layout='128x4' with out_dtype=None.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "mxfp8", "scale_layout": "4x128"}, r"'4x128'.*nearest.*'128x4'.*TK-SCALE-006"),
        (
            EVEN,
            {"out_dtype": "mxfp8", "scale_layout": "128x4", "out": (ONE, np.zeros((8, 1), np.uint8))},
            r"out\[1\].*\(1, 1, 32, 4, 4\).*TK-ARRAY-008",
        ),
        (
            EVEN,
            {
                "out_dtype": "mxfp8",
                "scale_layout": "128x4",
                "out": (ONE, np.zeros((1, 1, 32, 4, 8), np.uint8)[..., ::2]),
            },
            r"out\[1\].*strides.*C order.*TK-SCALE-002",
        ),
        (EVEN, {"out_dtype": "mxfp8", "out": ONE}, r"one array.*\(values, scales\).*TK-SCALE-006"),
        (
            EVEN,
            {"out_dtype": "mxfp8", "out": (ONE.view(np.uint8), ONE)},
            r"out\[0\] is u8 of shape.*is e4m3.*ARRAY-008",
        ),
        (
            EVEN,
            {"out_dtype": "mxfp4", "out": (ONE, ONE)},
            r"out\[0\] is e4m3 of shape.*is e2m1x2.*ARRAY-008",
        ),
        (EVEN, {"out": (ONE, ONE)}, r"tuple of 2.*mxfp8.*TK-SCALE-006"),
        (EVEN, {"out_dtype": "mxfp8", "out": (ONE, np.zeros((8, 2), np.uint8))}, r"out\[1\].*TK-ARRAY-008"),
        (EVEN, {"out_dtype": "mxfp8", "out": (ONE, np.zeros((8, 1), np.int8))}, r"out\[1\].*TK-ARRAY-008"),
        (EVEN, {"out_dtype": "mxfp8", "out": (ONE[:4], np.zeros((8, 1), np.uint8))}, r"out.*TK-ARRAY-008"),
        (EVEN, {"out_dtype": "mxfp8", "out": (ONE, ONE[:, :1])}, r"out\[1\].*TK-ARRAY-008"),
        (EVEN, {"out_dtype": "mxfp8", "target": "gfx950"}, r"out_dtype='mxfp8' on gfx950.*sm_100a.*TK-SCALE-006"),
    ],
)
def test_refused(p: Any, keywords: dict[str, Any], message: str) -> None:
    """What cannot be had is said before anything runs, with what can."""
    with pytest.raises(ArgumentError, match=message):
        tilekit.scaled_matmul(*p.call, **keywords)


def test_refused_with_scales_in_f32() -> None:
    """Products with f32 scales of blocks write floats, of 8 bits too, but no scales."""
    a, scales = np.ones((8, 128), ml_dtypes.float8_e4m3fn), np.ones((8, 1), np.float32)
    for keywords in ({"out_dtype": "mxfp8"}, {"out_scale": 2.0}, {"scale_layout": "128x4"}):
        with pytest.raises(ArgumentError, match=r"with f32 scales of blocks.*TK-SCALE-006"):
            tilekit.scaled_matmul(a, a.T, scales, scales[:1], **keywords)
    found = tilekit.scaled_matmul(a, a.T, scales, scales[:1], out_dtype="e4m3")
    assert found.dtype == a.dtype
    assert (found == 128).all()


def test_overlap_is_refused() -> None:
    """Scales go where nothing else lies."""
    memory = np.zeros((16, 32), np.uint8)
    out = memory[:8].view(ml_dtypes.float8_e4m3fn), memory[7:15, :1]
    with pytest.raises(ArgumentError, match=r"out\[1\] overlaps out.*TK-ARRAY-009"):
        tilekit.scaled_matmul(*EVEN.call, out_dtype="mxfp8", out=out)


@pytest.mark.parametrize("fields", [{"swap_ab": True}, {"split_k": 2}])
def test_configs_that_have_no_rows(fields: dict[str, Any]) -> None:
    """A thread quantises whole sums of a row of the output; the picker offers nothing else."""
    with pytest.raises(ConfigError, match="a thread quantises"):
        tilekit.scaled_matmul(*EVEN.call, out_dtype="mxfp8", config=replace(SINGLE, **fields))


SPECS = [
    QuantisedSpec(functions=ElementwiseSpec(bias=F32, activation="gelu", scale="pointer")),
    QuantisedSpec(store="direct", out_scaled="mxfp4", out_dtype=E2M1X2, functions=ElementwiseSpec(bias=BF16)),
    QuantisedSpec(
        scaled="nvfp4", a_dtype=E2M1X2, b_dtype=E2M1X2, out_scaled="nvfp4", out_dtype=E2M1X2,
        functions=ElementwiseSpec(bias=F32, activation="silu"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.breadth)], ids=["sample", "all"])
def test_ptxas_takes_every_candidate(spec: QuantisedSpec, whole: bool) -> None:
    """No spills, and none of the advice of ptxas (C75xx), which `assemble` refuses."""
    configs = list(candidates(spec, SM_100A))
    assert {(config.cta_group, config.tile[1]) for config in configs} >= set(product((1, 2), (128, 256)))
    for config in configs if whole else configs[:1]:
        text = trace(spec, config, SM_100A)
        resources = assemble(text.assembly, "sm_100a", kernel_name=text.name).resources
        assert resources.spill_store_bytes == resources.spill_load_bytes == 0


def _mutants(text: str) -> list[tuple[str, str]]:
    """Lines of the epilogue's own: instructions left out, and numbers that are others."""
    lines, found = text.splitlines(), []
    for at, line in enumerate(lines):
        code, _, comment = line.partition("//@")
        words = code.strip()
        if "BoundQuantised." not in comment or not words.endswith(";") or words.startswith(("{", ".reg")):
            continue
        swapped = [("st.", ""), ("max.u32", "min.u32"), ("setp.lt", "setp.ge"), ("setp.gt", "setp.le")]
        swapped += [("shr.", "shl."), ("shl.", "shr."), (".e4m3x2.f32", ".e5m2x2.f32"), ("sub.", "add.")]
        for old, new in swapped:
            if old in words:
                instead = "" if new == "" else words.replace(old, new)
                found.append(
                    (f"{old} {new or 'left out'}: {words}", "\n".join([*lines[:at], instead, *lines[at + 1 :]]))
                )
    return found


@pytest.mark.parametrize("part", [3, pytest.param(6, marks=pytest.mark.breadth)])
@pytest.mark.parametrize("to", KINDS)
def test_no_defect_stays_unnoticed(to: str, part: int) -> None:
    """Each instruction of a sample of the epilogue's own is broken once: the result is wrong, or the emulator says why.

    Every block of the tile has columns of the result, and what lies behind the last is no number.
    """
    p = draw("mxfp8", 130, 254 if to == "nvfp4" else 240, 64, seed=11, spread=True)
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype=to, config=SINGLE)
    scales = laid_out(p.scale_a), without_numbers_behind(p.scale_b)
    right = [codes(one) for one in kernel.bind(p.a, p.b, *scales)()]
    every, survivors, tried = _mutants(kernel.ptx), [], 0
    assert len(every) >= part
    for what, text in every[:: max(1, len(every) // part)]:
        tried += 1
        spoiled = copy(kernel)
        spoiled.text = replace(kernel.text, assembly=text)
        size, count = right[0].shape[1], right[1].shape[1]
        memory = [np.full((130, size + 64), 0xAA, np.uint8), np.full((130, count + 64), 0xAA, np.uint8)]
        out = [codes(memory[0])[:, :size], codes(memory[1])[:, :count]]
        kinds = tilekit.quantise(np.ones((1, 32), np.float32), to)
        views = tuple(one.view(kind.dtype) for one, kind in zip(out, (kinds.values, kinds.scales), strict=True))
        try:
            spoiled.bind(p.a, p.b, *scales, out=views)()
        except (EmulatorError, FindingWarning):
            continue
        clean = all((one[:, width:] == 0xAA).all() for one, width in zip(memory, (size, count), strict=True))
        if clean and all(np.array_equal(a, b) for a, b in zip(out, right, strict=True)):
            survivors.append(what)
    assert tried >= part
    assert survivors == []


def test_default_type_of_other_results_is_as_it_was() -> None:
    """e4m3 without a format's name is an 8-bit float without scales."""
    found = tilekit.scaled_matmul(*EVEN.call, out_dtype=E4M3)
    assert found.dtype == ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("to", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.breadth) for kind in KINDS[1:])])
def test_interleavings_agree(to: str) -> None:
    """Nothing is found in 20 orders of warps and copies."""
    p = draw("mxfp8", 130, 144, 64, seed=1)
    kernel = tilekit.scaled_kernel_for(*p.call, out_dtype=to)
    plan: Any = kernel.bind(p.a, p.b, laid_out(p.scale_a), laid_out(p.scale_b))
    assert "nothing found" in str(plan.explore(20))
