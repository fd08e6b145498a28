"""Two instructions that one does, loads of arguments that one brings, and fragments whose predicate is known."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from tests.assembly.gcn.improving import after
from tilekit.assembly.gcn.argument_loads import with_late_argument_loads, with_wide_argument_loads
from tilekit.assembly.gcn.dead import without_dead
from tilekit.assembly.gcn.folds import with_folds
from tilekit.assembly.gcn.notation import without_guard
from tilekit.assembly.gcn.offsets import with_shifted_offsets
from tilekit.assembly.types import F32, GMEM, PRED, U32, U64
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device

REGISTERS = """
x = vector @0
y = vector @1
s = scalar 2 @2
v = vector
w = vector
p = vector 2
q = vector 2
"""


def folded(text: str) -> list[str]:
    """What is left, without what nothing reads any more."""
    return after(lambda code: without_dead(with_folds(code)), f"{REGISTERS}{text}\nds_write_b32 x, w\ns_endpgm")[:-2]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("v_lshlrev_b32 v, 3, x", "v_lshlrev_b32 w, 4, v", "v_lshlrev_b32 w, 7, x"),
        ("v_lshrrev_b32 v, 30, x", "v_lshrrev_b32 w, 4, v", "v_mov_b32 w, 0"),
        ("v_lshlrev_b32 v, 3, x", "v_add_u32 w, y, v", "v_lshl_add_u32 w, x, 3, y"),
        ("v_add_u32 v, x, y", "v_lshlrev_b32 w, 2, v", "v_add_lshl_u32 w, x, y, 2"),
        ("v_add_u32 v, s[0], y", "v_add_u32 w, x, v", "v_add3_u32 w, s[0], y, x"),
        ("v_add_u32 v, 0x100, x", "v_add_u32 w, 0x200, v", "v_add_u32 w, 0x300, x"),
        ("v_lshlrev_b32 v, 3, x", "v_or_b32 w, y, v", "v_lshl_or_b32 w, x, 3, y"),
        ("v_and_b32 v, 15, x", "v_or_b32 w, y, v", "v_and_or_b32 w, 15, x, y"),
        ("v_or_b32 v, x, y", "v_or_b32 w, 1, v", "v_or3_b32 w, x, y, 1"),
        ("v_lshrrev_b32 v, 6, x", "v_and_b32 w, 15, v", "v_bfe_u32 w, x, 6, 4"),
    ],
)
def test_two_instructions_are_one(first: str, second: str, wanted: str) -> None:
    """Shifts, sums, unions and bit fields."""
    assert folded(f"{first}\n{second}") == [wanted]


@pytest.mark.parametrize(
    "text",
    [
        "v_lshlrev_b32 v, 3, x\nv_add_u32 w, 0x1234, v",  # the long encoding has no literal
        "v_add_u32 v, s[0], x\nv_add_u32 w, s[1], v",  # and reads one scalar
        "v_lshrrev_b32 v, 6, x\nv_and_b32 w, 10, v",  # these bits are no field
        "v_lshrrev_b32 v, 6, x\nv_and_b32 w, -1, v",
        "v_lshlrev_b32 v, 3, x\nv_mov_b32 x, 1\nv_add_u32 w, y, v",
        "v_lshlrev_b32 v, 3, x\nv_add_u32 w, y, v\nds_write_b32 x, v",  # it is there in any case
        "? v_lshlrev_b32 v, 3, x\nmore s_mov_b64 exec, s\nv_add_u32 w, y, v",
        "v_lshlrev_b32 v, 3, x\ntop:\nv_add_u32 w, y, v\ns_cbranch_scc1 top",
    ],
)
def test_what_two_instructions_stay(text: str) -> None:
    """What no encoding holds, what is changed between, and what costs as much."""
    assert folded(text) == [line.removeprefix("? ").removeprefix("more ") for line in text.splitlines()]


@pytest.mark.parametrize(
    ("access", "wanted"),
    [
        ("global_load_dword w, q, off offset:8", "global_load_dword w, x, s offset:8"),
        ("global_store_dword q, w, off", "global_store_dword x, w, s"),
        ("global_atomic_add_x2 q, p, off", "global_atomic_add_x2 x, p, s"),
        ("global_load_lds_dword q, off", "global_load_lds_dword q, off"),
        ("global_load_dword w, p, off", "global_load_dword w, p, off"),
    ],
)
def test_an_address_that_needs_no_sum(access: str, wanted: str) -> None:
    """A pair of scalars and 32 bits of each lane are operands of loads and stores themselves."""
    text = f"v_mov_b32 p[0], x\nv_mov_b32 p[1], 0\nv_lshl_add_u64 q, s, 0, p\n{access}"
    lines = after(with_folds, f"{REGISTERS}{text}\ns_endpgm")
    assert lines[-2].replace("p[0]", "x") == wanted
    unknown = text.replace("p[1], 0", "p[1], y")
    assert after(with_folds, f"{REGISTERS}{unknown}\ns_endpgm")[-2] == access


def test_an_offset_of_64_bits_is_a_shift_in_the_sum() -> None:
    """For sums alone, of which the carry in VCC is no one's; other factors and other readers keep the product."""
    product = "v_mad_u64_u32 p, vcc, x, 8, 0"
    added = "v_lshl_add_u64 q, s, 0, p"
    shifted = "v_lshl_add_u64 q, p, 3, s"
    wanted = ["v_mov_b32 p[0], x", "v_mov_b32 p[1], 0", shifted, shifted, "s_endpgm"]
    assert after(with_shifted_offsets, f"{REGISTERS}{product}\n{added}\n{added}\ns_endpgm") == wanted
    for text in (
        f"{product}\n{added}",
        f"{product.replace('8', '32')}\n{added}\n{added}",
        f"{product}\n{added}\nds_write_b32 x, p[0]",
        f"{product}\n{added}\n{added.replace('0, p', '1, p')}",
        f"{product}\n{added}\n{added.replace('s, 0', 'p, 0')}",
        f"{product}\nv_mov_b32 p[1], 7\n{added}\n{added}",
        f"{product}\n{added}\n{added}\nv_cndmask_b32 w, x, y, vcc\nds_write_b32 x, w",
    ):
        assert after(with_shifted_offsets, f"{REGISTERS}{text}\ns_endpgm")[:-1] == text.splitlines()


