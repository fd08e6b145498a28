"""What scales of blocks are among the kernels: what `explain` says, machine code, and the promote loop in it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import tilekit
from tilekit.dtypes import BF16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates, ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A, SM_100A, Target


def _specs(chip: Target) -> list[BlockwiseSpec]:
    ways: Any = ("tma", "direct") if chip is SM_90A else ("direct",)
    functions = ElementwiseSpec(bias=BF16, activation="silu")
    found = [BlockwiseSpec(scale_load=way, functions=what) for way in ways for what in (ElementwiseSpec(), functions)]
    found += [BlockwiseSpec(scale_load=way, groups=kind, out_dtype=F32) for way in ways for kind in ("ends", "counts")]
    if chip is SM_90A:
        found += [replace(one, scale_b_load="tma") for one in found if one.scale_load == "tma"]
    return [*found, BlockwiseSpec(store="direct", out_dtype=F32, functions=functions)]


CASES = [(chip, spec) for chip in (SM_90A, SM_100A) for spec in _specs(chip)]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(("chip", "spec"), CASES, ids=lambda one: one.name)
def test_assembles_without_a_loss(chip: Target, spec: BlockwiseSpec) -> None:
    """No spill and nothing serialised (`assemble` raises for each), with configs of all kinds that the picker takes."""
    configs = list(candidates(spec, chip))
    assert configs
    largest = max(configs, key=lambda config: config.tile[0] * config.tile[1])
    for config in (largest, *Random(spec.name).sample(configs, min(2, len(configs)))):
        text = trace(spec, config, chip)
        used = assemble(text.assembly, chip.name, kernel_name=text.name).resources
        assert (used.stack_bytes, used.spill_store_bytes) == (0, 0), config


LOOPS = [
    (MatmulConfig(tile=(128, 128), in_flight=0), 64, 2),
    (MatmulConfig(tile=(256, 128), in_flight=0, output_buffers=1), 128, 4),
    (MatmulConfig(tile=(128, 192), in_flight=0), 96, 6),
    (MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, in_flight=0, swap_ab=True), 32, 16),
]


@pytest.mark.parametrize(("config", "additions", "products"), LOOPS, ids=str)
def test_the_promote_loop(config: MatmulConfig, additions: int, products: int) -> None:
    """A multiply-add for each accumulator of a k-block, and a product for each factor: nothing else is computed."""
    kernel = tilekit.compile(BlockwiseSpec(scale_load="tma"), config=config)
    lines = kernel.isa.splitlines()
    calls = [at for at, line in enumerate(lines) if "QGMMA" in line]
    end = next(at for at in range(calls[-1], len(lines)) if re.search(r"\bBRA\b", lines[at]) and at > calls[-1] + 8)
    loop = [line for line in lines[calls[0] - 40 : end] if ";" in line]
    assert sum(bool(re.search(r"\bFFMA\b", line)) for line in loop) == additions
    assert sum(bool(re.search(r"\bFMUL\b", line)) for line in loop) == products
    assert not [line for line in loop if re.search(r"\b(LDL|STL)\b", line)]
    instructions = 4 * max(1, config.tile[0] // (64 * config.consumers_per_tile))
    assert len(calls) == instructions


def test_instructions_run_while_their_warpgroup_adds() -> None:
    """With registers for two blocks, the first is added between the waits for it and for the second."""
    config = MatmulConfig(tile=(128, 96), cluster=(1, 1), schedule="pingpong", in_flight=0)
    lines = tilekit.compile(BlockwiseSpec(scale_load="tma"), config=config).isa.splitlines()
    words = [word for line in lines for word in re.findall(r"QGMMA|DEPBAR\.LE gsb0, 0x[01]|FFMA", line)]
    runs = [(word, len(list(run))) for word, run in itertools.groupby(words)]
    start = runs.index(("QGMMA", 8))
    waits = ("DEPBAR.LE gsb0, 0x1", 1), ("DEPBAR.LE gsb0, 0x0", 1)
    assert runs[start + 1 : start + 5] == [waits[0], ("FFMA", 48), waits[1], ("FFMA", 48)]


def test_the_next_stage_is_asked_for_before_sums_are_added() -> None:
    """Once the last instructions are done: its answer has the time of the additions, and no scale comes from afar."""
    spec = BlockwiseSpec(scale_load="tma", scale_b_load="tma")
    lines = tilekit.compile(spec, config=MatmulConfig(tile=(256, 128), in_flight=0, output_buffers=1)).isa.splitlines()
    waits = [at for at, line in enumerate(lines) if "DEPBAR.LE gsb0" in line]
    loop = [line for line in lines[waits[1] : waits[2]] if ";" in line]
    asked = next(at for at, line in enumerate(loop) if re.search(r"SYNCS\.PHASECHK\.TRANS64 P", line))
    assert sum("FFMA" in line for line in loop[asked:]) >= 24
    body = [line for line in lines[: waits[2]] if ";" in line]
    assert not [line for line in body[-200:] if "LDG" in line]


def test_groups_have_a_loop_for_each_number_of_blocks() -> None:
    """Of two blocks of rows, of one, and of none, without a branch in any; whole matrices have one loop."""
    config = MatmulConfig(tile=(256, 128), cluster=(1, 2), in_flight=0)
    for groups, instructions in (("counts", 4 * (2 + 1)), ("ends", 4 * (2 + 1)), (None, 4 * 2)):
        spec: Any = BlockwiseSpec(scale_load="tma", scale_b_load="tma", groups=groups)  # type: ignore[arg-type]
        assert tilekit.compile(spec, config=config).isa.count("QGMMA") == instructions


def test_groups_have_the_tiles_of_whole_matrices() -> None:
    """Rows stored one by one take registers of the epilogue alone, so 192 of sums are legal and do not spill."""
    config = MatmulConfig(tile=(256, 128), cluster=(1, 2), in_flight=0)
    for groups in ("ends", "counts"):
        spec: Any = BlockwiseSpec(scale_load="tma", scale_b_load="tma", groups=groups)  # type: ignore[arg-type]
        assert config.sum_registers(spec) == 192
        text = trace(spec, config, SM_90A)
        assert assemble(text.assembly, "sm_90a", kernel_name=text.name).resources.spill_store_bytes == 0


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [(4096, 4096, 4096, (256, 128)), (8192, 8192, 8192, (192, 128)), (4096, 24576, 1536, (192, 128))],
)
def test_large_products_have_additions_that_other_consumers_hide(m: int, n: int, k: int, tile: tuple[int, int]) -> None:
    """The quickest of those timed on an H200: two or three share a tile, whose columns are of one block of B's."""
    spec = BlockwiseSpec(scale_load="tma", scale_b_load="tma")
    best = ranked(spec, SM_90A, m=m, n=n, k=k)[0].config
    assert (best.tile, best.pingpong, best.swap_ab) == (tile, False, False)
    assert [spec.factors(columns, swapped=False) for columns in (128, 192, 200)] == [1, 3, 25]
    assert spec.factors(64, swapped=True) < BlockwiseSpec().factors(64, swapped=True)


