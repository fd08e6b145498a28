"""What a convolution is among the kernels: how little of its own it has, what `explain` says, and its machine code."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from benchmarks.family_lines import code_lines, counted
from tilekit.bench.conv2d import ConvWorkload
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.conv2d.gather import GatherPlan
from tilekit.kernels.conv2d.problem import block_for, slice_for
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates, estimate, pick, ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A, SM_100A, Target

LIMITS = {
    "conv2d: im2col loader, spec, entry": 130,
    "conv2d: reading a call": 488,
    "conv2d: a Python epilogue's operands and results": 80,
    "conv2d: binding": 36,
    "conv2d: the threads' loaders": 195,
    "conv2d: the loader of chips without such an engine": 108,
    "conv2d: its spec, reading a call, chips": 150,
    "conv2d: gradients": 258,
    "conv2d: gradients without copies": 430,
    "conv2d: images' gradients with a stride": 256,
    "blockwise: payload and factors, spec, entry": 200,
    "blockwise: accumulators with factors, reads ahead": 226,
    "blockwise: values in the stages": 98,
    "blockwise: reading a call": 144,
    "blockwise: binding": 40,
    "conv2d: lines that name a residual": 60,
    "block_scaled: payload, op, spec, entry": 200,
    "block_scaled: scales of waves, chips": 170,
    "block_scaled: reading a call": 256,
    "block_scaled: quantised outputs": 504,
    "block_scaled: binding": 46,
    "block_scaled: the kernel that lays scales out": 55,
    "scaled products: which family, keywords, what is nearest": 120,
    "attention: loads, tiles and their order": 550,
    "attention: softmax, masks, scores of one's own": 450,
    "attention, sm_90a: role loops, turns, products": 350,
    "attention, sm_90a: output, shares": 400,
    "attention, sm_90a: config, composition": 380,
    "attention, sm_100a: role loops, products, tensor memory": 560,
    "attention, sm_100a: output, shares": 150,
    "attention, sm_100a: config, composition, model": 360,
    "attention: spec, chips, entry, tuning": 260,
    "attention: reading a call, binding": 600,
    "attention: caches and packed sequences": 540,
    "attention: notes of times, components of one's own": 120,
}


def test_a_family_is_few_lines() -> None:
    """Lines without blanks, comments and docstrings, as `python -m benchmarks.family_lines` counts them."""
    found = counted()
    assert found.keys() == LIMITS.keys()
    assert {name: lines for name, lines in found.items() if not 0 < lines <= LIMITS[name]} == {}


def test_what_counts_as_a_line() -> None:
    """Code does, also over several lines; a docstring, a comment and a blank do not."""
    text = '"""A module.\n\nOf two paragraphs.\n"""\n\nimport os  # why\n\n# a comment\nx = (\n    1,\n)\n"""What."""\n'
    assert code_lines(text) == {6, 9, 10, 11}


NARROW = ((64, 192, False), (32, 96, True), (0, 160, False), (64, 64, True))
"""Swizzles, bytes of a block of three slices, ten and one, and whether filters are loaded alike."""


def _specs() -> list[ConvSpec]:
    """Every way to load, with functions, types, groups and stores going round."""
    rng, found = Random(5), []
    loads: list[dict[str, Any]] = [{"swizzle": s, "im2col_b": b} for s in (128, 64, 32, 0) for b in (False, True)]
    loads += [{"swizzle": s, "im2col_b": b, "block_bytes": n} for s, n, b in NARROW]
    loads += [{"a_load": a, "b_load": b} for a, b in ((2, 2), (8, 8), (4, 2), (1, 1), (8, 1))]
    loads += [{"a_load": 4, "b_load": 4, "lines": True}] * 3
    for turn, load in enumerate(loads):
        dtype = E4M3 if 1 in load.values() and "a_load" in load else (BF16, F16, E4M3)[turn % 3]
        out, batched = (BF16, F32, F16)[turn % 3], turn % 4 == 3 and not load.get("im2col_b")
        bias = rng.choice((None, F32, BF16))
        functions = ElementwiseSpec(
            scale=rng.choice((None, "value")),
            bias=bias,
            biases=batched and bias is not None,
            activation=rng.choice((None, "relu", "silu")),
            residual=out if turn % 2 else None,
        )
        direct = "a_load" in load and functions.residual is not None
        store = "direct" if direct or turn % 5 == 0 else "tma"
        kind = ThreadSpec if "a_load" in load else ConvSpec
        found.append(kind(dtype, dtype, out, batched=batched, functions=functions, store=store, **load))
    return found


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("chip", [SM_90A, SM_100A], ids=lambda chip: chip.name)
@pytest.mark.parametrize("spec", _specs(), ids=lambda spec: spec.name)
def test_assembles_without_a_loss(spec: ConvSpec, chip: Target) -> None:
    """No spill and nothing serialised (`assemble` raises for each), with configs of all kinds that the picker takes."""
    configs = candidates(spec, chip)
    assert configs
    for config in Random(spec.name).sample(configs, min(3, len(configs))):
        text = trace(spec, config, chip)
        used = assemble(text.assembly, chip.name, kernel_name=text.name).resources
        assert used.registers <= min(255, chip.registers // text.threads // 8 * 8), config
        assert (used.stack_bytes, used.spill_store_bytes) == (0, 0), config


def _kernel(x: tuple[int, ...], w: tuple[int, ...], **keywords: Any) -> Any:
    arrays = (np.zeros(shape, ml_dtypes.bfloat16) for shape in (x, w))
    return tilekit.conv2d_kernel_for(*arrays, **keywords)


SWAPPED = [
    ((2, 8, 8, 64), (32, 3, 3, 64), ["Im2colLoader for TmaLoader: the copy engine goes over images"]),
    ((2, 8, 8, 72), (32, 3, 3, 72), ["Im2colLoader for TmaLoader: the copy", "Im2colLoader for TmaLoader of filters"]),
    ((2, 8, 8, 3), (32, 3, 3, 3), ["LineLoader for TmaLoader: threads load lines"]),
    ((2, 8, 7, 3), (32, 3, 3, 3), ["GatherLoader for TmaLoader: threads"]),
    ((2, 8, 8, 64), (32, 1, 1, 64), []),
]


@pytest.mark.parametrize(("x", "w", "words"), SWAPPED, ids=str)
def test_explain_marks_what_is_swapped(x: Any, w: Any, words: list[str]) -> None:
    """A line for each component in the place of a matmul's, under the head; a plain product has none."""
    lines = [line for line in _kernel(x, w).explain().splitlines() if line.startswith("swapped")]
    assert len(lines) == len(words)
    assert all(f"swapped      {word}" in line for word, line in zip(words, lines, strict=True))