def test_a_product_that_one_sum_reads_adds() -> None:
    """Unless VCC is read behind the sum, or the index has changed."""
    text = "v_mad_u64_u32 p, vcc, x, 8, 0\nv_lshl_add_u64 q, s, 0, p\nds_write_b64 x, q"
    assert folded(text) == ["v_mad_u64_u32 q, vcc, x, 8, s", "ds_write_b64 x, q"]
    assert folded(text.replace("\nv_lshl", "\nv_mov_b32 x, 1\nv_lshl"))[0] == "v_mad_u64_u32 p, vcc, x, 8, 0"
    carried = f"{text}\nv_cndmask_b32 w, x, y, vcc\nds_write_b32 x, w"
    assert folded(carried)[0] == "v_mad_u64_u32 p, vcc, x, 8, 0"


def test_neighbouring_arguments_come_at_once() -> None:
    """As many words as a load has; what lies apart, is read between or is written twice comes by itself."""
    registers = "b = scalar 2 @0\n" + "\n".join(f"{n} = scalar 2" for n in "cdefg") + "\ni = scalar\nj = scalar\n"
    loads = "s_load_dwordx2 c, b, 0x0\ns_load_dwordx2 d, b, 0x8\ns_load_dword i, b, 0x10\ns_load_dword j, b, 0x14\n"
    lines = after(with_wide_argument_loads, f"{registers}{loads}s_add_u32 i, +i, j\ns_mov_b64 e, d\ns_endpgm")
    assert lines[0] == "s_load_dwordx4 arguments, b, 0x0"
    assert lines[-2] == "s_mov_b64 e, arguments[2:3]"
    assert sum(line.startswith("s_load") for line in lines) == 3, "i is written again"
    apart = loads.replace("0x8", "0x28")
    assert "s_load_dwordx2 arguments, b, 0x10" in after(with_wide_argument_loads, f"{registers}{apart}s_endpgm")


def test_arguments_are_loaded_where_they_are_read() -> None:
    """Once a block, and in none that does not read them; those of a loop inside of another, where they were."""
    registers = "b = scalar 2 @0\n" + "\n".join(f"{n} = scalar" for n in "cdefgh") + "\n"
    text = f"""{registers}
        s_load_dword c, b, 0x0
        s_load_dword d, b, 0x4
        s_load_dword h, b, 0x8
        outer:
        s_mov_b32 e, 0
        inner:
        s_add_u32 e, +e, d
        s_cbranch_scc0 inner
        s_add_u32 e, +e, c
        s_add_u32 f, c, d
        s_cbranch_scc1 outer
        s_mov_b32 g, c
        s_add_u32 h, +h, c
        s_endpgm"""
    expected = """s_load_dword d, b, 0x4|s_load_dword h, b, 0x8|outer:|s_mov_b32 e, 0|inner:|s_add_u32 e, e, d
        s_cbranch_scc0 inner|s_load_dword c, b, 0x0|s_add_u32 e, e, c|s_add_u32 f, c, d|s_cbranch_scc1 outer
        s_load_dword c, b, 0x0|s_mov_b32 g, c|s_add_u32 h, h, c|s_endpgm"""
    assert after(with_late_argument_loads, text) == [line.strip() for line in re.split(r"[|\n]", expected)]


