"""Programs that are broken on purpose: each is caught, and the message says what to mend; the bases are clean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from programs import program, run

from tilekit.emulator import Device, EmulatorError
from tilekit.emulator.gcn.lint import lint

EXCHANGE = """
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[2:3]
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_xor_b32_e32 v3, 0x100, v1
    ds_read_b32 v4, v3
    s_waitcnt lgkmcnt(0)
    v_add_u32_e32 v4, v4, v2
    global_store_dword v1, v4, s[2:3]
"""
"""128 threads swap with the other wave through LDS."""

TO_LDS = """
    v_lshlrev_b32_e32 v1, 2, v0
    s_nop 0
    v_readfirstlane_b32 s6, v1
    s_mov_b32 s8, s2
    s_and_b32 s9, s3, 0xffff
    s_movk_i32 s10, 0x400
    s_mov_b32 s11, 0x20000
    s_mov_b32 m0, s6
    s_nop 0
    buffer_load_dword v1, s[8:11], 0 offen lds
    s_add_i32 m0, s6, 0x200
    s_nop 0
    buffer_load_dword v1, s[8:11], 0 offen offset:512 lds
    s_waitcnt vmcnt(1)
    s_barrier
    v_xor_b32_e32 v3, 0x100, v1
    ds_read_b32 v4, v3
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_barrier
    ds_read_b32 v5, v3 offset:1024
    s_waitcnt lgkmcnt(0)
    v_add_u32_e32 v4, v4, v5
    global_store_dword v1, v4, s[2:3]
"""
"""Two loads to LDS under way, waited for one by one; the second lies at 0x400 since its offset counts twice."""

MATRIX = """
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[2:3]
    global_load_dword v3, v1, s[2:3] offset:256
    global_load_dword v4, v1, s[2:3] offset:512
    global_load_dword v5, v1, s[2:3] offset:768
    v_accvgpr_write_b32 a0, 0
    v_accvgpr_write_b32 a1, 0
    v_accvgpr_write_b32 a2, 0
    v_accvgpr_write_b32 a3, 0
    s_waitcnt vmcnt(0)
    s_nop 1
    v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]
    s_nop 7
    v_accvgpr_read_b32 v8, a0
    v_accvgpr_read_b32 v9, a1
    v_accvgpr_read_b32 v10, a2
    v_accvgpr_read_b32 v11, a3
    s_nop 1
    global_store_dword v1, v8, s[2:3]
    global_store_dword v1, v9, s[2:3] offset:256
    global_store_dword v1, v10, s[2:3] offset:512
    global_store_dword v1, v11, s[2:3] offset:768
"""

COUNTER = """
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, 1
    global_atomic_add v1, v2, s[2:3]
    s_waitcnt vmcnt(0)
    s_barrier
    global_load_dword v3, v1, s[2:3] sc1
    s_waitcnt vmcnt(0)
"""

LOOP = """
    s_mov_b32 s6, 4
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[2:3]
    s_waitcnt vmcnt(0)
.Lagain:
    ds_write_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_xor_b32_e32 v3, 0x100, v1
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_sub_i32 s6, s6, 1
    s_cmp_lg_u32 s6, 0
    s_cbranch_scc1 .Lagain
    global_store_dword v1, v2, s[2:3]
