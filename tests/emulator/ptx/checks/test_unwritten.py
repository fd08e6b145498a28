"""Registers that are read before anything has written them: reported when it happens, and where it matters."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, EmulatorError, LaunchReport

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry early(.param .u64 out_param) .maxntid 64 {
    .reg .b64 out, at;
    .reg .b32 s, t, x, y, z;
    .reg .pred p, q, even;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    ld.param.u64 out, [out_param];
    mad.wide.u32 at, t, 4, out;
    setp.lt.u32 p, t, 16;
    mov.u32 y, 0;
"""
TAIL = """
    st.global.b32 [at], y;
    ret;
}
"""


def launch(*lines: str, grid: int = 1, check: str = "full") -> LaunchReport:
    """Run the lines between a kernel's beginning and its end."""
    device = Device("sm_90a", check=check)
    out = device.buffer(np.zeros(64 * grid, np.uint32))
    text = HEAD + "\n".join(f"    {line}" for line in lines) + TAIL
    return device.load(text)["early"].launch(grid, 64, [out], shared_bytes=1024)


def messages(*lines: str) -> list[str]:
    """The findings about registers, and what the launch ended with."""
    try:
        report = launch(*lines)
    except EmulatorError as error:
        return [str(finding) for finding in error.details.get("findings", ()) if finding.kind == "uninitialised"]
    return [str(finding) for finding in report.findings if finding.kind == "uninitialised"]


def test_no_path_writes_it() -> None:
    """A register that nothing has written is reported at its first use of any kind, and once."""
    (text,) = messages("add.u32 z, x, 1;", "mov.u32 y, z;")
    assert text.startswith("uninitialised: x is read on line 16 before anything has written it")
    assert "nothing writes it on any path to here" in text
    assert "hint: write x on every path that leads here" in text


SOME_PATHS = ("@p mov.u32 x, 1;",)
USES = {
    "what is stored": ("st.global.b32 [at], x;",),
    "part of a vector": ("st.shared.v2.b32 [s], {y, x};",),
    "a predicate": ("@p setp.eq.u32 q, t, 3;", "@q mov.u32 y, 4;"),
    "a branch's predicate": ("@p setp.eq.u32 q, t, 3;", "@q bra past;", "mov.u32 y, 4;", "past:"),
}


@pytest.mark.parametrize("use", USES)
def test_some_path_does_not_write_it(use: str) -> None:
    """A register that only some lanes have written is reported where it matters, with the lanes that have not."""
    (text,) = messages(*SOME_PATHS, *USES[use])
    name = "q" if "predicate" in use else "x"
    does = "used as a predicate" if "predicate" in use else "stored"
    assert text.startswith(f"uninitialised: {name} is {does} on line")
    assert "lanes 16-31 came by a path without" in text or "lanes 0-31 came by a path without" in text


def test_addresses_and_barriers() -> None:
    """So are addresses and the operands of barriers, though the run may end there."""
    (text,) = messages("@!p bra past;", "mov.u32 x, s;", "past:", "ld.shared.b32 y, [x];")
    assert text.startswith("uninitialised: x is used as an address on line 19")
    found = messages("setp.lt.u32 q, t, 32;", "@!q bra past;", "mov.u32 x, 1;", "past:", "bar.sync x, 64;")
    assert found[0].startswith("uninitialised: x is used as a barrier's operand on line 20")
    assert "by warp 1 of CTA 0" in found[0]


PRODUCTS = """
    .reg .f32 c<4>;
    mov.u32 z, 0;
    {first}
again:
    mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {{c0, c1, c2, c3}}, {{t, t}}, {{t}}, {{c0, c1, c2, c3}};
    add.u32 z, z, 1;
    setp.lt.u32 q, z, 2;
    @q bra again;
"""


def test_products_added_to_nothing() -> None:
    """What a warp's product is added to is reported where nothing wrote it, also where the loop adds to it later."""
    zeros = [f"mov.f32 c{n}, 0f00000000;" for n in range(4)]
    (text,) = messages(PRODUCTS.format(first=" ".join(zeros[:3])))
    assert text.startswith("uninitialised: c3 is added to by a matrix product on line")
    assert messages(PRODUCTS.format(first=" ".join(zeros))) == []


CLEAN = {
    "read under the predicate of the write": (*SOME_PATHS, "@p st.global.b32 [at], x;"),
    "computed with, and stored under the predicate": (*SOME_PATHS, "add.u32 z, x, 1;", "@p st.global.b32 [at], z;"),
    "written on both sides": ("@p bra one;", "mov.u32 x, 1;", "bra both;", "one:", "mov.u32 x, 2;", "both:",
                              "st.global.b32 [at], x;"),
    "written by complementary predicates": ("@p mov.u32 x, 1;", "@!p mov.u32 x, 2;", "st.global.b32 [at], x;"),
    "packed": ("mov.b64 at, {t, x};", "mad.wide.u32 at, t, 4, out;"),
    "written in a loop's first round": ("loop:", "setp.ne.u32 q, y, 0;", "@q bra use;", "mov.u32 x, 5;", "use:",
                                        "st.shared.b32 [s + 512], x;", "add.u32 y, y, 1;", "setp.lt.u32 q, y, 3;",
                                        "@q bra loop;"),
    "never reached": ("setp.gt.u32 q, t, 99;", "@!q bra past;", "st.global.b32 [at], x;", "past:"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLEAN)
def test_what_is_written_in_time(case: str) -> None:
    """Values that are written in time, or used for nothing, are not reported."""
    assert messages(*CLEAN[case]) == []


def test_many_ctas() -> None:
    """A launch whose warps could run together gives the same finding."""
    for lines in (("st.global.b32 [at], x;",), (*SOME_PATHS, "st.global.b32 [at], x;")):
        place = "mov.u32 z, %ctaid.x; mad.lo.u32 z, z, 64, t; mad.wide.u32 at, z, 4, out;"
        text = HEAD.replace("mad.wide.u32 at, t, 4, out;", place)
        device = Device("sm_90a")
        out = device.buffer(np.zeros(64 * 100, np.uint32))
        report = device.load(text + "\n".join(lines) + TAIL)["early"].launch(100, 64, [out])
        assert [finding.kind for finding in report.findings] == ["uninitialised"]


def test_off_checks_nothing() -> None:
    """Without checking, registers are not watched."""
    assert launch("st.global.b32 [at], x;", check="off").findings == ()
