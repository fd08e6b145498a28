"""Constants stand where they are read: what encodings take, what is computed of them, and branches that they decide."""

from __future__ import annotations

import pytest

from tests.assembly.gcn.improving import after
from tilekit.assembly.gcn.constants import with_constants

REGISTERS = """
x = vector @0
s = scalar @2
t = scalar @3
v = vector
w = vector
p = vector 2
k = scalar
m = scalar 2
acc = accumulator
"""


@pytest.mark.parametrize(
    ("constant", "line", "wanted"),
    [
        ("7", "v_add_u32 w, v, x", "v_add_u32 w, 7, x"),
        ("7", "v_add_u32 w, x, v", "v_add_u32 w, x, 7"),
        ("0x1234", "v_add_u32 w, x, v", "v_add_u32 w, 0x1234, x"),
        ("0x1234", "v_sub_u32 w, x, v", "v_subrev_u32 w, 0x1234, x"),
        ("0x1234", "v_lshlrev_b32 w, x, v", "v_lshlrev_b32 w, x, v"),
        ("0x1234", "v_mul_lo_u32 w, x, v", "v_mul_lo_u32 w, x, v"),
        ("7", "v_add3_u32 w, x, s, v", "v_add3_u32 w, x, s, 7"),
        ("0x1234", "v_add3_u32 w, x, s, v", "v_add3_u32 w, x, s, v"),
        ("0x1234", "v_cmp_lt_u32_e32 vcc, v, x", "v_cmp_lt_u32 vcc, 0x1234, x"),
        ("0x1234", "v_cmp_lt_u32_e64 m, v, x", "v_cmp_lt_u32_e64 m, v, x"),
        ("0", "v_accvgpr_write_b32 acc, v", "v_accvgpr_write_b32 acc, 0"),
        ("100", "v_accvgpr_write_b32 acc, v", "v_accvgpr_write_b32 acc, v"),
        ("5", "v_readfirstlane_b32 k, v", "s_mov_b32 k, 5"),
        ("5", "global_store_dword x, v, m", "global_store_dword x, v, m"),
    ],
)
def test_a_constant_stands_where_the_encoding_takes_it(constant: str, line: str, wanted: str) -> None:
    """Literals in the short encodings' first source alone, none in the long ones and in stores."""
    assert after(with_constants, f"{REGISTERS}v_mov_b32 v, {constant}\n{line}\ns_endpgm")[1] == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("v_mad_u64_u32 p, vcc, x, 1, 0", ["v_mov_b32 p[0], x", "v_mov_b32 p[1], 0"]),
        ("v_mul_lo_u32 v, x, 8", ["v_lshlrev_b32 v, 3, x"]),
        ("v_mul_lo_u32 v, x, 1", ["v_mov_b32 v, x"]),
        ("v_lshlrev_b32 v, 0, x", ["v_mov_b32 v, x"]),
        ("v_sub_u32 v, 0, x", ["v_sub_u32 v, 0, x"]),
        ("v_and_b32 v, 0, x", ["v_mov_b32 v, 0"]),
        ("v_or_b32 v, 5, 2", ["v_mov_b32 v, 7"]),
        ("v_ashrrev_i32 v, 4, -16", ["v_mov_b32 v, -1"]),
        ("s_mul_i32 k, s, 4", ["s_lshl_b32 k, s, 2"]),
        ("s_add_u32 k, 0x7fffffff, 3", ["s_mov_b32 k, 0x80000002"]),
        ("v_add_f32 v, 0, x", ["v_add_f32 v, 0, x"]),
    ],
)
def test_what_is_computed_of_constants(line: str, wanted: list[str]) -> None:
    """Neutral elements, powers of two, and operations on nothing but constants; -0.0 + 0 is not -0.0."""
    assert after(with_constants, f"{REGISTERS}{line}\ns_endpgm")[:-1] == wanted


def test_a_flag_that_is_read_stays() -> None:
    """A sum of constants whose carry is added is no move, and a product whose SCC slot is needed no shift."""
    lines = after(with_constants, f"{REGISTERS}s_add_u32 k, 4, 5\ns_addc_u32 s, s, 0\ns_mov_b32 m0, s\ns_endpgm")
    assert lines[0] == "s_add_u32 k, 4, 5"
    lines = after(
        with_constants,
        f"{REGISTERS}s_cmp_lt_u32 s, t\ns_mul_i32 k, s, 4\ns_cselect_b32 s, k, t\ns_mov_b32 m0, s\ns_endpgm",
    )
    assert lines[1] == "s_mul_i32 k, s, 4"


def test_a_choice_by_a_mask_that_is_known() -> None:
    """All lanes or none are a move; a mask of the first lane alone is a choice."""
    for mask, wanted in (("-1", "v_mov_b32 w, v"), ("0", "v_mov_b32 w, x"), ("1", "v_cndmask_b32 w, x, v, m")):
        lines = after(with_constants, f"{REGISTERS}s_mov_b64 m, {mask}\nv_cndmask_b32 w, x, v, m\ns_endpgm")
        assert lines[1] == wanted


def test_lanes_that_come_back_do_not_have_the_constant() -> None:
    """What active lanes were given is known until EXEC is widened, if the register is written elsewhere, too."""
    text = f"""{REGISTERS}
        v_add_u32 v, x, x
        fewer s_and_saveexec_b64 m, vcc
        ? v_mov_b32 v, 5
        ? v_add_u32 w, v, x
        more s_mov_b64 exec, m
        v_add_u32 w, v, x
        s_endpgm"""
    lines = after(with_constants, text)
    assert lines[3] == "v_add_u32 w, 5, x"
    assert lines[5] == "v_add_u32 w, v, x"


def test_a_loop_s_counter_is_no_constant() -> None:
    """What a loop changes is known before it, where it decides the guard, and not in it."""
    text = f"""{REGISTERS}
        s_mov_b32 k, 0
        s_cmp_ge_u32 k, 64
        s_cbranch_scc1 end
        top:
        v_add_u32 w, k, x
        s_add_u32 k, +k, 32
        s_cmp_lt_u32 k, 64
        s_cbranch_scc1 top
        end:
        s_endpgm"""
    lines = after(with_constants, text)
    assert "s_cbranch_scc1 end" not in lines
    assert "end:" not in lines, "nothing goes there"
    assert "v_add_u32 w, k, x" in lines
    assert "s_cbranch_scc1 top" in lines


def test_a_branch_that_is_always_taken() -> None:
    """What no way leads to any more is left out."""
    text = f"{REGISTERS}s_cmp_lt_u32 3, 4\ns_cbranch_scc1 end\nv_mov_b32 v, 1\nend:\ns_endpgm"
    assert after(with_constants, text) == ["s_cmp_lt_u32 3, 4", "s_branch end", "end:", "s_endpgm"]
