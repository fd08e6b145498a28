"""Matmul kernels through the real assembler: no spill, no serialised wgmma, and the machine code that was meant."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby

import pytest
from matmul_specs import CHIPS, all_specs, family, legal_configs, sampled_configs, sampled_specs

from tilekit.dtypes import BF16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A, SM_100A, Target


@pytest.mark.parametrize(
    ("chip", "spec", "breadth"),
    [
        pytest.param(
            chip, spec, breadth, id=f"{chip.name}-{spec.name}-{i}", marks=pytest.mark.breadth if breadth else ()
        )
        for chip in CHIPS
        for breadth in (False, True)
        for i, spec in enumerate(sampled_specs(chip, breadth=breadth)[:: 1 if breadth else 12])
    ],
)
def test_assembles_without_a_loss(chip: Target, spec: MatmulSpec, breadth: bool) -> None:
    """No spill, no lost setmaxnreg, no serialised wgmma (`assemble` raises for each), and it fits the launch."""
    for config in sampled_configs(chip, breadth=breadth)[spec]:
        text = trace(spec, config, chip)
        used = assemble(text.assembly, chip.name, kernel_name=text.name).resources
        assert used.registers <= min(255, chip.registers // text.threads // 8 * 8), config
        assert (used.stack_bytes, used.spill_store_bytes, used.static_shared_bytes) == (0, 0, 0), config


@pytest.mark.breadth
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_the_sample_meets_every_config(chip: Target) -> None:
    """Each family of configs that the picker may choose is assembled with some spec."""
    sampled = {family(config) for configs in sampled_configs(chip, breadth=True).values() for config in configs}
    assert sampled == {family(config) for spec in all_specs(chip) for config in legal_configs(spec, chip)}


def sass(kernel: MatmulKernel) -> list[str]:
    """A kernel's machine code, an instruction or a label a line."""
    return [line.strip() for line in kernel.isa.splitlines() if re.search(r"/\*[0-9a-f]{4,}\*/|^\s*\.L_", line)]


PINGPONG = MatmulConfig(tile=(64, 256), schedule="pingpong")
STREAMED = MatmulConfig(stream_k=2)
LONE = MatmulConfig(tile=(64, 80), cluster=(4, 1), consumers=1, swap_ab=True)


@cache
def machine_code(config: MatmulConfig = MatmulConfig()) -> list[str]:  # noqa: B008  configs do not change
    """The SASS of a bf16 kernel, the default one's where none is given, an instruction a line."""
    return sass(MatmulKernel(MatmulSpec(), config, SM_90A))


