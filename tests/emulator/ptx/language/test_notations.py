"""Notations that compilers seldom write and people do: constant expressions, vector registers, initial values."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, PtxSyntaxError
from tilekit.emulator.ptx.compiler import unwritten
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.language.syntax import Immediate
from tilekit.emulator.ptx.lint.lint import lint

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
PROLOGUE = (
    ".reg .b64 out; .reg .b32 tid, r<8>; .reg .b16 h<4>; .reg .f32 f<4>; .reg .b64 wide; .reg .pred p;"
    "ld.param.u64 out, [out_param]; mov.u32 tid, %tid.x; mad.wide.u32 out, tid, 8, out;"
)


def run(body: str, module: str = "") -> np.ndarray:
    """Two words of each of 32 lanes, as a kernel whose ``out`` is the lane's place stores them."""
    device = Device("sm_90a", check="full")
    out = device.buffer(np.zeros((32, 2), np.uint32), "out")
    text = f"{HEADER}{module}\n.visible .entry k(.param .u64 out_param)\n{{\n{PROLOGUE}\n{body}\nret;\n}}\n"
    device.load(text)["k"].launch(grid=1, block=32, args=[out])
    return out.read()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2*3", 7),
        ("(1<<4)|3", 19),
        ("7 - 2 - 1", 4),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("7 % 4", 3),
        ("-7 >> 1", -4),
        ("(.u64)(-8) >> 60", 15),
        ("-1 > 1U", 1),
        ("-1 > 1", 0),
        ("~0", -1),
        ("!3", 0),
        ("!!3 && 0 || 1", 1),
        ("1 == 1 ? 2 : 3", 2),
        ("0 ? 2 : 0 ? 3 : 4", 4),
        ("6 & 3 ^ 1 | 8", 11),
        ("WARP_SZ * 2", 64),
        ("-WARP_SZ", -32),
        ("+3", 3),
        ("0xFFFFFFFFFFFFFFFF", (1 << 64) - 1),
    ],
)
def test_constant_expressions(text: str, value: int) -> None:
    """C's operators and their precedence over 64-bit integers, signed unless one side is not (PTX ISA 4.5.5)."""
    module = parse_module(f"{HEADER}.entry k() {{ .reg .b32 r; mov.b32 r, {text}; ret; }}")
    assert module.functions["k"].instructions[0].operands[1] == Immediate(value)


def test_expressions_of_floating_point_numbers() -> None:
    """They are computed in double precision."""
    found = run("mov.f32 f0, 1.0 + 2.0*0.25; mov.f32 f1, 1.0 < 2.0 ? -0.5 : 3; st.global.v2.f32 [out], {f0, f1};")
    assert (found.view(np.float32) == [1.5, -0.5]).all()


@pytest.mark.parametrize(
    ("body", "message", "column"),
    [
        ("mov.b32 r, 09;", "09 is no number", 12),
        ("mov.b32 r, 1 / 0;", "/ by zero", 14),
        ("mov.b32 r, 0f3F800000 * 2;", "takes no operators", 23),
        ("mov.b32 r, 1.0 << 2;", "<< takes integers", 16),
        ("mov.b32 r, (1 + 2;", "expected '\\)'", 18),
        ("mov.b32 r, v.q;", "components .x, .y, not .q", 13),
        (".reg .v4 .b64 w;", "16 bytes at most", 10),
        (".reg .v2 .pred w;", "no predicates", 10),
    ],
)
def test_what_is_wrong_is_said_at_its_place(body: str, message: str, column: int) -> None:
    """Line and column are those of the token at fault."""
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        parse_module(f"{HEADER}.entry k() {{ .reg .b32 r; .reg .v2 .b32 v;\n{body}\nret; }}")
    assert (caught.value.line, caught.value.column) == (5, column)