def test_explain_marks_what_is_swapped() -> None:
    """A line for each component in the place of a matmul's, under the head, on both chips and of groups."""
    for target, way, words in (
        ("sm_90a", "tma", ["Payload with A's scales", "accumulators that begin anew"]),
        ("sm_100a", "direct", ["accumulators that begin anew"]),
    ):
        spec: Any = BlockwiseSpec(scale_load=way)  # type: ignore[arg-type]
        lines = tilekit.compile(spec, target).explain().splitlines()  # type: ignore[arg-type]
        swapped = [line.removeprefix("swapped      ") for line in lines if line.startswith("swapped")]
        assert [line[: len(word)] for line, word in zip(swapped, words, strict=True)] == words
    grouped = tilekit.compile(BlockwiseSpec(groups="ends")).explain()
    assert "swapped      GroupedScheduler" in grouped
    staged = tilekit.compile(BlockwiseSpec(scale_load="tma"), config=MatmulConfig(in_flight=0, tile=(128, 128)))
    assert re.search(r"inputs\.scale_a \[\d+\] x 512 B", staged.explain())


def test_names_tell_kernels_apart() -> None:
    """How scales are loaded is in the name, beside what a matmul's has."""
    assert BlockwiseSpec(scale_load="tma").name == "blockwise_e4m3_e4m3_bf16_kk_scales_tma"
    assert BlockwiseSpec(scale_load="tma", scale_b_load="tma").name == "blockwise_e4m3_e4m3_bf16_kk_scales_tma_tma"
    assert BlockwiseSpec(groups="ends").name == "blockwise_e4m3_e4m3_bf16_kk_scales_direct_grouped_ends"
