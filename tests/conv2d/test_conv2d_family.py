"""What a convolution is among the kernels: how little of its own it has, what `explain` says, and its machine code."""

from __future__ import annotations

from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from benchmarks.family_lines import code_lines, counted
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.conv2d.problem import slice_for
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A, SM_100A, Target

LIMITS = {
    "conv2d: im2col loader, spec, entry": 131,
    "conv2d: reading a call": 345,
    "conv2d: binding": 40,
    "conv2d: the threads' loader": 90,
    "conv2d: lines that name a residual": 60,
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


def _specs() -> list[ConvSpec]:
    """Every way to load, with functions, types, groups and stores going round."""
    rng, found = Random(5), []
    loads: list[dict[str, Any]] = [{"swizzle": s, "im2col_b": b} for s in (128, 64, 32, 0) for b in (False, True)]
    loads += [{"a_load": a, "b_load": b} for a, b in ((2, 2), (8, 8), (4, 2), (1, 1), (8, 1))]
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
        found.append(ConvSpec(dtype, dtype, out, batched=batched, functions=functions, store=store, **load))
    return found


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
    ((2, 8, 8, 3), (32, 3, 3, 3), ["GatherLoader for TmaLoader: threads"]),
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