def test_offsets_are_expressions() -> None:
    """In addresses and behind a variable's name."""
    body = """.shared .u32 tile[64];
    mov.u32 r0, tile+4*2; mad.lo.u32 r1, tid, 1<<2, r0; st.shared.u32 [r1+(8>>1)], tid;
    ld.shared.u32 r2, [r1+2*2]; mov.u32 r3, tile; sub.u32 r3, r0, r3; st.global.v2.u32 [out], {r2, r3};"""
    assert (run(body) == np.stack([np.arange(32), np.full(32, 8)], 1)).all()


def test_vector_registers() -> None:
    """As a whole in vector accesses and packing moves, by component (either set of letters), as a range."""
    body = """.reg .v2 .u32 pair<2>; .reg .v4 .b16 quad; .reg .v2 .b16 halves;
    mov.u32 pair0.x, tid; add.u32 pair0.y, pair0.r, 1; st.global.v2.u32 [out], pair0;
    ld.global.v2.u32 pair1, [out]; mov.v2.u32 {r0, r1}, pair1; mov.v2.u32 {r0, r1}, {r1, r0};
    mov.b64 wide, pair1; mov.b64 quad, wide; mov.b32 halves, r0; mov.b32 r2, {quad.x, halves.g};
    st.global.v2.u32 [out], {r0, r2};"""
    lanes = np.arange(32)
    assert (run(body) == np.stack([lanes + 1, lanes], 1)).all()


def test_vector_registers_are_parameters() -> None:
    """A vector passes its components to a function and back."""
    module = """.func (.reg .v2 .u32 sums) both(.reg .v2 .u32 given, .reg .u32 more) {
      add.u32 sums.x, given.x, more; add.u32 sums.y, given.y, more; ret; }"""
    body = """.reg .v2 .u32 v; mov.u32 v.x, tid; mov.u32 v.y, 7; call (v), both, (v, 100); st.global.v2.u32 [out], v;"""
    assert (run(body, module) == np.stack([np.arange(32) + 100, np.full(32, 107)], 1)).all()


def test_vector_registers_are_used_by_component() -> None:
    """`lint` names a vector of which nothing is used, once, and leaves one alone of which something is."""
    text = f"{HEADER}.entry k() {{ .reg .v2 .b32 idle, half; mov.b32 half.x, 1; ret; }}"
    assert [r.message for r in lint(text) if r.rule == "unused-register"] == ["register idle is never used"]


def test_sources_with_an_addend() -> None:
    """``register + constant`` as ptxas takes it: added in the register's width; a float has none."""
    body = "add.u32 r0, tid+2*2, tid+-1; mov.b16 h0, 0xFFFF; cvt.u32.u16 r1, h0+2; st.global.v2.u32 [out], {r0, r1};"
    assert (run(body) == np.stack([2 * np.arange(32) + 3, np.ones(32)], 1)).all()
    with pytest.raises(PtxSyntaxError, match="integer register"):
        run("add.f32 f0, f1+1, f2;")


def test_elements_of_variables_are_operands() -> None:
    """``name[index]`` is the element's place, counted in elements."""
    body = "st.shared.u32 tile[3], 5; ld.shared.u32 r0, [tile+12]; ld.global.u32 r1, table[1]; "
    found = run(
        f".shared .u32 tile[8]; setp.ne.u32 p, tid, 0; @p bra END; {body} st.global.v2.u32 [out], {{r0, r1}}; END:",
        ".global .u32 table[2] = {8, 9};",
    )
    assert found[0].tolist() == [5, 9]


def test_initial_values_by_row() -> None:
    """A row in braces that is too short is filled with zeros; every row stands in braces."""
    module = ".global .u32 table[3][2] = {{1}, {2, 3}, {4, 1<<3}}; .global .v2 .u32 pairs[2] = {{5, 6}, {7}};"
    device = Device("sm_90a")
    loaded = device.load(f"{HEADER}{module} .entry k() {{ ret; }}")
    assert loaded.variable("table").data[:24].view(np.uint32).tolist() == [1, 0, 2, 3, 4, 8]
    assert loaded.variable("pairs").data[:16].view(np.uint32).tolist() == [5, 6, 7, 0]


