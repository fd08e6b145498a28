"""Addresses in the text: tables, variables, calls, jumps, and the same of a C compiler's code."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, GcnSyntaxError, MemoryFault, ProtocolError, UnsupportedInstruction

sys.path.insert(0, str(Path(__file__).parents[1]))

TABLE = """
    s_getpc_b64 s[4:5]
    s_add_u32 s4, s4, table@rel32@lo+8
    s_addc_u32 s5, s5, table@rel32@hi+16
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[4:5]
    s_load_dword s6, s[4:5], 0x8
    s_getpc_b64 s[8:9]
    s_add_u32 s8, s8, sums@gotpcrel32@lo+4
    s_addc_u32 s9, s9, sums@gotpcrel32@hi+12
    s_load_dwordx2 s[8:9], s[8:9], 0x0
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_add_u32_e32 v2, s6, v2
    global_store_dword v1, v2, s[8:9]
    s_waitcnt vmcnt(0)
    global_load_dword v3, v1, s[8:9]
    s_waitcnt vmcnt(0)
    global_store_dword v1, v3, s[2:3]
"""
DATA = """
.section .rodata.tables,"a",@progbits
.p2align 4
table:
  .long 7
  .long 1+1, 0x10
  .short 3, 0
  .byte 4, 0, 0, 0
  .ascii "A\\000\\x00\\0"
  .zero 4
  .fill 58, 4, 5
.comm sums,256,4
"""


def test_tables_and_variables() -> None:
    """Constants are read through the program counter, variables through the table of addresses."""
    memory = np.zeros(64, np.uint32)
    report = Device("gfx950").load(program(TABLE, "gfx950") + DATA)["k"].launch(1, 64, [memory])
    assert report.clean
    assert (memory == np.array([2, 16, 3, 4, 65, 0] + [5] * 58, np.uint32) + 3).all()


def test_a_table_is_read_only() -> None:
    """A store to a table is a fault that names its section."""
    body = TABLE.replace("global_store_dword v1, v2, s[8:9]", "global_store_dword v1, v2, s[4:5]")
    with pytest.raises(MemoryFault, match=r"a store to .rodata.tables, which is read only"):
        Device("gfx950").load(program(body, "gfx950") + DATA)["k"].launch(1, 64, [np.zeros(64, np.uint32)])


CALLS = """
    v_readfirstlane_b32 s6, v0
    s_lshr_b32 s6, s6, 6
    s_getpc_b64 s[4:5]
    s_add_u32 s4, s4, functions@rel32@lo+4
    s_addc_u32 s5, s5, functions@rel32@hi+12
    s_lshl_b32 s6, s6, 3
    s_load_dwordx2 s[8:9], s[4:5], s6
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    s_swappc_b64 s[30:31], s[8:9]
    s_call_b64 s[30:31], increment
    global_store_dword v1, v2, s[2:3]
    s_endpgm
increment:
    v_add_u32_e32 v2, 1, v2
    s_setpc_b64 s[30:31]
thirty:
    v_mov_b32_e32 v2, 30
    s_setpc_b64 s[30:31]
forty:
    v_mov_b32_e32 v2, 40
    s_setpc_b64 s[30:31]
"""
FUNCTIONS = "\n.section .data.rel.ro\nfunctions:\n  .quad thirty\n  .quad forty\n  .quad thirty+0\n"


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_calls(schedule: str) -> None:
    """Waves that call what a table names part and go on behind the call; a call of a label does too."""
    memory = np.zeros(192, np.uint32)
    text = program(CALLS, "gfx942") + FUNCTIONS
    report = Device("gfx942", schedule=schedule).load(text)["k"].launch(1, 192, [memory])
    assert report.clean
    assert (memory.reshape(3, 64) == np.array([[31], [41], [31]])).all()


def test_a_call_to_nowhere() -> None:
    """A jump to what is no function is a fault with the address."""
    body = CALLS.replace("s_swappc_b64", "s_add_u32 s8, s8, 8\n    s_swappc_b64")
    with pytest.raises(ProtocolError, match="'s_swappc_b64' to 0x"):
        Device("gfx942").load(program(body, "gfx942") + FUNCTIONS)["k"].launch(1, 64, [np.zeros(64, np.uint32)])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (program(TABLE, "gfx950"), UnsupportedInstruction, "which the text does not define"),
        (program(TABLE.replace("@rel32@lo", ""), "gfx950") + DATA, UnsupportedInstruction, "not executed"),
        (program("s_add_u32 s4, s4, table@rel32@lo+4", "gfx950") + DATA, UnsupportedInstruction, "s_getpc_b64"),
        (program("s_nop 0", "gfx950") + ".data\n .long table", GcnSyntaxError, "only addresses of 8 bytes"),
        (program("s_nop 0", "gfx950") + ".data\n .fill 3, 9", GcnSyntaxError, "3 times 9 bytes"),
    ],
)
def test_what_cannot_be_placed(text: str, error: type[Exception], message: str) -> None:
    """A symbol that is not there, and data that no launch could place, are refused when the text is loaded."""
    with pytest.raises(error, match=message):
        Device("gfx950").load(text)


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("optimisation", ["-O1", "-O2"])
def test_compiled_code(chip: str, optimisation: str, tmp_path: Path) -> None:
    """Tables, variables, strings through pointers, and a function that is not inlined: what a C compiler makes."""
    pytest.importorskip("ziglang")
    llvm = pytest.importorskip("llvm")
    source = (Path(__file__).parents[1] / "kernels.c").read_text()
    kernel = Device(chip).load(llvm.compiled(source, chip, tmp_path, optimisation))["constants"]
    for i in range(1, 4):
        out = np.full(8, 99, np.int32)
        report = kernel.launch(1, 1, [out, np.int32(i), np.float32(0.5)])
        assert report.clean, str(report)
        value = 0.5
        for _ in range(i):
            value = value * value + 1.5
        text = b"ab\0cdefgh\0"[3 if i % 2 else 0 :]
        assert out[:5].tolist() == [[3, 1, 4, 1][i], 7, 5 if i < 4 else 0, text[i], int(value)]


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("optimisation", ["-O1", "-O2", "-Os"])
def test_compiled_functions(chip: str, optimisation: str, tmp_path: Path) -> None:
    """Functions through a table, by wave and by lane, and one that calls itself, with what its stack holds."""
    pytest.importorskip("ziglang")
    llvm = pytest.importorskip("llvm")
    source = (Path(__file__).parents[1] / "functions.c").read_text()
    module = Device(chip).load(llvm.compiled(source, chip, tmp_path, optimisation))
    thread = np.arange(256)
    numbers = [0, 1]
    while len(numbers) < 12:
        numbers.append(numbers[-1] + numbers[-2])
    for name in module.kernels:
        out = np.zeros(256, np.int32)
        report = module[name].launch(1, 256, [out, np.int32(4)])
        assert report.clean, str(report)
        which = (thread >> 6 if name == "by_wave" else thread) & 3
        wanted = np.choose(which, [2 * thread, thread + 100, thread * thread, 2 * thread]) + 5
        if name == "recursive":
            wanted = np.array(numbers)[4 + thread % 4]
        assert (out == wanted).all(), name
