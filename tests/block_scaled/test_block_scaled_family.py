"""What a block-scaled matmul is among the kernels: what `explain` says, its instructions, its machine code."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import tilekit
from benchmarks.family_lines import counted
from tilekit.dtypes import BF16, E2M1X2, E4M3, E5M2, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_100A

DOCS = Path(__file__).parents[2] / "docs"

SPECS = [
    BlockScaledSpec(scaled="mxfp8", a_dtype=E4M3, b_dtype=E5M2, functions=ElementwiseSpec(bias=F32, activation="gelu")),
    BlockScaledSpec(scaled="mxfp8", out_dtype=E4M3, store="direct"),
    BlockScaledSpec(scaled="mxfp4", a_dtype=E2M1X2, b_dtype=E2M1X2, out_dtype=F16),
    BlockScaledSpec(
        scaled="nvfp4", a_dtype=E2M1X2, b_dtype=E2M1X2, functions=ElementwiseSpec(scale="pointer", residual=BF16)
    ),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_ptxas_takes_every_candidate(spec: BlockScaledSpec) -> None:
    """No spills, and none of the advice of ptxas (C75xx), which `assemble` refuses."""
    configs = list(candidates(spec, SM_100A))
    assert {(config.cta_group, config.tile[1]) for config in configs} >= set(product((1, 2), (128, 256)))
    for config in configs[:: max(1, len(configs) // 3)]:
        text = trace(spec, config, SM_100A)
        resources = assemble(text.assembly, "sm_100a", kernel_name=text.name).resources
        assert resources.spill_store_bytes == resources.spill_load_bytes == 0


def test_explain_says_what_is_swapped() -> None:
    """The payload and the instruction, and where scales lie; all else is the matmul's."""
    shown = tilekit.compile(SPECS[3], "sm_100a", tilekit.BlackwellConfig(tile=(128, 128))).explain()
    swapped = [line for line in shown.splitlines() if line.startswith("swapped")]
    assert [line.split()[1] for line in swapped] == ["StandardPayload", "BlockScaledTcgen05"]
    assert "256-287     0-127  scales of a stage" in shown
    assert "8.39 MFLOP" in shown
    assert "4 x tcgen05.mma m256n128k64" in shown


COUNTED = {
    "scaled-matmul.md": (
        ("block_scaled: payload, op, spec, entry", "registry entry are {} lines"),
        ("block_scaled: reading a call", "reading a call is {} more"),
        ("block_scaled: binding", "binding {},"),
        ("block_scaled: the kernel that lays scales out", "lays scales out {}."),
        ("block_scaled: quantised outputs", "a row of their own: {} lines"),
    ),
    "blockwise.md": (
        ("blockwise: payload and factors, spec, entry", "spec and entry are {},"),
        ("blockwise: accumulators with factors, reads ahead", "of your own do, {} more,"),
        ("blockwise: values in the stages", "come into stages {},"),
        ("blockwise: reading a call", "reading a call {},"),
        ("blockwise: binding", "binding {}."),
    ),
}


@pytest.mark.parametrize("page", COUNTED)
def test_pages_have_the_counted_lines(page: str) -> None:
    """What the pages say of the families' lines is what the command counts."""
    found, text = counted(), " ".join((DOCS / page).read_text("utf-8").split())
    assert [words for name, words in COUNTED[page] if words.format(found[name]) not in text] == []


def test_instructions_by_format() -> None:
    """Which of a word's scales an instruction reads is in its descriptor; columns of tensor memory follow."""
    ids = {}
    for spec in SPECS[:1] + SPECS[2:]:
        text = tilekit.compile(spec, "sm_100a", tilekit.BlackwellConfig(accumulator_stages=1)).ptx
        lines = [line.split() for line in text.splitlines() if line.strip().startswith("tcgen05.mma.")]
        ids[spec.scaled] = [int(line[4].rstrip(",")) >> 29 & 3 for line in lines]
        assert text.count("tcgen05.cp.") == {"mxfp8": 3, "mxfp4": 6, "nvfp4": 12}[spec.scaled]
    assert ids == {"mxfp8": [0, 1, 2, 3], "mxfp4": [0, 2, 0, 2], "nvfp4": [0, 0, 0, 0]}
