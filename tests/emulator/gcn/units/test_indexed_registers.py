"""Registers by index: s_set_gpr_idx_on and its like, and s_movrel, wave by wave."""

from __future__ import annotations

import numpy as np
import pytest
from programs import program, run

from tilekit.emulator import Device, EmulatorError, MissingWait, ProtocolError, UnsupportedInstruction

SETUP = """
    v_readfirstlane_b32 s6, v0
    s_lshr_b32 s6, s6, 6
    v_lshlrev_b32_e32 v1, 2, v0
    v_mov_b32_e32 v4, 40
    v_mov_b32_e32 v5, 50
    v_mov_b32_e32 v6, 60
    v_mov_b32_e32 v7, 70
    v_mov_b32_e32 v8, 80
    v_mov_b32_e32 v9, 90
"""
STORE = "global_store_dword v1, v2, s[2:3]"


@pytest.mark.parametrize("block", [64, 192])
def test_a_source(block: int) -> None:
    """Each wave reads the register that its index names; what is not indexed stays."""
    body = f"""{SETUP}
        s_add_u32 s6, s6, 1
        s_set_gpr_idx_on s6, gpr_idx(SRC0)
        v_mov_b32_e32 v2, v4
        v_add_u32_e32 v3, v5, v4
        s_set_gpr_idx_off
        v_add_u32_e32 v2, v2, v3
        {STORE}"""
    memory = np.zeros(block, np.uint32)
    assert run(body, memory, "gfx942", block=block).clean
    for wave, row in enumerate(memory.reshape(-1, 64)):
        assert (row == (50 + 10 * wave) + (60 + 10 * wave + 40)).all()


def test_a_result_in_some_lanes() -> None:
    """Only active lanes of the register that the index names are written; a literal mask does as well as names."""
    body = f"""{SETUP}
        s_mov_b64 exec, 0xff
        s_set_gpr_idx_on s6, 8
        v_mov_b32_e32 v4, 1
        s_set_gpr_idx_idx 2
        v_fmac_f32_e32 v4, 1.0, v4
        s_set_gpr_idx_mode gpr_idx(SRC1,DST)
        v_add_u32_e32 v6, 5, v4
        s_set_gpr_idx_off
        s_mov_b64 exec, -1
        v_add_u32_e32 v2, v4, v6
        v_add_u32_e32 v2, v2, v8
        {STORE}"""
    memory = np.zeros(64, np.uint32)
    assert run(body, memory, "gfx950").clean
    # lanes 0 to 7: v4 = 1; v6 = 60 + 1.0f * 1 as denormal floats, which add like integers; v8 = 5 + v6.
    assert (memory[:8] == 1 + 61 + 66).all()
    assert (memory[8:] == 40 + 60 + 80).all()


def test_pairs_and_comparisons() -> None:
    """A 64-bit operand takes two registers from the index on; a comparison's result is no vector register."""
    body = f"""{SETUP}
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v3, 0
        s_set_gpr_idx_on 2, gpr_idx(SRC0,SRC1)
        v_lshlrev_b64 v[2:3], v4, v[4:5]
        v_cmp_lt_u32_e64 s[8:9], v4, v5
        s_set_gpr_idx_off
        s_bcnt1_i32_b64 s10, s[8:9]
        v_add_u32_e32 v2, s10, v3
        {STORE}"""
    memory = np.zeros(64, np.uint32)
    assert run(body, memory, "gfx950").clean
    value = (60 | 70 << 32) << 60 & (1 << 64) - 1
    assert (memory == (value >> 32) + 64).all()


LOOP = """
    s_mov_b32 s7, 0
    v_mov_b32_e32 v2, 0
.Lnext:
    s_set_gpr_idx_on s7, gpr_idx(SRC0)
    v_add_u32_e32 v2, v4, v2
    s_set_gpr_idx_off
    s_add_u32 s7, s7, 1
    s_cmp_lt_u32 s7, 6
    s_cbranch_scc1 .Lnext
"""


def test_a_loop() -> None:
    """A sum over six registers by a counter."""
    memory = np.zeros(64, np.uint32)
    assert run(SETUP + LOOP + STORE, memory).clean
    assert (memory == 390).all()


def test_scalars_by_index() -> None:
    """s_movrels and s_movreld count from M0, of single registers and of pairs."""
    body = f"""{SETUP}
        s_mov_b32 s20, 11
        s_mov_b32 s21, 22
        s_mov_b32 s22, 33
        s_mov_b32 s23, 44
        s_mov_b32 s24, 55
        s_add_u32 m0, s6, 1
        s_nop 0
        s_movrels_b32 s10, s20
        s_movrels_b64 s[12:13], s[22:23]
        s_movreld_b32 s30, s10
        s_movreld_b64 s[34:35], s[20:21]
        s_mov_b32 s11, s31
        s_cmp_eq_u32 s6, 0
        s_cselect_b32 s11, s31, s32
        s_cselect_b32 s14, s35, s36
        s_add_u32 s11, s11, s13
        s_add_u32 s11, s11, s14
        v_mov_b32_e32 v2, s11
        {STORE}"""
    memory = np.zeros(128, np.uint32)
    body = body.replace("s[22:23]", "s[20:21]")
    assert run(body, memory, block=128).clean
    assert (memory.reshape(2, 64) == [[22 + 33 + 11], [33 + 44 + 11]]).all()


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("s_set_gpr_idx_on 255, gpr_idx(SRC0)\nv_mov_b32 v2, v9\ns_set_gpr_idx_off", ProtocolError,
         "v264 by its index"),
        ("s_set_gpr_idx_on 0, gpr_idx(SRC9)\ns_set_gpr_idx_off", UnsupportedInstruction, "SRC0, SRC1, SRC2, DST"),
        ("s_set_gpr_idx_on 1, gpr_idx(SRC0)\nv_readlane_b32 s9, v2, 3\ns_set_gpr_idx_off", UnsupportedInstruction,
         "cannot have indexed registers"),
        ("s_set_gpr_idx_on 1, gpr_idx(SRC0)\ns_cbranch_scc1 .Lx\ns_set_gpr_idx_off\n.Lx:\nv_mov_b32 v2, v3",
         UnsupportedInstruction, "with and without"),
        ("global_load_dword v9, v1, s[2:3]\ns_set_gpr_idx_on 5, gpr_idx(SRC0)\nv_mov_b32 v2, v4\ns_set_gpr_idx_off",
         MissingWait, "v9 used before"),
        ("s_mov_b32 m0, 99\ns_nop 0\ns_movrels_b32 s4, s8", ProtocolError, "no scalar register"),
    ],
)  # fmt: skip
def test_what_goes_wrong(body: str, error: type[EmulatorError], message: str) -> None:
    """An index past the registers, one that is pending, and what the index cannot be used for."""
    with pytest.raises(error, match=message):
        Device("gfx942").load(program(SETUP + body, "gfx942"))["k"].launch(1, 64, [np.zeros(64, np.uint32)])
