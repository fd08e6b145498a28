"""Copies are read through, end where they began where they can, and what nothing reads is left out."""

from __future__ import annotations

from tests.assembly.gcn.improving import after
from tests.assembly.gcn.notation import read
from tests.assembly.gcn.verification import verify
from tilekit.assembly.gcn.copies import with_copies_read_through
from tilekit.assembly.gcn.dead import without_dead
from tilekit.assembly.gcn.finish import finish

REGISTERS = """
x = vector @0
s = scalar @2
v = vector
w = vector
m = scalar 2
"""


def lines_of(text: str) -> list[str]:
    """The finished kernel; its allocation keeps every value."""
    code, _ = read(text)
    finished = finish(code, chip="gfx950")
    assert verify(code, finished.allocation) == []
    return [line for line, _ in finished.lines]


def test_what_reads_a_copy_reads_its_source() -> None:
    """While the source is unchanged; a scalar where the encoding takes one."""
    text = f"""{REGISTERS}
        v_mov_b32 v, s
        v_add_u32 w, v, x
        global_store_dword w, v, m
        s_mov_b32 s, 1
        v_add_u32 w, v, x
        s_endpgm"""
    lines = after(with_copies_read_through, text)
    assert lines[1] == "v_add_u32 w, s, x"
    assert lines[2] == "global_store_dword w, v, m", "a store has no scalars for data"
    assert lines[4] == "v_add_u32 w, v, x"


def test_a_copy_of_active_lanes_is_none_for_others() -> None:
    """What reads masked lanes, as v_readlane may, reads the copy."""
    text = f"""{REGISTERS}
        ? v_mov_b32 v, x
        ? v_add_u32 w, v, v
        v_readlane_b32 s, v, 3
        more s_mov_b64 exec, m
        v_add_u32 w, v, v
        s_endpgm"""
    lines = after(with_copies_read_through, text)
    assert lines[1:3] == ["v_add_u32 w, x, x", "v_readlane_b32 s, v, 3"]
    assert lines[4] == "v_add_u32 w, v, v"


def test_a_copy_whose_source_dies_is_none() -> None:
    """Both have one place, and no instruction is left of it."""
    lines = lines_of(
        f"{REGISTERS}v_add_u32 v, x, x\nv_mov_b32 w, v\nv_add_u32 w, +w, w\nglobal_store_dword w, w, m\ns_endpgm"
    )
    assert not any(line.startswith("v_mov") for line in lines)


def test_a_copy_whose_source_lives_stays() -> None:
    """The source is read behind what changes the copy."""
    lines = lines_of(f"{REGISTERS}v_mov_b32 v, x\nv_add_u32 v, +v, v\nglobal_store_dword x, v, m\ns_endpgm")
    assert any(line.startswith("v_mov") for line in lines)


def test_what_nothing_reads_is_left_out() -> None:
    """A chain and a loop's own counter; loads, stores, waits and what changes EXEC stay."""
    text = f"""{REGISTERS}
        v_add_u32 v, x, x
        v_add_u32 w, v, v
        s_cmp_lt_u32 s, 3
        top:
        v_add_u32 v, +v, x
        global_load_dword w, x, m
        s_cmp_lt_u32 s, 4
        s_cbranch_scc1 top
        s_mov_b32 m0, s
        fewer s_and_saveexec_b64 m, vcc
        s_endpgm"""
    lines = after(without_dead, text)
    assert lines == [
        "top:",
        "global_load_dword w, x, m",
        "s_cmp_lt_u32 s, 4",
        "s_cbranch_scc1 top",
        "s_mov_b32 m0, s",
        "s_and_saveexec_b64 m, vcc",
        "s_endpgm",
    ]


def test_flags_that_are_read_keep_what_sets_them() -> None:
    """A sum of which the carry alone is read, in SCC and in VCC."""
    text = f"""{REGISTERS}
        s_add_u32 s, s, s
        s_cselect_b32 s, 1, 2
        v_mov_b32 v, s
        v_mad_u64_u32 m, vcc, x, x, 0
        v_cndmask_b32 w, x, v, vcc
        global_store_dword x, w, m
        s_endpgm"""
    assert len(after(without_dead, text)) == 7


def test_a_write_of_some_lanes_ends_nothing() -> None:
    """What other lanes had before it is read behind it."""
    text = f"{REGISTERS}v_add_u32 v, x, x\n? v_mov_b32 v, 1\nglobal_store_dword x, v, m\ns_endpgm"
    assert len(after(without_dead, text)) == 4
    assert len(after(without_dead, text.replace("? ", ""))) == 3
