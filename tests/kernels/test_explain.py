"""The page that explains a kernel."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import tilekit
from tilekit.dtypes import BF16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec

SPECS = [
    MatmulSpec(),
    MatmulSpec(out_dtype=F32, store="direct", batched=True),
    MatmulSpec(functions=ElementwiseSpec("pointer", BF16, "gelu", residual=BF16)),
]

CONFIGS = [
    MatmulConfig(),
    MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1),
    MatmulConfig(tile=(128, 128), cluster=(2, 2)),
    MatmulConfig(tile=(64, 128), schedule="pingpong"),
    BlackwellConfig(),
    BlackwellConfig(tile=(64, 128), cluster=(4, 2), clc_stages=0),
    BlackwellConfig(tile=(64, 64), cluster=(1, 1), cta_group=1, k_group=2, accumulator_stages=3),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=[s.name for s in SPECS])
def test_explain_adds_up(spec: MatmulSpec, config: KernelConfig) -> None:
    """Threads, registers, the shared-memory map and the barriers' counts are the kernel's, and add up."""
    target = config.TARGET
    kernel = tilekit.compile(spec, target=target, config=config)
    page = kernel.explain()
    assert page.startswith(f"{spec.name}: ")
    assert f", {target}\n" in page
    for role in kernel.text.roles:
        first, last = role.warps.start, role.warps.stop - 1
        warps = f"{first}-{last}" if last > first else str(first)
        assert re.search(rf"^{role.name} +{warps} +{32 * len(role.warps)} ", page, re.M)
    used, available = map(int, re.search(r"registers (\d+) of (\d+)", page).groups())  # type: ignore[union-attr]
    assert used <= available == kernel.target.registers
    shared, limit = map(int, re.search(r"shared memory (\d+) of (\d+) B", page).groups())  # type: ignore[union-attr]
    rows = [tuple(map(int, row)) for row in re.findall(r"^ +(\d+) +(\d+)  \w", page, re.M)]
    assert [offset for offset, _ in rows] == [array.offset for array in kernel.text.shared]
    assert sum(size for _, size in rows) <= shared <= limit
    assert shared == config.memory(spec).size(kernel.text.stages)
    for array in kernel.text.shared:
        if array.kind == "mbarrier":
            assert re.search(rf"^{re.escape(array.name)}\[{array.count}\] +{array.arrivals} ", page, re.M)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MatmulConfig(tile=(128, 128), cluster=(2, 2)), r"^inputs\.empty\[\d+\] +24 .* mma of 3 CTAs"),
        (MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1), r"^inputs\.empty\[\d+\] +4 .* mma  "),
        (MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong"), r"^inputs\.empty\[\d+\] +4 .* mma  "),
        (BlackwellConfig(), r"^inputs\.full\[6\] +1 +65536 +load  "),
        (BlackwellConfig(cluster=(4, 2), tile=(128, 128)), r"^inputs\.empty\[\d+\] +3 .* mma of 3 CTAs"),
        (BlackwellConfig(), r"^accumulators\.empty\[2\] +8 .* epilogue of 2 CTAs +mma$"),
        (BlackwellConfig(), r"^clc\.empty\[2\] +12 .* load, mma, epilogue, scheduler of the cluster"),
        (BlackwellConfig(), r"^clc\.full\[2\] +1 +16 "),
    ],
)
def test_barriers_say_who_arrives(config: KernelConfig, words: str) -> None:
    """Counts, bytes and the CTAs that they come from."""
    page = tilekit.compile(MatmulSpec(), target=config.TARGET, config=config).explain()
    assert re.search(words, page, re.M), page


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (
            BlackwellConfig(),
            [
                "tensor memory 512 of 512 columns, layout A",
                "   0-255     0-127  accumulators[0], rows 0-127, columns 0-255",
                " 256-511     0-127  accumulators[1], rows 0-127, columns 0-255",
            ],
        ),
        (
            BlackwellConfig(tile=(64, 96), accumulator_stages=1),
            [
                "tensor memory 64 of 512 columns, layout B",
                "    0-47      0-63  accumulators[0], rows 0-63, columns 0-47",
                "    0-47    64-127  accumulators[0], rows 0-63, columns 48-95",
            ],
        ),
        (
            BlackwellConfig(tile=(64, 48), cluster=(1, 1), cta_group=1),
            [
                "tensor memory 128 of 512 columns, layout F",
                "    0-47    0-15 *  accumulators[0], rows 0-63, columns 0-47",
                "   48-95    0-15 *  accumulators[1], rows 0-63, columns 0-47",
                " * of each warp's 32: warp w has rows 16 w to 16 w + 15",
            ],
        ),
        (
            BlackwellConfig(tile=(128, 48), cluster=(1, 1), cta_group=1, accumulator_stages=1),
            [
                "tensor memory 64 of 512 columns, layout D",
                "    0-47     0-127  accumulators[0], rows 0-127, columns 0-47",
            ],
        ),
    ],
    ids=["A", "B", "F", "D"],
)
def test_tensor_memory_is_mapped(config: BlackwellConfig, lines: list[str]) -> None:
    """Where each accumulator lies: columns, lanes, and the part of the CTA's tile that they hold."""
    page = tilekit.compile(MatmulSpec(), target="sm_100a", config=config).explain()
    found = [line for line in page.splitlines() if line.startswith("tensor memory") or "accumulators[" in line]
    found = [line for line in found if not re.match(r"accumulators", line)]
    assert found == [line for line in lines if "*" not in line or "accumulators" in line]
    assert all(line in page.splitlines() for line in lines)


def test_turns_are_named() -> None:
    """Where warpgroups take turns, the page and the config say so."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong")
    assert (
        "k-blocks, one warpgroup's in its turn, 8192 B of output"
        in tilekit.compile(MatmulSpec(), config=config).explain()
    )
    assert "2 consumers pingpong" in str(config)


def test_streamed_tiles_are_named() -> None:
    """What a CTA keeps of a tile is 4 bytes an element, and is spoken of where there is such a thing only."""
    config = MatmulConfig(tile=(128, 128), cluster=(1, 1), stream_k=2)
    assert "equal ranges of k-blocks, 65536 B of sums kept" in tilekit.compile(MatmulSpec(), config=config).explain()
    whole = tilekit.compile(MatmulSpec(), config=replace(config, stream_k=0))
    assert "kept" not in whole.explain()


def test_costs_name_the_instructions() -> None:
    """The k-block's line says which matrix instructions a stage is."""
    fp8 = MatmulSpec("e4m3", "e5m2", b_major="mn")
    config = BlackwellConfig(tile=(128, 64), cluster=(2, 1), k_group=2)
    page = tilekit.compile(fp8, target="sm_100a", config=config).explain()
    assert "8 x tcgen05.mma m256n64k32 of 2 CTAs" in page
    assert "K/256 k-blocks" in page


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("sm_90a", MatmulConfig(tile=(128, 16), cluster=(1, 1), swap_ab=True)),
        ("sm_100a", BlackwellConfig(tile=(128, 16), cluster=(1, 1), cta_group=1, swap_ab=True)),
    ],
)
def test_swapped_operands_are_named(target: str, config: MatmulConfig | BlackwellConfig) -> None:
    """Where the tile's rows are N, the page says so, and so does the config."""
    page = tilekit.compile(MatmulSpec(), target=target, config=config).explain()
    assert "operands swapped: rows along N" in page.splitlines()[0]
    assert "in transposed subtiles" in page
    assert str(config).startswith("swapped, tile 128x16")
