"""What text is read, and what is said of text that is none."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import program, run

from tilekit.emulator import Device, EmulatorError, GcnSyntaxError, LaunchError, UnsupportedInstruction
from tilekit.emulator.gcn.language.parser import parse
from tilekit.emulator.gcn.language.syntax import Call, Constant, Off, Register, Symbol
from tilekit.emulator.gcn.ops import OPS


def _one(text: str) -> Any:
    return parse(text).instructions[0]


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("v_mov_b32_e32 v1, v2", (Register("v", 1), Register("v", 2))),
        ("v_add_f32_e64 v1, -|v2|, -1.0", (Register("v", 1), Register("v", 2, 1, True, True), Constant(-1.0))),
        (
            "v_add_f32 v1, neg(v2), abs(s3)",
            (Register("v", 1), Register("v", 2, 1, True), Register("s", 3, 1, False, True)),
        ),
        ("s_mov_b64 exec, vcc", (Register("s", 126, 2), Register("s", 106, 2))),
        ("s_mov_b32 m0, 0x10", (Register("s", 124), Constant(16))),
        ("s_load_dwordx4 [s4, s5, s6, s7], s[0:1], 8+(2<<3)", (Register("s", 4, 4), Register("s", 0, 2), Constant(24))),
        ("global_load_dword v1, v[2:3], off", (Register("v", 1), Register("v", 2, 2), Off())),
        ("v_accvgpr_read_b32 v1, a16", (Register("v", 1), Register("a", 16))),
        ("s_waitcnt vmcnt(3) & lgkmcnt(0)", (Call("vmcnt", (3,)), Call("lgkmcnt", (0,)))),
        ("s_branch .LBB0_1", (Symbol(".LBB0_1"),)),
        ("s_add_u32 s0, s0, table@rel32@lo+4", (Register("s", 0), Register("s", 0), Symbol("table", 4, "rel32@lo"))),
    ],
)
def test_operands(text: str, operands: tuple[object, ...]) -> None:
    """Operands of every form that LLVM writes."""
    assert _one(text).operands == operands


def test_modifiers() -> None:
    """Modifiers with and without values."""
    dpp = _one("v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1")
    assert (dpp.name, dpp.encoding) == ("v_mov_b32", "dpp")
    assert dpp.modifiers == {"quad_perm": [1, 0, 3, 2], "row_mask": 15, "bank_mask": 15, "bound_ctrl": 1}
    load = _one("buffer_load_dword v1, s[8:11], 0 offen offset:16 sc0 nt lds ; comment")
    assert load.modifiers == {"offen": True, "offset": 16, "sc0": True, "nt": True, "lds": True}


def test_what_a_debugger_reads_is_passed_over() -> None:
    """Directives that describe call frames leave the instructions as they are."""
    frames = (
        ".cfi_startproc\n.cfi_llvm_register_pair 16, 62, 32, 63, 32\n.cfi_def_cfa_register 65\n.cfi_remember_state\n"
    )
    found = parse(f"{frames}s_nop 1\n.cfi_restore_state\n.cfi_endproc\n").instructions
    assert [one.name for one in found] == ["s_nop"]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("s_nop 0\n  v_mov_b32 v1, v512", 2, 17, "v512 does not exist"),
        ("v_mov_b32 v1, 08", 1, 15, "begins with 0, as octal numbers do"),
        ("v_mov_b32 v1, v[3:2]", 1, 15, "the last register comes before the first"),
        ("v_mov_b32 v1, ?", 1, 15, "unexpected character"),
        ("s_waitcnt vmcnt(64)", 1, 20, "vmcnt"),
        (".frobnicate 3", 1, 1, "unknown directive '.frobnicate'"),
        (".cfi_startprocs", 1, 1, "unknown directive '.cfi_startprocs'"),
        ("a:\na:", 2, 1, "label 'a' is defined twice"),
        (".amdhsa_kernel k\n", 1, 1, "has no end"),
        ("/* s_nop 0", 1, 1, "never closed"),
        (".amdgpu_metadata\namdhsa.version: [1, 2]", 1, 1, "metadata without an end"),
        (".amdgpu_metadata\na: [1, {b: 2]\n.end_amdgpu_metadata", 2, 1, "does not close"),
        (".amdgpu_metadata\na: {b}\n.end_amdgpu_metadata", 2, 1, "does not close"),
        (
            ".amdgpu_metadata\namdhsa.kernels: [{.args: [{.size: 8}]}]\n.end_amdgpu_metadata",
            1,
            1,
            "KeyError: '.offset'",
        ),
        (".amdgpu_metadata\namdhsa.kernels: [7]\n.end_amdgpu_metadata", 1, 1, "does not describe kernels"),
        (".section .rodata\nv_mov_b32 v1, v2", 2, 1, "outside the section of code"),
    ],
)
def test_errors_have_a_place(text: str, line: int, column: int, says: str) -> None:
    """What cannot be read is said with its line and column."""
    with pytest.raises(GcnSyntaxError, match="(?s)" + says.replace("?", r"\?").replace(".fro", r"\.fro")) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_missing_operands_are_said_with_their_line() -> None:
    """An instruction without some of its operands is refused by name."""
    with pytest.raises(GcnSyntaxError, match="'s_load_dword': takes 3 operands, and the text has 1") as caught:
        Device("gfx950").load(program("s_nop 0\ns_load_dword s1", "gfx950"))
    assert caught.value.line is not None


def test_unknown_instruction_names_the_nearest() -> None:
    """An instruction that is not executed is refused when the text is loaded, and the nearest is named."""
    with pytest.raises(UnsupportedInstruction, match="v_add_u33") as caught:
        run("v_add_u33 v1, v2, v3", np.zeros(1, np.uint32))
    assert "v_add_u32" in caught.value.hint


def test_text_for_another_chip() -> None:
    """A module says which chip it is for."""
    with pytest.raises(LaunchError, match="the module is for gfx942, the device is gfx950"):
        Device("gfx950").load(program("s_nop 0", "gfx942"))


def test_arguments_must_fit() -> None:
    """Arguments that the metadata does not describe are packed; too many are refused."""
    kernel = Device("gfx950").load(program("s_nop 0", "gfx950"))["k"]
    with pytest.raises(LaunchError, match="kernarg_size"):
        kernel.launch(1, 64, [np.zeros(4), np.zeros(4)])
    with pytest.raises(LaunchError, match="shared_bytes"):
        kernel.launch(1, 64, [np.zeros(4)], shared_bytes=163844)
    with pytest.raises(LaunchError, match="block"):
        kernel.launch(1, 2048, [np.zeros(4)])


def test_door() -> None:
    """One name makes devices of both kinds."""
    from tilekit.emulator.gcn.device import Device as AmdDevice

    assert isinstance(Device("gfx942"), AmdDevice)
    assert Device("sm_90a").chip.name == "sm_90a"
    with pytest.raises(LaunchError, match="gfx950"):
        Device("gfx951")


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_assembler_takes_what_the_tests_run(chip: str, tmp_path: Path) -> None:
    """LLVM's assembler accepts the frame of the tests' programs."""
    pytest.importorskip("ziglang")
    source = tmp_path / "k.s"
    source.write_text(program("v_lshlrev_b32_e32 v1, 2, v0\nglobal_store_dword v1, v0, s[2:3]", chip))
    command = [sys.executable, "-m", "ziglang", "-cc1as", "-triple", "amdgcn-amd-amdhsa", "-target-cpu", chip,
               "-filetype", "obj", str(source), "-o", str(tmp_path / "k.o")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_metadata_in_braces() -> None:
    """Lists and maps may stand on one line, in each other, with commas and colons in quotes."""
    from tilekit.emulator.gcn.language.metadata import read_metadata

    lines = ["amdhsa.kernels:", "  - .name: 'f(int, {x: 1})'", "    .args:", "      - {.offset: 0, .kind: by_value}",
             "      - {.name: \"a, b\", .size: [1, [2, 0x10]], .ok: true, .none: {}}"]  # fmt: skip
    arguments = [
        {".offset": 0, ".kind": "by_value"},
        {".name": "a, b", ".size": [1, [2, 16]], ".ok": True, ".none": {}},
    ]
    assert read_metadata(lines, 1) == {"amdhsa.kernels": [{".name": "f(int, {x: 1})", ".args": arguments}]}


WORDS = ("v1", "s1", "v[2:3]", "s[4:7]", "a0", "exec", "vcc", "off", "0", "1.5", "0x12345678", "label", "m0", "lds")


@pytest.mark.parametrize("seed", range(20))
def test_operands_of_any_number_and_kind(seed: int) -> None:
    """Whatever operands an instruction is given, it is loaded or refused with an error of the emulator's."""
    rng = np.random.default_rng(seed)
    for name in rng.choice(sorted(OPS), 60):
        operands = ", ".join(rng.choice(WORDS, int(rng.integers(0, 6))))
        text = program(f"{name} {operands}", "gfx950")
        with contextlib.suppress(EmulatorError):
            Device("gfx950").load(text)