def k_loop(code: list[str], what: str = "HGMMA") -> list[str]:
    """The innermost backward branch that encloses all of an instruction: with HGMMA the k-loop of the mma role."""
    places = {match[1]: at for at, line in enumerate(code) if (match := re.match(r"(\.L_x_\d+):", line))}
    those = [at for at, line in enumerate(code) if what in line]
    loops = [
        (places[match[1]], at)
        for at, line in enumerate(code)
        if (match := re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", line)) and places[match[1]] <= those[0] and at >= those[-1]
    ]
    first, last = min(loops, key=lambda loop: loop[1] - loop[0])
    return code[first : last + 1]


@pytest.mark.parametrize("config", [MatmulConfig(), LONE], ids=str)
def test_registers_move_between_the_roles(config: MatmulConfig) -> None:
    """USETMAXREG appears once in each role: the load role releases, the mma role acquires."""
    assert sum("USETMAXREG" in line for line in machine_code(config)) == 2


@pytest.mark.parametrize("config", [MatmulConfig(), PINGPONG, STREAMED, LONE], ids=str)
def test_k_loop_has_four_hgmma_and_nothing_between(config: MatmulConfig) -> None:
    """A k-block of 64 is four HGMMAs, whose descriptors and stage stay in uniform registers: no R2UR in the loop."""
    loop = k_loop(machine_code(config))
    assert sum("HGMMA" in line for line in loop) == 4
    assert not [line for line in loop if "R2UR" in line]


@pytest.mark.parametrize("config", [MatmulConfig(), PINGPONG, STREAMED, LONE], ids=str)
def test_the_load_role_goes_round_as_a_warp(config: MatmulConfig) -> None:
    """Stage, phase and coordinates are in uniform registers: no R2UR from the wait for a stage to its last copy."""
    loop = k_loop(machine_code(config), "UTMALDG")
    assert sum("UTMALDG" in line for line in loop) >= 2
    assert any("SYNCS.ARRIVE" in line for line in loop)
    assert not [line for line in loop if "R2UR" in line]


@pytest.mark.parametrize("config", [MatmulConfig(), PINGPONG, STREAMED, LONE], ids=str)
def test_k_loop_has_no_fence(config: MatmulConfig) -> None:
    """No MEMBAR, no local memory and no CTA barrier in the k-loop: only mbarriers, HGMMA and address arithmetic."""
    loop = k_loop(machine_code(config))
    assert not [line for line in loop if re.search(r"\b(MEMBAR|LDL|STL|BAR\.|ERRBAR|CCTL)", line)]
    assert any("SYNCS" in line for line in loop)


def test_one_group_stays_in_flight() -> None:
    """With in_flight=1 the k-loop waits for all but the latest group, with 0 for all."""
    for in_flight in (0, 1):
        waits = [line for line in k_loop(machine_code(MatmulConfig(in_flight=in_flight))) if "WARPGROUP.DEPBAR" in line]
        assert len(waits) == 1
        assert f"0x{in_flight}" in waits[0]


def test_a_pair_multiplies_as_one() -> None:
    """A k-block of Blackwell's default kernel is four UTCHMMA.2CTA and the commits that give stage and tile on."""
    code = sass(MatmulKernel(MatmulSpec(), BlackwellConfig(), SM_100A))
    opcodes = [match[1] for line in code if (match := re.search(r"(UTCHMMA\S*|UTCBAR\S*|UTMALDG\S*)", line))]
    assert [name for name in opcodes if name.startswith("UTCHMMA")] == ["UTCHMMA.2CTA"] * 4
    assert all(".2CTA" in name for name in opcodes if name.startswith(("UTCBAR", "UTMALDG"))), opcodes
    assert sum(name.startswith("UTCBAR") for name in opcodes) == 2


def test_a_shared_sum_is_sent_and_read_16_bytes_at_a_time() -> None:
    """Four CTAs send each other 64x16 of f32 with two STAS.128 a thread; only the cluster's two barriers fence."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, cluster_k=4, swap_ab=True)
    code = sass(MatmulKernel(MatmulSpec(out_dtype=F32), config, SM_90A))
    counts = [
        sum(bool(re.search(rf"\s{name}\b", line)) for line in code)
        for name in (r"STAS\.128", r"LDS\.128", r"MEMBAR\.ALL\.GPU", "UCGABAR_ARV")
    ]
    assert counts == [4 * 2, 4 * 2, 2, 2]


def test_shares_of_streamed_tiles_are_many_loads_in_flight() -> None:
    """A thread writes and reads its 128 sums of a tile 16 bytes at a time, and has ten loads or more under way."""
    code = machine_code(STREAMED)
    assert sum("STG.E.128" in line for line in code) == 32
    reads = [at for at, line in enumerate(code) if "LDG.E.128" in line]
    assert len(reads) == 32
    assert not [line for line in code[reads[0] : reads[9]] if "FADD" in line]


@pytest.mark.parametrize(
    "config",
    [
        MatmulConfig(tile=(64, 192), cluster=(1, 1), consumers=1, swap_ab=True, split_k=4),
        MatmulConfig(tile=(128, 192), cluster=(1, 1), split_k=4),
        MatmulConfig(tile=(64, 96), cluster=(1, 1), schedule="pingpong", split_k=4),
    ],
    ids=str,
)
def test_two_shares_are_on_their_way_at_once(config: MatmulConfig) -> None:
    """Of the shares that are added by twos, both are asked for before either is added, with no register spilt."""
    for functions in (ElementwiseSpec(), ElementwiseSpec(bias=BF16, activation="gelu")):
        spec = MatmulSpec(functions=functions)
        if config.legal(SM_90A, spec):
            kernel = MatmulKernel(spec, config, SM_90A)
            assert kernel.resources.spill_store_bytes == 0
            kinds = [kind for line in sass(kernel) for kind in ("LDG.E.128", "FADD") if kind in line]
            assert max(len(list(run)) for kind, run in groupby(kinds) if kind == "LDG.E.128") >= 16
