"""Fragment files of a kernel's own: names that never capture an operand, and faults with file and line."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fragments.fragment_entries import ptxas_errors
from tilekit.assembly.errors import FragmentError
from tilekit.assembly.fragment_files import _check_text, every_fragment
from tilekit.assembly.instruction_sets import GCN, PTX
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device

HEADER = """//! fragment  {name}
//! about     Something.
//! in        a        u32
//! in        b        u32
//! out       sum      u32
//! kind      scalar
//! target    sm_80  ptx 7.0
//! see       PTX ISA, add
"""
ADD = "add.u32 ${sum}, ${a}, ${b};\n"

BODIES = {
    "a register": "{{\n    .reg .u32 {0};\n    add.u32 {0}, ${{a}}, ${{b}};\n    mov.u32 ${{sum}}, {0};\n}}\n",
    "on one line": "{{ .reg .u32 {0}; add.u32 {0}, ${{a}}, ${{b}}; mov.u32 ${{sum}}, {0}; }}\n",
    "the second of a list": "{{\n.reg .u32 other, {0}; mov.u32 {0}, ${{b}}; add.u32 ${{sum}}, ${{a}}, {0};\n}}\n",
    "a range": "{{\n.reg .u32 {0}_<2>;\nmov.u32 {0}_1, ${{b}};\nadd.u32 ${{sum}}, ${{a}}, {0}_1;\n}}\n",
    "a vector": "{{\n.reg .v2 .u32 {0};\nmov.v2.u32 {0}, {{${{a}}, ${{b}}}};\nadd.u32 ${{sum}}, {0}.x, {0}.y;\n}}\n",
    "a scope in a scope": (
        "{{\n.reg .u32 {0};\nmov.u32 {0}, ${{a}};\n{{\n.reg .u32 other;\nadd.u32 other, {0}, ${{b}};\n"
        "mov.u32 ${{sum}}, other;\n}}\n}}\n"
    ),
    "a name in both scopes": (
        "{{\n.reg .u32 {0}, deeper;\nmov.u32 {0}, ${{a}};\n{{\n.reg .u32 {0};\nmov.u32 {0}, ${{b}};\n"
        "mov.u32 deeper, {0};\n}}\nadd.u32 ${{sum}}, {0}, deeper;\n}}\n"
    ),
    "a label": "{{\nbra {0};\n{0}:\nadd.u32 ${{sum}}, ${{a}}, ${{b}};\n}}\n",
    "a local array": (
        "{{\n.local .align 8 .b8 {0}[8];\nst.local.u32 [{0}+4], ${{b}};\nld.local.u32 ${{sum}}, [{0}+4];\n"
        "add.u32 ${{sum}}, ${{sum}}, ${{a}};\n}}\n"
    ),
    "a comment with the name": "{{ /* {0}: .reg .u32 {0}; */\n.reg .u32 {0}; // ; }}\nadd.u32 {0}, ${{a}}, ${{b}};\n"
    "mov.u32 ${{sum}}, {0};\n}}\n",
}


PUT = """
//! fragment  put
//! in        address  gmem
//! in        value    u32
//! kind      memory
//! target    sm_80  ptx 7.0
st.global.u32 [${address}], ${value};
"""


def written(folder: Path, body: str) -> Path:
    """A file with a sum and a store."""
    file = folder / "own.ptx"
    file.write_text(HEADER.format(name="plus") + body + PUT, "utf-8")
    return file


def total(file: Path, *, first: str, second: str) -> tuple[int, str]:
    """What a kernel makes of 1000 + 234 + 234 in registers called so, and its text."""
    w = Writer("adds", target="sm_90a", threads=32)
    out = w.parameter("out", GMEM)
    own = w.fragments(file)
    x, y = w.variable(U32, 1000, first), w.variable(U32, 234, second)
    for _ in range(2):
        x.assign(own.plus(a=x, b=y))
    own.put(address=out, value=x)
    text = w.text()
    result = np.zeros(1, np.uint32)
    Device("sm_90a", seed=0).load(text)["adds"].launch(grid=1, block=32, args=[result])
    return int(result[0]), text


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("local", ["wide", "zero", "out", "c", "add", "u32", "x", "%r1", "$l"])
def test_a_local_never_captures_an_operand(tmp_path: Path, what: str, local: str) -> None:
    """Registers of the kernel called like a fragment's own, before it is placed and after, are still themselves."""
    if local == "%r1" and what in ("a label", "a local array"):
        local = "_r1"  # the emulator's parser takes a name with % for a register
    body = BODIES[what].format(local)
    bare = local.strip("%$")
    found, text = total(written(tmp_path, body), first=bare, second=f"{bare}_1" if what == "a range" else bare)
    assert found == 1468
    assert ptxas_errors(text, "sm_90a") == []