def test_no_division_in_the_k_loop() -> None:
    """The digits of a place are found by division before the loop over k-blocks, and counted in it."""
    spec, config = ConvSpec(im2col_b=True), MatmulConfig(split_k=2)
    lines = trace(spec, config, SM_90A).assembly.splitlines()
    copy = next(at for at, line in enumerate(lines) if ".im2col." in line and "prefetch" not in line)
    start = max(at for at, line in enumerate(lines[:copy]) if "k_loop" in line and ":" in line)
    end = next(at for at, line in enumerate(lines) if at > copy and "bra k_loop" in line)
    assert start < copy < end
    assert not [line for line in lines[start:end] if "div." in line or "rem." in line]
    assert [line for line in lines[:start] if "div." in line]


def test_slices_are_as_wide_as_channels_allow() -> None:
    """The swizzle by bytes of channels: whole slices, or some zeros where narrower slices would cost more."""
    assert [slice_for(size, 1) for size in (128, 256, 64, 192, 32, 16, 144, 224)] == [128, 128, 64, 64, 32, 0, 64, 128]
    assert [slice_for(size, 4) for size in (128, 64, 48, 144)] == [128, 64, 0, 0]


def test_a_stage_of_few_channels_is_no_longer_than_they_are() -> None:
    """Of one place; of several, and of whole lines, it is 128 bytes."""
    found = {
        (size, slices): block_for(size, slices, 1) for size, slices in ((64, 1), (64, 3), (32, 1), (16, 1), (16, 3))
    }
    assert found == {(64, 1): 64, (64, 3): 192, (32, 1): 32, (16, 1): 32, (16, 3): 64}
    assert [block_for(*of) for of in ((64, 3, 9), (128, 1, 1), (64, 4, 1))] == [128, 128, 128]
    layers = {16: "slices1x32", 24: "slices1x64_im2col_b", 32: "slices1x64", 96: "slices3x64", 64: "kk", 256: "kk"}
    for channels, name in layers.items():
        assert _kernel((2, 8, 8, channels), (32, 1, 1, channels)).name.endswith(name)


