"""Where ``s_waitcnt`` is put, and what it counts down to."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from tests.assembly.gcn.launching import launch, module
from tests.assembly.gcn.notation import read
from tilekit.assembly.gcn.code import Instruction, Label
from tilekit.assembly.gcn.finish import finish

REGISTERS = """
p = scalar 2 @2
q = scalar 2
i = scalar
a = vector @0
x = vector
y = vector
z = vector
t = vector 4
"""


def waits(text: str) -> str:
    """The kernel's finished lines, without wait states."""
    code, _ = read(REGISTERS + textwrap.dedent(text))
    lines = [line for line, _ in finish(code, chip="gfx950").lines if not line.startswith("s_nop")]
    return "\n" + "\n".join(line if line.endswith(":") else f"  {line}" for line in lines) + "\n"


def test_a_load_is_waited_for_where_it_is_used() -> None:
    """Not where it is issued, and the youngest may stay outstanding."""
    assert (
        waits("""
        global_load_dword x, a, p
        global_load_dword y, a, p offset:4
        v_mov_b32_e32 z, 0
        v_add_u32_e32 z, z, x
        v_add_u32_e32 z, z, y
        s_endpgm
    """)
        == """
  global_load_dword v1, v0, s[2:3]
  global_load_dword v0, v0, s[2:3] offset:4
  v_mov_b32_e32 v2, 0
  s_waitcnt vmcnt(1)
  v_add_u32_e32 v2, v2, v1
  s_waitcnt vmcnt(0)
  v_add_u32_e32 v2, v2, v0
  s_endpgm
"""
    )


def test_stores_count_and_need_no_wait_themselves() -> None:
    """A store raises vmcnt in order with loads; its data may be overwritten at once, and nothing waits at the end."""
    assert (
        waits("""
        global_load_dword x, a, p
        v_mov_b32_e32 y, 0
        global_store_dword a, y, p
        v_mov_b32_e32 y, 1
        global_store_dword a, y, p
        global_store_dword a, x, p
        s_endpgm
    """)
        == """
  global_load_dword v1, v0, s[2:3]
  v_mov_b32_e32 v2, 0
  global_store_dword v0, v2, s[2:3]
  v_mov_b32_e32 v2, 1
  global_store_dword v0, v2, s[2:3]
  s_waitcnt vmcnt(2)
  global_store_dword v0, v1, s[2:3]
  s_endpgm
"""
    )


def test_overwriting_what_is_to_be_loaded_waits_unless_a_load_in_order_does() -> None:
    """A dead load's register is waited for before it is overwritten; the next load of its counter follows it."""
    assert (
        waits("""
        global_load_dword x, a, p
        global_load_dword x, a, p offset:4
        ds_read_b32 x, a
        v_mov_b32_e32 x, 0
        global_store_dword a, x, p
        s_endpgm
    """)
        == """
  global_load_dword v1, v0, s[2:3]
  global_load_dword v1, v0, s[2:3] offset:4
  s_waitcnt vmcnt(0)
  ds_read_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  v_mov_b32_e32 v1, 0
  global_store_dword v0, v1, s[2:3]
  s_endpgm
"""
    )


def test_lds_is_in_order_and_both_counters_share_a_wait() -> None:
    """One line where two counters are waited for at one place."""
    assert (
        waits("""
        ds_read_b32 x, a
        ds_read_b128 t, a offset:16
        global_load_dword z, a, p
        v_add_u32_e32 y, 1, x
        v_add_u32_e32 y, z, t[3]
        s_endpgm
    """)
        == """
  ds_read_b32 v1, v0
  ds_read_b128 v[2:5], v0 offset:16
  global_load_dword v0, v0, s[2:3]
  s_waitcnt lgkmcnt(1)
  v_add_u32_e32 v1, 1, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_add_u32_e32 v1, v0, v5
  s_endpgm
"""
    )


def test_scalar_loads_come_in_any_order() -> None:
    """A scalar load, and LDS beside one, is waited for with 0."""
    assert (
        waits("""
        ds_read_b32 x, a
        s_load_dwordx2 q, p, 0x0
        ds_read_b32 y, a offset:4
        v_add_u32_e32 z, 1, x
        v_add_u32_e32 z, q[0], y
        s_endpgm
    """)
        == """
  ds_read_b32 v1, v0
  s_load_dwordx2 s[0:1], s[2:3], 0x0
  ds_read_b32 v0, v0 offset:4
  s_waitcnt lgkmcnt(0)
  v_add_u32_e32 v1, 1, v1
  v_add_u32_e32 v1, s0, v0
  s_endpgm
"""
    )