def test_arguments_of_an_inner_loop_are_loaded_before_it() -> None:
    """Once for all of its blocks, and in each block outside; unless lanes jump into it."""
    registers = "b = scalar 2 @0\n" + "\n".join(f"{n} = scalar" for n in "cdef") + "\n"
    text = f"""{registers}
        s_load_dword c, b, 0x0
        s_load_dword d, b, 0x4
        outer:
        s_mov_b32 e, d
        inner:
        s_add_u32 e, +e, d
        s_cbranch_scc1 past
        s_add_u32 e, +e, c
        past:
        s_add_u32 e, +e, d
        s_cbranch_scc0 inner
        s_cbranch_scc1 outer
        s_mov_b32 f, c
        s_endpgm"""
    expected = """outer:|s_load_dword d, b, 0x4|s_mov_b32 e, d|s_load_dword d, b, 0x4|s_load_dword c, b, 0x0|inner:
        s_add_u32 e, e, d|s_cbranch_scc1 past|s_add_u32 e, e, c|past:|s_add_u32 e, e, d|s_cbranch_scc0 inner
        s_cbranch_scc1 outer|s_load_dword c, b, 0x0|s_mov_b32 f, c|s_endpgm"""
    before_loops = partial(with_late_argument_loads, before_loops=True)
    assert after(before_loops, text) == [line.strip() for line in re.split(r"[|\n]", expected)]
    for way_in in ("s_cbranch_scc1 past", "s_cbranch_scc0 inner"):
        entered = text.replace("outer:", f"{way_in}\nouter:")
        assert after(before_loops, entered) == after(with_late_argument_loads, entered)
    rotated = text.replace("e, d\n        inner:", "e, d\n        s_branch past\n        inner:")
    assert after(before_loops, rotated) == after(with_late_argument_loads, rotated)


@pytest.mark.parametrize("nested", [False, True], ids=["a loop", "loops in a loop"])
def test_many_arguments_have_room(nested: bool) -> None:
    """More than there are scalar registers, each read in a loop: what they come to is right all the same."""
    w = Writer("many", target="gfx942", threads=64)
    values = [w.parameter(f"v{index}", U32) for index in range(120)]
    out, total, turns = w.parameter("out", GMEM), w.variable(U32, 0, "total"), w.parameter("turns", U32)
    for _ in w.range(turns, name="turn"):
        for some in (values[:60], values[60:]):
            for _ in w.range(turns, name="inner") if nested else range(3):
                for value in some:
                    total.assign(total + value)
    with w.when(w.thread() == 0):
        w.isa.memory.store_global_b32(address=out, value=total)
    device, numbers = Device("gfx942", seed=0), np.arange(120, dtype=np.uint32) ** 2
    buffer = device.buffer(np.zeros(1, np.uint32))
    report = device.load(w.text())["many"].launch(grid=1, block=64, args=[*numbers, buffer, np.uint32(3)])
    assert report.clean
    assert buffer.read()[0] == 9 * numbers.sum()


def test_a_guard_that_is_known_costs_nothing() -> None:
    """Lines for all lanes, or for none; where the lines have a label, none is left out."""
    lines = ["v_mov_b32 ${v}, 0", "s_and_saveexec_b64 ${l}, ${p}", "ds_read_b32 ${v}, ${a}", "s_mov_b64 exec, ${l}"]
    assert without_guard(lines, {"p": True}) == [lines[0], "", lines[2], ""]
    assert without_guard(lines, {"p": False}) == [lines[0], "", "", ""]
    assert without_guard(lines, {"q": True}) == lines
    looped = [*lines[:2], "top:", *lines[2:]]
    assert without_guard(looped, {"p": False}) == looped


def test_stores_with_a_known_predicate() -> None:
    """The one that holds stores without EXEC, and the other not at all."""
    w = Writer("known", target="gfx950", threads=64)
    out, thread = w.parameter("out", GMEM), w.thread()
    place = (out + w.widen_multiply(thread, 4)).retyped(GMEM)
    for value, valid in ((1.0, 1), (2.0, 0)):
        w.isa.memory.store_global_f32(address=place, value=w.constant(F32, value), valid=w.constant(PRED, valid))
    text = w.text()
    assert "exec" not in text
    assert len(re.findall("global_store", text)) == 1
    device = Device("gfx950")
    found = device.buffer(np.zeros(64, np.float32))
    device.load(text)["known"].launch(grid=1, block=64, args=[found])
    assert (found.read() == 1).all()


def test_arguments_side_by_side_where_there_is_no_room() -> None:
    """Wide loads hold what is no longer read: where that is too much, each argument comes by itself."""
    w = Writer("many", target="gfx950", threads=64)
    early = [w.parameter(f"early{i}", U64) for i in range(40)]
    total = sum(early[1:], early[0])
    late = [w.parameter(f"late{i}", U32) for i in range(50)]
    for value in (*late, *late):
        total = total + w.widen_multiply(value, 3)
    for value in early[::4]:
        total = total + value
    out = w.parameter("out", GMEM)
    w.isa.memory.store_release_gpu(address=out, value=w.isa.convert.low_word(wide=total))
    device = Device("gfx950")
    text = w.text()
    assert "s_load_dwordx8" not in text
    found = device.buffer(np.zeros(1, np.uint32))
    arguments = [*(np.uint64(i) for i in range(40)), *(np.uint32(i) for i in range(50)), found]
    device.load(text)["many"].launch(grid=1, block=64, args=arguments)
    assert found.read()[0] == sum(range(40)) + 6 * sum(range(50)) + sum(range(0, 40, 4))
