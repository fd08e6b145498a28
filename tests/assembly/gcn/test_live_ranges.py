"""Control flow, and where each register's place is taken."""

from __future__ import annotations

import pytest

from tests.assembly.gcn.notation import read
from tilekit.assembly.errors import TraceError
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.liveness import live_ranges


def ranges(text: str, name: str) -> list[tuple[int, int]]:
    """The slots of one register; item n reads in slot 2 n and writes in slot 2 n + 1."""
    code, registers = read(text)
    return live_ranges(code, blocks_of(code))[registers[name]]


def test_blocks_follow_branches_and_labels() -> None:
    """A block ends at a branch and before a label; only a conditional branch falls through."""
    code, _ = read("""
        s_nop 0
        top:
        s_nop 0
        s_cbranch_scc1 top
        s_branch end
        s_nop 0
        end:
        s_endpgm
    """)
    blocks = blocks_of(code)
    assert [(b.start, b.end) for b in blocks] == [(0, 1), (1, 4), (4, 5), (5, 6), (6, 8)]
    assert [b.successors for b in blocks] == [[1], [1, 2], [4], [4], []]
    assert [b.predecessors for b in blocks] == [[], [0, 1], [1], [], [2, 3]]


@pytest.mark.parametrize(("text", "said"), [("s_branch there", "'there', which nothing places"), ("a:\na:", "twice")])
def test_labels_are_placed_once(text: str, said: str) -> None:
    """A branch to nowhere and a label placed twice are errors."""
    code, _ = read(text)
    with pytest.raises(TraceError, match=said):
        blocks_of(code)


def test_a_value_lives_from_its_write_to_its_last_read() -> None:
    """A result takes its place as the instruction writes, and gives it up as the last one reads."""
    text = """
        x = vector
        y = vector
        v_mov_b32_e32 x, 0
        s_nop 0
        v_add_u32_e32 y, x, x
        s_endpgm
    """
    assert ranges(text, "x") == [(1, 4)]
    assert ranges(text, "y") == [(5, 5)]


def test_a_range_has_a_hole_where_the_value_is_not_needed() -> None:
    """Between the last read of one value and the write of the next, the place is free."""
    text = """
        x = vector
        v_mov_b32_e32 x, 0
        global_store_dword x, x, off
        s_nop 0
        v_mov_b32_e32 x, 1
        global_store_dword x, x, off
        s_endpgm
    """
    assert ranges(text, "x") == [(1, 2), (7, 8)]


def test_a_tile_written_word_by_word_lives_from_its_first_word() -> None:
    """Words that are not yet written do not make a tile live from the entry, in a loop neither."""
    text = """
        t = vector 4
        a = vector
        top:
        s_nop 0
        v_mov_b32_e32 t[0], 0
        v_mov_b32_e32 t[1], 0
        v_mov_b32_e32 t[2], 0
        v_mov_b32_e32 t[3], 0
        ds_write_b128 a, t
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text, "t") == [(5, 12)]


def test_what_a_loop_reads_lives_through_all_of_it() -> None:
    """A value from before a loop is needed until the loop is left, however early it is read."""
    text = """
        x = vector
        y = vector
        v_mov_b32_e32 x, 0
        top:
        v_mov_b32_e32 y, x
        s_nop 0
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text, "x") == [(1, 9)]


def test_several_words_take_no_place_of_what_they_are_made_of() -> None:
    """A result of several words is there from where its operands are read."""
    text = """
        p = vector 2
        a = vector
        v_mov_b32_e32 a, 0
        v_mad_u64_u32 p, vcc, a, a, 0
        global_store_dwordx2 a, p, off
        s_endpgm
    """
    assert ranges(text, "p") == [(2, 4)]


def test_what_masked_lanes_hold_lives_on_through_a_partial_write() -> None:
    """After lanes have come back, the others' old value is read: it must not be lost in between."""
    text = """
        x = vector
        m = scalar 2
        s = scalar 2
        v_mov_b32_e32 x, 0
        fewer s_and_saveexec_b64 s, m
        ? v_mov_b32_e32 x, 1
        more s_mov_b64 exec, s
        global_store_dword x, x, off
        s_endpgm
    """
    assert ranges(text, "x") == [(1, 8)]