def test_the_way_with_fewest_operations_behind_a_load_decides() -> None:
    """Where two ways meet, the count is that of the way on which fewer operations follow."""
    assert (
        waits("""
        global_load_dword x, a, p
        s_cbranch_scc1 few
        global_store_dword a, a, p
        global_store_dword a, a, p
        few:
        global_store_dword a, a, p
        v_add_u32_e32 y, x, x
        s_endpgm
    """)
        == """
  global_load_dword v1, v0, s[2:3]
  s_cbranch_scc1 few
  global_store_dword v0, v0, s[2:3]
  global_store_dword v0, v0, s[2:3]
few:
  global_store_dword v0, v0, s[2:3]
  s_waitcnt vmcnt(1)
  v_add_u32_e32 v0, v1, v1
  s_endpgm
"""
    )


def test_a_load_of_the_last_turn_is_waited_for_in_the_next() -> None:
    """Round a loop's back edge: the prefetch of one turn is used in the next, with one load behind it."""
    assert (
        waits("""
        global_load_dword x, a, p
        top:
        v_mov_b32_e32 y, 0
        global_load_dword z, a, p
        v_add_u32_e32 y, y, x
        global_load_dword x, a, p
        v_add_u32_e32 y, y, z
        s_cbranch_scc1 top
        s_endpgm
    """)
        == """
  global_load_dword v1, v0, s[2:3]
top:
  v_mov_b32_e32 v2, 0
  global_load_dword v3, v0, s[2:3]
  s_waitcnt vmcnt(1)
  v_add_u32_e32 v2, v2, v1
  global_load_dword v1, v0, s[2:3]
  s_waitcnt vmcnt(1)
  v_add_u32_e32 v2, v2, v3
  s_cbranch_scc1 top
  s_endpgm
"""
    )


@pytest.mark.parametrize(("loads", "first"), [(62, 61), (63, 62), (64, 62), (200, 62)])
def test_a_count_never_asks_for_more_than_the_field_can_say(loads: int, first: int) -> None:
    """With more operations behind it than the field counts, a wait is for 62: 63 would be none at all."""
    body = "global_load_dword x, a, p\n" + "global_store_dword a, a, p\n" * (loads - 1) + "v_add_u32_e32 y, x, x"
    assert f"s_waitcnt vmcnt({first})" in waits(body + "\ns_endpgm")
    reads = "ds_read_b32 x, a\n" + "ds_write_b32 a, a\n" * (loads - 1) + "v_add_u32_e32 y, x, x"
    assert f"s_waitcnt lgkmcnt({min(first, 14)})" in waits(reads + "\ns_endpgm")


def test_groups_leave_the_youngest_outstanding() -> None:
    """`wait n` counts the operations behind the group that must be complete, those of no group, too."""
    assert (
        waits("""
        s_mov_b32 m0, 0
        global_load_lds_dword a, p
        global_load_lds_dword a, p
        commit
        global_load_lds_dword a, p
        commit
        global_store_dword a, a, p
        wait 1
        waits lgkmcnt : s_barrier
        wait 0
        wait 0
        wait all
        s_endpgm
    """)
        == """
  s_mov_b32 m0, 0
  global_load_lds_dword v0, s[2:3]
  global_load_lds_dword v0, s[2:3]
  global_load_lds_dword v0, s[2:3]
  global_store_dword v0, v0, s[2:3]
  s_waitcnt vmcnt(2)
  s_barrier
  s_waitcnt vmcnt(0)
  s_endpgm
"""
    )


def test_a_group_of_an_earlier_turn_is_counted_round_the_loop() -> None:
    """A ring with two groups in flight: in the loop each wait leaves one group of two loads, whatever came before."""
    found = waits("""
        global_load_lds_dword a, p
        global_load_lds_dword a, p
        commit
        top:
        global_load_lds_dword a, p
        global_load_lds_dword a, p
        commit
        wait 1
        s_barrier
        s_cbranch_scc1 top
        wait 0
        s_endpgm
    """)
    assert [line.strip() for line in found.splitlines() if "wait" in line] == [
        "s_waitcnt vmcnt(2)",
        "s_waitcnt vmcnt(0)",
    ]


def test_a_group_that_one_way_does_not_have_asks_nothing_there() -> None:
    """`wait 1` with one group on every way is nothing; with two on one way it counts what followed there."""
    assert "waitcnt" not in waits("global_load_lds_dword a, p\ncommit\nwait 1\ns_endpgm")
    assert "s_waitcnt vmcnt(1)" in waits("""
        global_load_lds_dword a, p
        commit
        s_cbranch_scc1 one
        global_load_lds_dword a, p
        commit
        one:
        wait 1
        s_endpgm
    """)