def test_promoted_sums_are_of_128_products() -> None:
    """Whatever the slices: a stage then holds no more, and the sums are exact."""
    x, w = (np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((1, 5, 5, 192), (16, 1, 1, 192)))
    kernels = [tilekit.conv2d_kernel_for(x, w, accumulation=how) for how in ("fast", "promoted")]
    assert [kernel.spec.block_bytes for kernel in kernels] == [192, 128]
    found = tilekit.conv2d(x, w, accumulation="promoted", target="sm_90a")
    np.testing.assert_array_equal(found, np.full((1, 5, 5, 16), 192))


def test_the_picture_is_current() -> None:
    """`python docs/conv2d_diff.py` would change nothing, and the role that multiplies is the matmul's throughout."""
    drawn = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "conv2d_diff.py"))
    assert drawn["picture"]() == drawn["PICTURE"].read_text("utf-8")
    rows = drawn["rows"]()
    assert {len(set(counts)) for role, _, counts in rows if role == "mma"} == {1}
    new = {name for _, name, (matmul, im2col, _) in rows if matmul != im2col}
    assert new == {"declare", "Pixels", "Places", "corner"}


def _layer(shape: str) -> tuple[ConvSpec, dict[str, Any]]:
    problem = ConvWorkload.parse(shape).arguments().problem
    extents = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches, "read": problem.read}
    return ConvWorkload.parse(shape).arguments().spec, extents


def test_the_model_counts_pixels_once() -> None:
    """DRAM delivers the images, not the matrix that they stand for: nine times as large here, and four times smaller
    where a stride leaves pixels out."""
    for shape, part in (("2x64x64x64 64x3x3 p1", 1 / 9), ("2x64x64x64 64x1x1 s2", 1.0), ("2x64x64x64 64x2x2 s2", 1.0)):
        spec, extents = _layer(shape)
        assert extents["read"] == pytest.approx(part)
        once = ranked(spec, SM_90A, **extents)
        config = once[0].config
        many = next(e for e in ranked(spec, SM_90A, **extents | {"read": 1.0}) if e.config == config)
        assert (once[0].dram < many.dram / 3) == (part < 1)
        assert once[0].total <= many.total


@pytest.mark.parametrize("shape", ["1x512x512x128 3x3x3 p1", "2x64x64x320 4x3x3 p1"])
def test_few_filters_have_narrow_tiles(shape: str) -> None:
    """Three filters are not multiplied as if they were 64: where that does not hide behind DRAM, it takes the time."""
    spec, extents = _layer(shape)
    config = ranked(spec, SM_90A, **extents)[0].config
    assert config.tile[config.tile[0] < config.tile[1] or not config.swap_ab] <= 32


def test_threads_load_whole_tiles_of_rows() -> None:
    """A thread without a row takes the time of one with a row, so tiles have a row for each of the 128 at least."""
    spec, extents = _layer("32x224x224x3 64x7x7 s2 p3")
    config = ranked(spec, SM_90A, **extents)[0].config
    assert config.tile[0] % 128 == 0
    plans = [GatherPlan(tile, 2) for tile in config.operands(spec)]
    half = GatherPlan(replace(plans[0].tile, rows=64), 2)
    assert half.clocks == GatherPlan(replace(plans[0].tile, rows=128), 2).clocks < plans[0].clocks