def test_a_member_of_a_range_is_a_local(tmp_path: Path) -> None:
    """`r<4>` declares r0 to r3: a register of the kernel called r2 is not captured."""
    body = "{ .reg .u32 r<4>; mov.u32 r2, ${a}; mov.u32 r0, ${b}; add.u32 ${sum}, r2, r0; }\n"
    found, text = total(written(tmp_path, body), first="r2", second="r0")
    assert found == 1468
    assert ptxas_errors(text, "sm_90a") == []


def test_opcodes_and_modifiers_are_no_names(tmp_path: Path) -> None:
    """A local called `add` or `wide` is changed where it is a register, and nowhere else."""
    body = "{ .reg .u64 wide; .reg .u32 add; mul.wide.u32 wide, ${a}, 1; cvt.u32.u64 add, wide; @!${p} bra wide_end; "
    body += "add.u32 add, add, ${b}; wide_end: mov.u32 ${sum}, add; }\n"
    file = tmp_path / "own.ptx"
    file.write_text(HEADER.format(name="plus").replace("//! kind", "//! in  p  pred\n//! kind") + body, "utf-8")
    w = Writer("adds", target="sm_90a", threads=32)
    names = {name: w.variable(U32, 1, name) for name in ("wide", "add")}
    guard = names["add"] == 1
    w.fragments(file).plus(a=names["wide"], b=names["add"], p=guard)
    line = next(line for line in w.text().splitlines() if "mul.wide" in line)
    assert ".reg .u64 wide1; .reg .u32 add1; mul.wide.u32 wide1, wide, 1;" in line
    assert f"@!{guard.text} bra wide_end; add.u32 add1, add1, add; wide_end:" in line