def test_what_is_implied_is_left_out() -> None:
    """Nothing is waited for twice, nor where nothing can be outstanding."""
    found = waits("""
        wait all
        global_load_dword x, a, p
        global_load_dword y, a, p
        wait all
        v_add_u32_e32 z, x, y
        waits lgkmcnt vmcnt : s_barrier
        s_endpgm
    """)
    assert found.count("s_waitcnt") == 1


def test_a_barrier_may_ask_for_counters() -> None:
    """`Instruction.waits`: what other waves are to see is complete before the barrier."""
    assert "s_waitcnt lgkmcnt(0)\n  s_barrier" in waits("ds_write_b32 a, a\nwaits lgkmcnt : s_barrier\ns_endpgm")
    assert "s_waitcnt" not in waits("ds_write_b32 a, a\ns_barrier\ns_endpgm")


def test_a_wait_before_a_label_is_for_those_who_come_from_above() -> None:
    """An asked-for wait stays on its own side of a label."""
    assert "s_waitcnt vmcnt(0)\ntop:" in waits(
        "global_load_dword x, a, p\nwait all\ntop:\nv_add_u32_e32 y, 1, x\ns_endpgm"
    )


def test_what_is_put_in_has_an_origin() -> None:
    """A wait belongs to the Python that asked for it, else to that of the instruction that needs it."""
    code, _ = read(
        REGISTERS + "global_load_dword x, a, p\nwait all\nglobal_load_dword x, a, p\nv_cmp_lt_u32 vcc, x\ns_endpgm"
    )
    finished = finish(code, chip="gfx950")
    origins = [str(i.origin) for text, i in finished.lines if i is not None and "s_waitcnt" in text]
    assert origins == ["case.py:10 (Test.case)", "case.py:12 (Test.case)"]
    assert finished.counts.waits == 2


def test_a_ring_of_loads_to_lds_runs() -> None:
    """Two stages of LDS, one filled while the other is read: right on the slowest memory, with one load in flight."""
    turns = 6
    code, _ = read(f"""
        arguments = scalar 2 @0
        addresses = scalar 4
        tid = vector @0
        i = scalar
        m = scalar
        from = vector
        to = vector
        own = vector
        word = vector
        sum = vector
        s_load_dwordx4 addresses, arguments, 0x0
        v_lshlrev_b32_e32 from, 2, tid
        v_lshlrev_b32_e32 own, 2, tid
        v_lshlrev_b32_e32 to, 2, tid
        v_mov_b32_e32 sum, 0
        s_mov_b32 i, 0
        s_mov_b32 m, 0
        s_mov_b32 m0, m
        global_load_lds_dword from, addresses[0:2]
        commit
        v_add_u32_e32 from, 0x100, from
        top:
        s_xor_b32 m, 0x100, m
        s_mov_b32 m0, m
        global_load_lds_dword from, addresses[0:2]
        commit
        v_add_u32_e32 from, 0x100, from
        wait 1
        s_barrier
        ds_read_b32 word, own
        v_xor_b32_e32 own, 0x100, own
        v_add_u32_e32 sum, sum, word
        s_barrier
        s_add_u32 i, 1, i
        s_cmp_lt_u32 i, {turns}
        s_cbranch_scc1 top
        global_store_dword to, sum, addresses[2:4]
        s_endpgm
    """)
    finished = finish(code, chip="gfx950")
    lines = [text for text, _ in finished.lines]
    inner = [text for text in lines[lines.index("top:") :] if "vmcnt" in text]
    assert inner == ["s_waitcnt vmcnt(1)"]
    values = np.random.default_rng(5).integers(0, 1 << 20, (turns + 1) * 64, np.uint32)
    out = np.zeros(64, np.uint32)
    text = module(finished, "gfx950", lds=512)
    assert not launch(text, "gfx950", [values, out]).findings
    assert (out == values.reshape(-1, 64)[:turns].sum(0)).all()


def test_labels_are_lines_of_no_instruction() -> None:
    """Every other line has an instruction with its text's origin, depth and role."""
    code, _ = read(REGISTERS + "global_load_dword x, a, p\ntop:\nv_add_u32_e32 y, 1, x\ns_cbranch_scc1 top\ns_endpgm")
    for text, instruction in finish(code, chip="gfx942").lines:
        assert (instruction is None) == text.endswith(":")
    assert any(isinstance(item, Label) for item in code.items)
    assert isinstance(code.items[0], Instruction)
