"""Wait states: as few ``s_nop`` as lint asks for, across branches and round loops."""

from __future__ import annotations

import random
import textwrap

import pytest

from tests.assembly.gcn.launching import module
from tests.assembly.gcn.notation import read
from tests.assembly.gcn.random_kernels import RandomKernel
from tilekit.assembly.gcn.finish import Finished, finish
from tilekit.assembly.gcn.hazards import nops, wait_states
from tilekit.emulator.gcn.lint import lint

CHIPS = ("gfx942", "gfx950")


def filled(text: str, chip: str = "gfx950") -> list[str]:
    """Lines with their wait states."""
    lines = [line.strip() for line in textwrap.dedent(text).strip().splitlines()]
    missing = wait_states(lines, 64, chip)
    return [out for n, line in enumerate(lines) for out in (*nops(missing.get(n, 0)), line)]


def states(text: str, chip: str = "gfx950") -> list[tuple[str, str]]:
    """The wait states put in, each with the line that it stands before."""
    lines = filled(text, chip)
    return [(line, lines[n + 1]) for n, line in enumerate(lines) if line.startswith("s_nop")]


@pytest.mark.parametrize(
    ("count", "lines"), [(0, []), (1, ["s_nop 0"]), (16, ["s_nop 15"]), (17, ["s_nop 15", "s_nop 0"])]
)
def test_an_s_nop_is_up_to_sixteen_states(count: int, lines: list[str]) -> None:
    """Four bits of it count (CDNA4 ISA, S_NOP)."""
    assert nops(count) == lines


@pytest.mark.parametrize(
    ("chip", "product", "states_"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", 7),
        ("gfx950", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", 8),
        ("gfx942", "v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", 18),
        ("gfx950", "v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", 18),
    ],
)
def test_a_matrix_result_is_read_late_enough(chip: str, product: str, states_: int) -> None:
    """As many states as the chip's table says, in as few lines as can be."""
    found = filled(f"{product}\nv_accvgpr_read_b32 v9, a0\ns_endpgm", chip)
    assert found == [product, *nops(states_), "v_accvgpr_read_b32 v9, a0", "s_endpgm"]


def test_instructions_in_between_count() -> None:
    """Independent instructions are wait states, also those that were put in for others."""
    assert states("""
        v_cmp_lt_u32_e64 s[4:5], v0, v1
        v_mov_b32_e32 v2, 0
        v_cndmask_b32_e64 v3, v1, v2, s[4:5]
        s_endpgm
    """) == [("s_nop 0", "v_cndmask_b32_e64 v3, v1, v2, s[4:5]")]
    assert states("""
        v_cmp_lt_u32_e64 s[4:5], v0, v1
        v_cmp_lt_u32_e64 s[6:7], v0, v1
        v_cndmask_b32_e64 v3, v1, v2, s[4:5]
        v_cndmask_b32_e64 v3, v1, v3, s[6:7]
        s_endpgm
    """) == [("s_nop 0", "v_cndmask_b32_e64 v3, v1, v2, s[4:5]")]


def test_the_shortest_way_to_a_place_decides() -> None:
    """What a jump skips is no wait state; the states stand where both ways have met."""
    assert states("""
        v_readfirstlane_b32 s4, v0
        s_cbranch_scc1 end
        s_mov_b32 s6, 0
        s_mov_b32 s7, 0
        s_mov_b32 s8, 0
        s_mov_b32 s9, 0
        end:
        global_load_dword v1, v0, s[4:5]
        s_endpgm
    """) == [("s_nop 3", "global_load_dword v1, v0, s[4:5]")]


def test_a_loop_needs_states_for_what_its_end_does() -> None:
    """Round the back edge: the branch itself is one state, and what stands before the loop needs none."""
    assert filled("""
        s_mov_b32 s4, 0
        top:
        global_load_dword v1, v0, s[4:5]
        s_nop 0
        v_readfirstlane_b32 s4, v0
        s_cbranch_scc1 top
        s_endpgm
    """) == [
        "s_mov_b32 s4, 0",
        "top:",
        "s_nop 3",
        "global_load_dword v1, v0, s[4:5]",
        "s_nop 0",
        "v_readfirstlane_b32 s4, v0",
        "s_cbranch_scc1 top",
        "s_endpgm",
    ]


def test_states_of_a_loop_count_behind_it() -> None:
    """A long wait inside one block spares another block its own."""
    assert states("""
        v_cmp_lt_u32_e64 s[4:5], v0, v1
        v_readfirstlane_b32 s8, v0
        top:
        v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
        global_load_dword v3, v0, s[8:9]
        s_cbranch_scc1 top
        v_cndmask_b32_e64 v3, v1, v2, s[4:5]
        s_endpgm
    """) == [("s_nop 3", "global_load_dword v3, v0, s[8:9]")]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_have_all_states_and_none_too_many(seed: int, chip: str) -> None:
    """Lint finds nothing; with any one state less, it does."""
    finished = finish(RandomKernel(seed, 50, nesting=0.3).code, chip=chip)
    lines = [text for text, _ in finished.lines]
    assert _lint(finished, chip, lines) == 0
    fewer = 0
    for number, line in enumerate(lines):
        if line.startswith("s_nop"):
            left = int(line.split()[1])
            fewer += 1
            assert _lint(finished, chip, [*lines[:number], *nops(left), *lines[number + 1 :]]) > 0, (number, line)
    assert fewer == sum(line.startswith("s_nop") for line in lines)


@pytest.mark.parametrize("seed", range(30))
def test_states_settle_in_tangled_loops(seed: int) -> None:
    """Where every block jumps anywhere, too, the states are those that lint asks for, and no fewer do."""
    draw = random.Random(seed)
    lines = []
    for block in range(8):
        lines.append(f"L{block}:")
        for _ in range(draw.randrange(1, 5)):
            lines.append(
                draw.choice(
                    (
                        "v_readfirstlane_b32 s4, v0",
                        "v_cmp_lt_u32_e64 s[6:7], v0, v1",
                        "v_cndmask_b32_e64 v3, v1, v2, s[6:7]",
                        "global_load_dword v1, v0, s[4:5]",
                        "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]",
                        "v_accvgpr_read_b32 v2, a1",
                        "v_mov_b32_e32 v0, v3",
                        "s_mov_b32 s9, 0",
                    )
                )
            )
        lines.append(f"s_cbranch_scc{draw.randrange(2)} L{draw.randrange(8)}")
    lines.append("s_endpgm")
    missing = wait_states(lines, 4, "gfx950")

    def wrong(states_: dict[int, int]) -> int:
        body = [out for n, line in enumerate(lines) for out in (*nops(states_.get(n, 0)), line)]
        code, _ = read("s_endpgm")
        return _lint(finish(code, chip="gfx950"), "gfx950", body)

    assert wrong(missing) == 0
    for line in missing:
        assert wrong({**missing, line: missing[line] - 1}) > 0, lines[line]


def _lint(finished: Finished, chip: str, lines: list[str]) -> int:
    found = lint(module(finished, chip, lds=4096, lines=lines))
    assert {remark.rule for remark in found} <= {"hazard"}, found
    return len(found)