def test_a_batched_matmul_has_a_bias_a_matrix() -> None:
    """What groups of filters need, products of matrices have too: (B, N) values, or N that all share."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(-2, 3, (3, 20, 32)).astype(np.float16), rng.integers(-2, 3, (3, 32, 24)).astype(np.float16)
    bias = rng.integers(-9, 10, (3, 24)).astype(np.float32)
    product = a.astype(np.float32) @ b.astype(np.float32)
    for target in ("sm_90a", "sm_100a"):
        assert (tilekit.matmul(a, b, bias=bias, target=target) == product + bias[:, None]).all()
        assert (tilekit.matmul(a, b, bias=bias[0], target=target) == product + bias[0]).all()
    with pytest.raises(tilekit.TilekitError, match=r"bias has shape \(2, 24\).*shape \(24,\) or \(3, 24\)"):
        tilekit.matmul(a, b, bias=bias[:2])


@pytest.mark.parametrize(
    ("layer", "buffers"),
    [
        ("32x28x28x128 512x1x1", 4),
        ("32x56x56x64 256x1x1", 4),
        ("32x7x7x512 2048x1x1", 3),
        ("2x16x16x1280 1280x3x3 p1", 2),
    ],
)
def test_a_residual_beside_few_k_blocks_is_loaded_further_ahead(layer: str, buffers: int) -> None:
    """Into more buffers, where the ring of operands has stages to spare; without a residual stores have two."""
    case = ConvWorkload.parse(layer)
    for residual in (True, False):
        fused = replace(case, bias=True, activation="relu", residual=residual)
        problem = fused.arguments().problem
        shape = {"m": problem.m, "n": problem.n, "k": problem.k, "read": problem.read}
        config = pick(fused.spec, SM_90A, **shape)
        assert isinstance(config, MatmulConfig)
        assert config.output_buffers == (buffers if residual else 2)


def test_the_model_waits_for_a_residual() -> None:
    """More of it on its way takes no longer, until stages are missing."""
    layer = replace(ConvWorkload.parse("32x14x14x256 1024x1x1"), bias=True, residual=True)
    shape = {"m": 6272, "n": 1024, "k": 256, "batches": 1, "sms": 132}
    base = MatmulConfig(tile=(128, 128), cluster=(1, 1), schedule="pingpong", swap_ab=True)
    two, four, eight = (
        estimate(base.changed(output_buffers=count), layer.spec, SM_90A, **shape).total for count in (2, 4, 8)
    )
    assert four < min(two, eight)
    upright = estimate(base.changed(output_buffers=4, swap_ab=False), layer.spec, SM_90A, **shape).total
    assert four < upright


@pytest.mark.parametrize("layer", ["16x128x128x8 32x1x1", "32x56x56x24 144x1x1", "32x112x112x32 16x1x1"])
def test_narrow_slices_are_shared_in_clusters(layer: str) -> None:
    """All CTAs ask for the same few lines of narrow filters, which one of a cluster asks for."""
    case = ConvWorkload.parse(layer)
    problem = case.arguments().problem
    config = pick(case.spec, SM_90A, m=problem.m, n=problem.n, k=problem.k, read=problem.read)
    assert config.multicast[not config.swap_ab] > 1


def test_values_of_columns_are_read_by_rows() -> None:
    """With a bias a tile is turned round, where a value is a row's; without one, either way is as quick."""
    case = ConvWorkload.parse("32x28x28x128 512x1x1")
    shape = {"m": 25088, "n": 512, "k": 128, "batches": 1, "sms": 132}
    tile = MatmulConfig(tile=(128, 128), cluster=(1, 1), schedule="pingpong")
    for bias in (False, True):
        spec = replace(case, bias=bias).spec
        upright, turned = (estimate(tile.changed(swap_ab=swap), spec, SM_90A, **shape).total for swap in (False, True))
        assert upright > 1.02 * turned if bias else upright < 1.01 * turned