def test_initial_values_that_are_bytes_of_an_address() -> None:
    """A mask takes one byte of a variable's address, with or without ``generic`` and an addend (PTX ISA 5.4.4)."""
    masks = ", ".join(f"{255 << 8 * n:#x}(generic(target)+4)" for n in range(8))
    text = f"{HEADER}.global .u32 target[4]; .global .u8 parts[8] = {{{masks}}}; .entry k() {{ ret; }}"
    loaded = Device("sm_90a").load(text)
    assert int(loaded.variable("parts").data[:8].view(np.uint64)[0]) == loaded.address_of("target") + 4
    with pytest.raises(PtxSyntaxError, match="a mask is 0xFF"):
        Device("sm_90a").load(text.replace("0xff00(", "0xf00("))


def test_blocks_are_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for registers that are read too early takes time in proportion to the text, however it branches."""
    calls = 0
    after = unwritten._after

    def counted(*args: object) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        return after(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(unwritten, "_after", counted)
    steps = "\n".join(f"@p{n} bra L{n}; mov.u32 r{n}, {n}; L{n}: add.u32 x, x, {n};" for n in range(200))
    declared = ".reg .pred p<200>; .reg .b32 r<200>, x; TOP:"
    lint(f"{HEADER}.entry k() {{ {declared} {steps}\n@p0 bra TOP; ret; }}")
    assert calls <= 2 * (3 * 200 + 2)


def test_accesses_of_named_variables_need_no_space() -> None:
    """``ld``, ``st`` and ``atom`` without a state space take that of the variable they name, as ptxas does."""
    body = """.local .u32 own[2]; .shared .u32 tile[2]; mov.b32 r0, 0;
    st.u32 [own+4], tid; ld.u32 r1, [own+4]; setp.eq.u32 p, tid, 0; @p st.u32 [tile], 40; bar.warp.sync -1;
    @p atom.add.u32 r0, [tile], 2; bar.warp.sync -1; ld.u32 r2, [tile]; st.global.v2.u32 [out], {r1, r2};"""
    assert (run(body) == np.stack([np.arange(32), np.full(32, 42)], 1)).all()


def test_registers_of_eight_bits() -> None:
    """``cvt`` narrows into them, whether or not the lanes differ."""
    body = """.reg .u8 u<2>; .reg .s8 s<2>; add.u32 r0, tid, 250; cvt.u8.u32 u0, r0; cvt.u32.u8 r1, u0;
    cvt.sat.s8.s32 s0, r0; cvt.u8.u32 u1, 300; st.global.u32 [out], r1;
    st.global.s8 [out+4], s0; st.global.u8 [out+5], u1;"""
    lanes = np.arange(32)
    assert (run(body) == np.stack([(lanes + 250) & 0xFF, np.full(32, 127 | 44 << 8)], 1)).all()


def test_signed_results_that_the_lanes_share() -> None:
    """An instruction that computes with arrays writes one negative value for the whole warp."""
    body = """.reg .s64 a, b; ld.const.s64 a, [table];
    ld.const.s64 b, [table+8]; sad.s64 a, a, b, -100; st.global.s64 [out], a;"""
    assert (run(body, ".const .s64 table[2] = {5, -7};").view(np.int64) == -88).all()


def test_special_registers_that_are_vectors() -> None:
    """``%tid``, ``%ntid`` and their kind as a whole (PTX ISA 10.1)."""
    body = """.reg .v4 .u32 t; mov.v4.u32 t, %tid; mov.v4.u32 {r0, r1, r2, r3}, %ntid;
    add.u32 r1, r0, t.w; mov.u32 r2, %ctaid.w; add.u32 r1, r1, r2;
    st.global.v2.u32 [out], {t.x, r1};"""
    assert (run(body) == np.stack([np.arange(32), np.full(32, 32)], 1)).all()