def test_a_path_begins_at_the_kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is looked for beside the file that names it, wherever the process runs."""
    written(tmp_path, ADD)
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def trace(w, x):\n    return w.fragments('own.ptx').plus(a=x, b=1)\n", "utf-8")
    monkeypatch.chdir("/")
    scope: dict[str, Any] = {}
    exec(compile(kernel.read_text("utf-8"), str(kernel), "exec"), scope)
    w = Writer("adds", target="sm_90a", threads=32)
    assert scope["trace"](w, w.constant(U32, 1)).type is U32
    assert f"{tmp_path / 'own.ptx'}.plus" in w.placed


def test_a_file_called_like_ours_is_not_ours(tmp_path: Path) -> None:
    """A fragment `wait` in a file grid.ptx of a kernel's own does not pass for the wait for the kernel before."""
    file = tmp_path / "grid.ptx"
    file.write_text("//! fragment  wait\n//! kind  scalar\n//! target  sm_80  ptx 7.0\nnanosleep.u32 1;\n", "utf-8")
    w = Writer("naps", target="sm_90a", threads=32)
    w.fragments(file).wait()
    assert "grid.wait" not in w.placed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.u32 ${sum}, ${a} ${b};\n", "own.ptx:9: fragment plus: expected ';'"),
        ("// Why.\n\nadd.u32 ${sum}, ${a}, ${b}\n", "own.ptx:11: fragment plus: the text ends in the middle"),
        ("{\nadd.u32 ${sum}, ${a}, ${b};\n", "fragment plus: the text ends in the middle"),
        ("add.u32 ${sum}, ${a}, ${b};\n}\n", "own.ptx:10: fragment plus: "),
        (
            "mov.u32 ${sum}, ${a};\nadd.u32 ${sum}, ${sum}, other;\nmov.u32 ${sum}, ${b};\n",
            "own.ptx:10: fragment plus: ",
        ),
        ('mov.u32 ${sum}, ${a};\n\nadd.u32 ${sum}, ${b}, "one\n', "own.ptx:11: fragment plus: unexpected character"),
        (
            ".reg .u32 t;\nadd.u32 t, ${a}, ${b};\nmov.u32 ${sum}, t;\n",
            "own.ptx:9: fragment plus: 't' is declared outside",
        ),
        ("again: add.u32 ${sum}, ${a}, ${b};\n", "own.ptx:9: fragment plus: 'again' is declared outside of braces"),
        ("", "own.ptx:1: fragment plus: there is no text under the header"),
        (
            "add.u32 ${a}, ${a}, ${b};\nmov.u32 ${sum}, ${a};\n",
            "own.ptx:9: fragment plus: writes 'a', which is declared `in` and the kernel's to keep; nearest: inout",
        ),
        ("mov.u32 ${sum}, ${a};\nst.global.u32 [${b}], 1;\n", "own.ptx:10: fragment plus: st.global.u32 is no arithm"),
        ("mov.u32 ${sum}, ${a};\nbarrier.sync ${b};\n", "own.ptx:10: fragment plus: barrier.sync is no arithmetic"),
        ("add.u32 ${sum}, ${a}, ${b};\nret;\n", "own.ptx:10: fragment plus: ret ends the thread, which the kernel"),
        ("add.u32 ${sum}, ${a}, ${b};\nbra out;\n", "own.ptx:10: fragment plus: "),
        ("\nadds.u32 ${sum}, ${a}, ${b};\n", "own.ptx:10: fragment plus: opcode 'adds' is not known; the nearest form"),
        (
            "{.reg .f32 t;\nadd.u32 ${sum}, t, ${b};\nmov.b32 t, ${a};}\n",
            "own.ptx:10: fragment plus: add.u32: register t is",
        ),
        (
            "add.u32 ${sum}, ${a};\nmov.u32 ${sum}, ${b};\n",
            "own.ptx:9: fragment plus: add.u32: the operands (expected",
        ),
        ("add.u32 ${sum}, ${a}, 1.0;\nmov.u32 ${sum}, ${b};\n", "own.ptx:9: fragment plus: add.u32: a floating"),
        (
            "mov.u32 ${sum}, ${b};\nmov.b64 ${sum}, ${a};\n",
            "own.ptx:10: fragment plus: register ${a} is .b32, the",
        ),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, body: str, message: str) -> None:
    """Whatever is wrong with a text is said when the file is read, with the line in the file."""
    file = tmp_path / "own.ptx"
    file.write_text(HEADER.format(name="plus") + body, "utf-8")
    with pytest.raises(FragmentError, match=re.escape(message)) as caught:
        Writer("adds", target="sm_90a", threads=32).fragments(file)
    assert caught.value.code == "TK-FRAG-001"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "in        b ",
            "in        from ",
            "own.ptx:4: fragment plus: 'from' cannot be written in a Python call; nearest: from_",
        ),
        (
            "in        b ",
            "in        2b ",
            "own.ptx:4: fragment plus: '2b' cannot be written in a Python call; nearest: x2b",
        ),
        ("in        b ", "in        a ", "own.ptx:4: fragment plus: 'a' is declared twice"),
        (
            "fragment  plus",
            "fragment  a-b",
            "own.ptx:1: fragment a-b: 'a-b' cannot be written in a Python call; nearest: ab_",
        ),
        ("//! about ", "add.u32\n//! about ", "fragment plus: "),
        ("//! fragment  plus\n", "add.u32 x;\n//! fragment  plus\n", "own.ptx:1: text before any"),
        ("kind      scalar", "imm       p  t=out|u\n//! kind      scalar", "may be 'out', which the text declares"),
    ],
)
def test_a_header_that_no_call_fits(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Names that Python cannot write, names twice, and words that mean a local are refused with file and line."""
    file = tmp_path / "own.ptx"
    text = HEADER.format(name="plus") + "{ .reg .u32 out; add.u32 out, ${a}, ${b}; mov.u32 ${sum}, out; }\n"
    if "imm" in new:
        text = text.replace("mov.u32 ${sum}, out", "mov.u32 ${sum}, ${p}")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(FragmentError, match=re.escape(message)) as caught:
        Writer("adds", target="sm_90a", threads=32).fragments(file)
    assert caught.value.code == "TK-FRAG-001"


GCN_HEADER = "//! fragment  plus\n//! in  a  u32\n//! out  sum  u32\n//! kind  scalar\n//! target  gfx9\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("v_mov_b32 v5, ${a}\nv_mov_b32 ${sum}, v5\n", "own.s:6: fragment plus: v5 is a register that the kernel"),
        ("v_mov_b32 ${sum}, ${a}\ns_load_dword s[2:3], ${a}\n", "own.s:7: fragment plus: s[2] is a register"),
        ("v_mov_b32 ${sum} ${a}\n", "own.s:6: fragment plus: expected ',' behind ${sum}"),
        ("v_add_u32 ${sum}, 1 ${a}\n", "own.s:6: fragment plus: expected ',' behind 1"),
        ("v_mov_b32 ${sum}, ${a}\ns_endpgm\n", "own.s:7: fragment plus: s_endpgm ends the wave, which the kernel"),
        ("s_mov_b64 exec, 1\nv_mov_b32 ${sum}, ${a}\n", "own.s:6: fragment plus: EXEC is not given back"),
    ],
)
def test_a_fault_of_gcn_names_file_and_line(tmp_path: Path, body: str, message: str) -> None:
    """Registers by their numbers, which the kernel may hold something in, are refused, and what LLVM would not take."""
    file = tmp_path / "own.s"
    file.write_text(GCN_HEADER + body, "utf-8")
    with pytest.raises(FragmentError, match=re.escape(message)) as caught:
        Writer("adds", target="gfx950", threads=64).fragments(file)
    assert caught.value.code == "TK-FRAG-001"


def test_lanes_of_a_fragment_of_gcn(tmp_path: Path) -> None:
    """What gives EXEC back by a register of its own is read, comments with numbers of registers too."""
    file = tmp_path / "own.s"
    body = "s_mov_b64 ${all}, exec // not s5\ns_mov_b64 exec, 1\nv_mov_b32 ${sum}, ${a}\ns_mov_b64 exec, ${all}\n"
    file.write_text(GCN_HEADER.replace("//! kind", "//! temp  all  pred\n//! kind") + body, "utf-8")
    w = Writer("adds", target="gfx950", threads=64)
    assert w.fragments(file).plus(a=w.thread()).type is U32


def test_files_that_are_none(tmp_path: Path) -> None:
    """A file that is not there (the nearest is named), one without fragments, one that is no text, and no path."""
    written(tmp_path, ADD)
    (tmp_path / "empty.ptx").write_text("// nothing\n", "utf-8")
    (tmp_path / "binary.ptx").write_bytes(b"\xff\xfe\x00")
    w = Writer("adds", target="sm_90a", threads=32)
    for path, message in (
        (tmp_path / "own2.ptx", "nearest: .*own.ptx"),
        (tmp_path / "empty.ptx", "has no fragments"),
        (tmp_path / "binary.ptx", "binary.ptx"),
        (tmp_path, "fragments of"),
        (7, "legal: the path of a fragment file"),
    ):
        with pytest.raises(FragmentError, match=message) as caught:
            w.fragments(path)  # type: ignore[arg-type]  # 7 is what is tried
        assert caught.value.code == "TK-FRAG-001"
    with pytest.raises(FragmentError, match="line 1 defines the same name"):
        w.fragments(_twice(tmp_path))


def _twice(folder: Path) -> Path:
    file = folder / "twice.ptx"
    file.write_text((HEADER.format(name="plus") + ADD) * 2, "utf-8")
    return file


def test_the_page_shows_the_example() -> None:
    """docs/your-own-kernel.md quotes examples/rotate.ptx, whose local `wide` is not the kernel's."""
    root = Path(__file__).parents[2]
    text = (root / "examples/rotate.ptx").read_text("utf-8")
    assert f"```text\n{text}```" in (root / "docs/your-own-kernel.md").read_text("utf-8")
    w = Writer("turns", target="sm_90a", threads=32)
    wide = w.widen_multiply(w.lane(), 4)
    x = w.variable(U32, 3, "x")
    w.fragments(root / "examples/rotate.ptx").rotate(x=x, by=1)
    assert wide.text == "wide"
    assert "mov.b32    wide1, x;" in w.text()


def test_every_text_of_ours_passes() -> None:
    """What is asked of files from elsewhere holds of tilekit's."""
    for dialect in (PTX, GCN):
        for _, fragment in every_fragment(dialect):
            _check_text(fragment, dialect)


def test_random_names_compute_the_same(tmp_path: Path) -> None:
    """Fragments whose locals have names drawn from the kernel's own registers compute what they say."""
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    pool = ["c", "c1", "add", "sum", "smem_base", "out", "plus", "a", "b", "x", "u32", "r0", "wide", "mov", "acc_0"]
    for _ in range(30):
        what = draw.choice(list(BODIES))
        names = draw.choices(pool, k=2)
        file = written(tmp_path, BODIES[what].format(draw.choice(pool)))
        found, text = total(file, first=names[0], second=names[1])
        assert found == 1468, (seed, what, names)
        assert not ptxas_errors(text, "sm_90a"), (seed, what, names)