"""

BASES: dict[str, dict[str, Any]] = {
    "exchange": {"body": EXCHANGE, "block": 128, "lds": 512},
    "to_lds": {"body": TO_LDS, "block": 128, "lds": 2048},
    "matrix": {"body": MATRIX, "block": 64, "lds": 0},
    "counter": {"body": COUNTER, "block": 256, "lds": 0},
    "loop": {"body": LOOP, "block": 128, "lds": 512},
}


@dataclass(frozen=True)
class Broken:
    """A base with something exchanged, and what is said of it."""

    name: str
    base: str
    old: str
    new: str
    says: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


_WAIT = r"missing wait: {0} used before.*\n(.*\n)*.*put s_waitcnt {1}"
BROKEN = [
    Broken(
        "no wait before ds_write",
        "exchange",
        "s_waitcnt vmcnt(0)\n    ds_write",
        "ds_write",
        _WAIT.format("v2", r"vmcnt\(0\)"),
    ),
    Broken(
        "wait too weak",
        "exchange",
        "s_waitcnt vmcnt(0)\n    ds_write",
        "s_waitcnt vmcnt(1)\n    ds_write",
        _WAIT.format("v2", r"vmcnt\(0\)"),
    ),
    Broken(
        "wrong counter",
        "exchange",
        "s_waitcnt vmcnt(0)\n    ds_write",
        "s_waitcnt lgkmcnt(0)\n    ds_write",
        _WAIT.format("v2", r"vmcnt\(0\)"),
    ),
    Broken(
        "no wait before the barrier",
        "exchange",
        "s_waitcnt lgkmcnt(0)\n    s_barrier",
        "s_barrier",
        r"race: LDS(.*\n)*.*s_waitcnt lgkmcnt",
    ),
    Broken("no barrier", "exchange", "s_barrier\n", "", r"race: LDS(.*\n)*.*s_barrier must come between"),
    Broken(
        "barrier before the wait",
        "exchange",
        "s_waitcnt lgkmcnt(0)\n    s_barrier",
        "s_barrier\n    s_waitcnt lgkmcnt(0)",
        r"race: LDS(.*\n)*.*s_waitcnt lgkmcnt",
    ),
    Broken(
        "no wait behind ds_read",
        "exchange",
        "s_waitcnt lgkmcnt(0)\n    v_add",
        "v_add",
        _WAIT.format("v4", r"lgkmcnt\(0\)"),
    ),
    Broken(
        "overwritten while loading",
        "exchange",
        "s_waitcnt vmcnt(0)\n    ds_write",
        "v_mov_b32_e32 v2, 0\n    s_waitcnt vmcnt(0)\n    ds_write",
        _WAIT.format("v2", r"vmcnt\(0\)"),
    ),
    Broken(
        "LDS offset off by a row",
        "exchange",
        "ds_read_b32 v4, v3",
        "ds_read_b32 v4, v3 offset:256",
        r"memory: a read of 4 bytes at 0x200 of LDS: out of bounds.*512 bytes",
    ),
    Broken(
        "LDS write past the end",
        "exchange",
        "ds_write_b32 v1, v2",
        "ds_write_b32 v1, v2 offset:64",
        r"memory: a write of 4 bytes at 0x200 of LDS: out of bounds",
    ),
    Broken(
        "global load past the end",
        "exchange",
        "v2, v1, s[2:3]",
        "v2, v1, s[2:3] offset:1024",
        r"memory: a load of 4 bytes .*out of bounds of args\[0\]",
    ),
    Broken(
        "global store past the end",
        "exchange",
        "global_store_dword v1, v4, s[2:3]",
        "global_store_dword v1, v4, s[2:3] offset:1024",
        r"memory: a store of 4 bytes .*out of bounds",
    ),
    Broken(
        "null pointer",
        "exchange",
        "v_lshlrev_b32_e32 v1, 2, v0",
        "v_lshlrev_b32_e32 v1, 2, v0\n    s_mov_b64 s[2:3], 0",
        r"null pointer",
    ),
    Broken(
        "store through the wrong base",
        "exchange",
        "global_store_dword v1, v4, s[2:3]",
        "s_mov_b32 s3, 1\n    global_store_dword v1, v4, s[2:3]",
        r"memory: a store of 4 bytes .*: no address of global memory",
    ),
    Broken(
        "waves store to one place",
        "exchange",
        "global_store_dword v1, v4, s[2:3]",
        "global_store_dword v3, v2, s[2:3]\n    global_load_dword v9, v1, s[2:3]",
        r"race: args\[0\]",
    ),
    Broken(
        "barrier for one wave only",
        "exchange",
        "s_barrier",
        "v_readfirstlane_b32 s6, v0\n    s_cmp_eq_u32 s6, 0\n    s_cbranch_scc1 .Lskip\n    s_barrier\n.Lskip:",
        r"race: LDS(.*\n)*.*s_barrier must come between",
    ),
    Broken("EXEC left narrowed", "exchange", "v_xor_b32_e32 v3", "s_mov_b64 exec, 0\n    v_xor_b32_e32 v3", "wrong"),
    Broken("never ends", "exchange", "s_barrier", ".Lhere:\n    s_branch .Lhere", r"livelock: waves go round"),
    Broken(
        "polls what is never written",
        "exchange",
        "s_barrier",
        ".Lpoll:\n    global_load_dword v9, v1, s[2:3] offset:256 sc1\n    s_waitcnt vmcnt(0)\n"
        "    v_readfirstlane_b32 s7, v9\n    s_cmp_lg_u32 s7, 77\n    s_cbranch_scc1 .Lpoll",
        r"livelock: waves go round",
    ),
    Broken("branch to nowhere", "exchange", "s_barrier", "s_branch .Lnowhere", r"there is no label '.Lnowhere'"),
    Broken("M0 late", "to_lds", "s_mov_b32 m0, s6\n    s_nop 0\n", "s_mov_b32 m0, s6\n", r"hazard: .*M0 is used"),
    Broken(
        "M0 not advanced",
        "to_lds",
        "s_add_i32 m0, s6, 0x200",
        "s_mov_b32 m0, s6",
        r"uninitialised: LDS byte 0x[0-9a-f]+ is read, and nothing has written it",
    ),
    Broken(
        "word 3 of the descriptor is zero",
        "to_lds",
        "s_mov_b32 s11, 0x20000",
        "s_mov_b32 s11, 0",
        r"word 3 has data format 0",
    ),
    Broken("num_records too small", "to_lds", "s_movk_i32 s10, 0x400", "s_movk_i32 s10, 0x100", "wrong"),
    Broken("first tile not waited for", "to_lds", "s_waitcnt vmcnt(1)\n", "", r"race: LDS(.*\n)*.*s_waitcnt vmcnt"),
    Broken(
        "one load too few waited for",
        "to_lds",
        "s_waitcnt vmcnt(1)",
        "s_waitcnt vmcnt(2)",
        r"race: LDS(.*\n)*.*s_waitcnt vmcnt",
    ),
    Broken(
        "second tile not waited for",
        "to_lds",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "s_waitcnt lgkmcnt(0)",
        r"race: LDS(.*\n)*.*s_waitcnt vmcnt",
    ),
    Broken(
        "no barrier behind the load to LDS",
        "to_lds",
        "s_waitcnt vmcnt(1)\n    s_barrier\n",
        "s_waitcnt vmcnt(1)\n",
        r"race: LDS(.*\n)*.*s_barrier must come between",
    ),
    Broken(
        "load to LDS past its end",
        "to_lds",
        "s_add_i32 m0, s6, 0x200",
        "s_add_i32 m0, s6, 0x700",
        r"memory: a load to LDS of 4 bytes .*out of bounds",
    ),
    Broken("swapped halves", "to_lds", "v_xor_b32_e32 v3, 0x100, v1", "v_xor_b32_e32 v3, 0x80, v1", "wrong"),
    Broken(
        "wait states after MFMA",
        "matrix",
        "s_nop 7\n    v_accvgpr_read",
        "s_nop 3\n    v_accvgpr_read",
        r"hazard: .*a matrix result is read or overwritten: [78] wait states",
    ),
    Broken(
        "no wait states before MFMA",
        "matrix",
        "s_waitcnt vmcnt(0)\n    s_nop 1\n",
        "s_waitcnt vmcnt(0)\n    v_mov_b32_e32 v2, v2\n",
        r"hazard: .*what a vector instruction wrote: 2 wait states",
    ),
    Broken(
        "unwritten accumulator",
        "matrix",
        "    v_accvgpr_write_b32 a2, 0\n",
        "",
        r"uninitialised: a2 is used and nothing has written it",
    ),
    Broken("unwritten source", "matrix", "v[4:5], a[0:3]", "v[6:7], a[0:3]", r"uninitialised: v6 is used"),
    Broken(
        "MFMA before its loads",
        "matrix",
        "s_waitcnt vmcnt(0)\n    s_nop 1",
        "s_nop 1",
        _WAIT.format("v[2-5]", r"vmcnt\([0-3]\)"),
    ),
    Broken(
        "MFMA waits for three loads of four",
        "matrix",
        "s_waitcnt vmcnt(0)\n    s_nop 1",
        "s_waitcnt vmcnt(1)\n    s_nop 1",
        _WAIT.format("v5", r"vmcnt\(0\)"),
    ),
    Broken("swapped k halves", "matrix", "v[2:3], v[4:5]", "v[4:5], v[2:3]", "wrong"),
    Broken(
        "a counter without atomics",
        "counter",
        "global_atomic_add v1, v2, s[2:3]",
        "global_load_dword v4, v1, s[2:3]\n    s_waitcnt vmcnt(0)\n    v_add_u32_e32 v4, 1, v4\n"
        "    global_store_dword v1, v4, s[2:3]",
        "wrong|race",
    ),
    Broken(
        "counter read at once",
        "counter",
        "s_waitcnt vmcnt(0)\n    s_barrier\n    global_load_dword v3, v1, s[2:3] sc1",
        "global_load_dword v3, v1, s[2:3]",
        r"race: args\[0\]",
    ),
    Broken(
        "an atomic that is not aligned",
        "counter",
        "global_atomic_add v1, v2, s[2:3]",
        "global_atomic_add v1, v2, s[2:3] offset:2",
        r"no multiple of its size",
    ),
    Broken(
        "no barrier at the loop's end",
        "loop",
        "s_waitcnt lgkmcnt(0)\n    s_barrier\n    s_sub",
        "s_waitcnt lgkmcnt(0)\n    s_sub",
        r"race: LDS",
    ),
    Broken(
        "no barrier in the loop",
        "loop",
        "s_waitcnt lgkmcnt(0)\n    s_barrier\n    v_xor",
        "s_waitcnt lgkmcnt(0)\n    v_xor",
        r"race: LDS",
    ),
    Broken(
        "read not complete at the loop's end",
        "loop",
        "s_waitcnt lgkmcnt(0)\n    s_barrier\n    s_sub",
        "s_barrier\n    s_sub",
        _WAIT.format("v2", r"lgkmcnt\(0\)"),
    ),
    Broken(
        "a loop that counts the wrong way",
        "loop",
        "s_sub_i32 s6, s6, 1",
        "s_add_i32 s6, s6, 1",
        "step budget",
        {"step_budget": 20000},
    ),
    Broken("trap", "loop", "s_sub_i32 s6, s6, 1", "s_trap 2", r"s_trap"),
    Broken(
        "scratch without any",
        "loop",
        "s_sub_i32 s6, s6, 1",
        "scratch_store_dword off, v1, off\n    s_sub_i32 s6, s6, 1",
        r"scratch: a lane has 0 bytes",
    ),
]


def _memory() -> np.ndarray[Any, Any]:
    return np.arange(1, 257, dtype=np.uint32)


def _launch(body: str, base: dict[str, Any], memory: Any, **options: Any) -> Any:
    device = Device("gfx950")
    kernel = device.load(program(body, "gfx950", lds=base["lds"]))["k"]
    return kernel.launch(1, base["block"], [memory], **options)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_base_is_clean(name: str, schedule: str) -> None:
    """Nothing is said of a program before it is broken."""
    base = BASES[name]
    report = run(base["body"], _memory(), block=base["block"], lds=base["lds"], schedule=schedule)
    assert report.clean, str(report)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_broken(broken: Broken) -> None:
    """What is broken is said, or the result is not the base's where no rule is broken."""
    base = BASES[broken.base]
    assert broken.old in base["body"]
    body = base["body"].replace(broken.old, broken.new, 1)
    right = _memory()
    _launch(base["body"], base, right)
    memory = _memory()
    try:
        report = _launch(body, base, memory, **broken.options)
    except EmulatorError as error:
        said = str(error)
    else:
        said = str(report) if not report.clean else "" if (memory == right).all() else "wrong"
    assert re.search(broken.says, said), said


@pytest.mark.parametrize("broken", [b for b in BROKEN if b.says.startswith("hazard")], ids=str)
def test_lint_says_the_same(broken: Broken) -> None:
    """Wait states are a matter of the text alone."""
    body = BASES[broken.base]["body"].replace(broken.old, broken.new, 1)
    assert {remark.rule for remark in lint(program(body, "gfx950", lds=2048))} == {"hazard"}


def test_there_are_forty() -> None:
    """Forty programs at least."""
    assert len(BROKEN) >= 40


def test_lint_reports_every_line() -> None:
    """Lines that cannot be read, and instructions with wrong operands, are all reported, in the order of lines."""
    text = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\nk:\n s_mov_b32 s0, )\n v_nothing v0\n .nonsense\n s_endpgm\n'
    assert [remark.line for remark in lint(text)] == [3, 4, 5]
