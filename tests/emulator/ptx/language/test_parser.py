"""Text to instructions: scopes, literals, provenance, and errors that say where."""

from __future__ import annotations

import pytest

from tilekit.emulator import Device, PtxSyntaxError, UnsupportedInstruction
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, RegisterOperand

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def entry(body: str, parameters: str = "") -> str:
    """A module with one kernel ``k``."""
    return f"{HEADER}.visible .entry k({parameters})\n{{\n{body}\n}}\n"


def test_scopes_have_registers_and_labels_of_their_own() -> None:
    """A fragment pasted twice repeats its register and label names."""
    fragment = "{ .reg .b32 %t; .reg .pred %p; AGAIN: mov.u32 %t, 1; @%p bra AGAIN; OUT: }"
    function = parse_module(entry(f".reg .b32 %t; mov.u32 %t, 0; {fragment} {fragment} ret;")).functions["k"]
    moves = [i for i in function.instructions if i.opcode == "mov"]
    registers = {i.operands[0].register.number for i in moves if isinstance(i.operands[0], RegisterOperand)}
    assert len(registers) == 3
    positions = [i.operands[0].position for i in function.instructions if i.opcode == "bra"]
    assert positions == [1, 3]


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("0f3F800000", 0x3F800000, "f32"),
        ("0d3FF0000000000000", 0x3FF0000000000000, "f64"),
        ("0x10U", 16, "int"),
        ("-5", -5, "int"),
        ("0b101", 5, "int"),
        ("017", 15, "int"),
        ("-0f3F800000", 0xBF800000, "f32"),
    ],
)
def test_literals(text: str, value: int, kind: str) -> None:
    """Every spelling of a constant."""
    function = parse_module(entry(f".reg .b32 %r; mov.b32 %r, {text}; ret;")).functions["k"]
    assert function.instructions[0].operands[1] == Immediate(value, kind)


def test_addresses_and_offsets() -> None:
    """Offsets of either sign, and a symbol with an addend."""
    text = entry(".reg .b64 %a; .reg .b32 %r; ld.global.u32 %r, [%a+-8]; ld.global.u32 %r, [%a+12]; ret;")
    loads = [i.operands[1] for i in parse_module(text).functions["k"].instructions[:2]]
    assert [load.addend for load in loads if isinstance(load, AddressOperand)] == [-8, 12]


def test_provenance_and_annotations() -> None:
    """``//@`` comments: trailing ones belong to instructions, lone ones to the entry; others vanish."""
    text = entry(
        "//@role load warps=4-4\n// plain\n.reg .b32 %r; /* two\nlines */\n"
        "mov.b32 %r, 1;  //@ load Loader.load io.py:3\nadd.u32 %r,\n  %r, 2; //@ load Loader.load io.py:4\nret;"
    )
    function = parse_module(text).functions["k"]
    assert [note for _, note in function.annotations] == ["role load warps=4-4"]
    assert [i.provenance for i in function.instructions] == [
        "load Loader.load io.py:3",
        "load Loader.load io.py:4",
        "",
    ]
    assert function.instructions[1].text == "add.u32 %r, %r, 2;"


def test_compiler_furniture_is_skipped() -> None:
    """Debug directives, pragmas, sections, linkage and a trailing NUL."""
    text = (
        HEADER + '.file 1 "a.cu"\n.extern .shared .align 16 .b8 dyn[];\n.global .align 4 .u32 g[2] = {1, 2};\n'
        ".visible .entry k(.param .u64 .ptr .global .align 1 p)\n.maxntid 128, 1, 1\n.minnctapersm 1\n{\n"
        '.loc 1 2 3, function_name $L, inlined_at 1 2 3\n.pragma "nounroll";\nret;\n}\n'
        ".section .debug_str { .b8 1,2 }\n\0"
    )
    module = parse_module(text)
    assert module.functions["k"].directives == {"maxntid": (128, 1, 1), "minnctapersm": (1,)}
    assert module.variables["g"].image == bytes([1, 0, 0, 0, 2, 0, 0, 0])


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        (".reg .b32 %r;\nmov.b32 %r, %q;", "%q is not a declared or special register", 7),
        (".reg .b32 %r<4>;\nmov.b32 %r4, 1;", "%r4 is not a declared", 7),
        ("bra NOWHERE;\nHERE: ret;", "NOWHERE is not a register, variable or label", 6),
        ("L: ret;\nL: ret;", "L is declared twice in one scope", 7),
        (".reg .b32 %r;\nmov.b32 %r 1;", "expected ';'", 7),
        ("{ ret;", "found .the end of the text.", 8),
    ],
)
def test_syntax_errors_name_their_place(body: str, message: str, line: int) -> None:
    """What is wrong, and the line it is on."""
    with pytest.raises(PtxSyntaxError, match=message.replace("(", r"\(")) as caught:
        parse_module(entry(body))
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("instruction", "hint"),
    [
        ("addd.u32 %r, %r, 1;", "add"),
        ("add.u33 %r, %r, 1;", "add"),
        ("add.u32.sat2 %r, %r, 1;", "add"),
        ("add.u32 %r, %r;", "d, a, b"),
        ("mbarrier.arrive.acquire.shared::cta.b64 _, [%r];", "mbarrier"),
    ],
)
def test_unknown_forms_are_refused_when_loaded(instruction: str, hint: str) -> None:
    """An opcode, modifier or operand list that is not in the table names the nearest form."""
    with pytest.raises(UnsupportedInstruction) as caught:
        Device().load(entry(f".reg .b32 %r;\n{instruction}\nret;"))
    assert caught.value.line == 7
    assert hint in caught.value.hint


def test_unknown_opcodes_say_who_asked_for_them() -> None:
    """What emitted the line stands beside its place, and opcodes like it in the hint."""
    with pytest.raises(UnsupportedInstruction) as caught:
        Device().load(entry(".reg .f32 %r;\nmxa.f32 %r, %r, %r;  //@ setup clip k.py:34\nret;"))
    assert "at line 7, column 1  [setup clip k.py:34]" in str(caught.value)
    assert "max" in caught.value.hint


def test_modifiers_are_a_set() -> None:
    """Producers order modifiers differently; types keep their order."""
    for spelling in ("L2::cache_hint.multicast::cluster", "multicast::cluster.L2::cache_hint"):
        text = (
            ".reg .b32 %r<3>; .reg .b64 %m; .reg .b16 %k;\ncp.async.bulk.tensor.1d.shared::cluster.global.tile."
            f"mbarrier::complete_tx::bytes.{spelling} [%r0], [%m, {{%r1}}], [%r2], %k, %m;\nret;"
        )
        assert Device().load(entry(text)).kernels == ("k",)


def test_wrong_register_width_is_refused() -> None:
    """ptxas refuses a 64-bit register in a 32-bit instruction; so does the emulator."""
    kernel = Device().load(entry(".reg .b64 %a; .reg .b32 %r;\nmov.u32 %r, 1; add.u32 %r, %r, %a;\nret;"))["k"]
    with pytest.raises(UnsupportedInstruction, match=r"%a is \.b64"):
        kernel.launch(1, 32)