@pytest.mark.parametrize("change", ["fewer", "any"])
def test_a_temporary_of_parted_lanes_is_free_outside(change: str) -> None:
    """What is made and used between two changes of EXEC is needed there alone, in a loop, too."""
    text = f"""
        t = vector
        m = scalar 2
        s = scalar 2
        top:
        {change} s_and_saveexec_b64 s, m
        ? v_mov_b32_e32 t, 1
        ? global_store_dword t, t, off
        any s_mov_b64 exec, s
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text, "t") == [(5, 6)]


def test_a_temporary_of_parted_lanes_lives_across_an_inner_region_and_no_further() -> None:
    """Lanes that an inner region gives back are those it took: none comes that another turn of the loop had written."""
    text = """
        t = vector
        m = scalar 2
        s = scalar 2
        u = scalar 2
        top:
        fewer s_and_saveexec_b64 s, m
        ? v_mov_b32_e32 t, 1
        {} s_and_saveexec_b64 u, m
        ? global_store_dword t, t, off
        {} s_mov_b64 exec, u
        ? global_store_dword t, t, off
        more s_mov_b64 exec, s
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text.format("fewer", "more"), "t") == [(5, 12)]
    assert ranges(text.format("any", "any"), "t") == [(0, 17)]
    written_otherwise = text.format("fewer", "more").replace("top:", "s_mov_b64 u, m\n        top:")
    assert ranges(written_otherwise, "t") == [(2, 19)]  # u need not be what EXEC was


def test_a_temporary_of_parted_lanes_lives_across_an_inner_loop_and_no_further() -> None:
    """So it is where lanes leave an inner loop one by one."""
    text = """
        t = vector
        m = scalar 2
        s = scalar 2
        u = scalar 2
        top:
        fewer s_and_saveexec_b64 s, m
        ? v_mov_b32_e32 t, 1
        s_mov_b64 u, exec
        inner:
        fewer s_and_b64 exec, exec, m
        s_cbranch_execnz inner
        more s_mov_b64 exec, u
        ? global_store_dword t, t, off
        more s_mov_b64 exec, s
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text, "t") == [(5, 16)]


def test_what_lanes_need_after_a_loop_that_they_leave_one_by_one_stays() -> None:
    """A lane that has left keeps its value while the others go on, also where they write before they read."""
    text = """
        x = vector
        m = scalar 2
        s = scalar 2
        s_mov_b64 s, exec
        top:
        ? v_mov_b32_e32 x, 1
        s_nop 0
        fewer s_and_b64 exec, exec, m
        s_cbranch_execnz top
        more s_mov_b64 exec, s
        global_store_dword x, x, off
        s_endpgm
    """
    assert ranges(text, "x") == [(2, 14)]


def test_a_scalar_write_always_ends_the_old_value() -> None:
    """EXEC does not mask what is written to scalars."""
    text = """
        x = scalar
        y = vector
        m = vector
        s_mov_b32 x, 0
        top:
        ? v_readfirstlane_b32 x, m
        v_mov_b32_e32 y, x
        s_cbranch_scc1 top
        s_endpgm
    """
    assert ranges(text, "x") == [(1, 1), (5, 6)]


def test_a_register_that_the_hardware_fills_is_taken_from_the_entry() -> None:
    """A fixed register has its value at the start; what nothing writes needs a place only as it is read."""
    text = """
        f = vector @0
        n = vector
        x = vector
        s_nop 0
        v_add_u32_e32 x, f, n
        s_endpgm
    """
    assert ranges(text, "f") == [(0, 2)]
    assert ranges(text, "n") == [(2, 2)]


def test_two_ways_need_a_value_of_one_of_them_only_there() -> None:
    """A register that only one branch writes is free in the other, though what follows reads it."""
    text = """
        x = vector
        s_cbranch_scc0 other
        v_mov_b32_e32 x, 0
        s_branch end
        other:
        s_nop 0
        end:
        global_store_dword x, x, off
        s_endpgm
    """
    assert ranges(text, "x") == [(3, 5), (10, 12)]
