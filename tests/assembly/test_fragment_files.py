"""Reading fragment files: what a header may say, and what is wrong with one that says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilekit.assembly.errors import FragmentError
from tilekit.assembly.fragment import KINDS, fragment_root
from tilekit.assembly.fragment_files import every_fragment, fragments_of, parse_fragments
from tilekit.assembly.instruction_sets import PTX
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.targets import SM_90A

GOOD = """// A comment of the file.
//! fragment  bump
//! about     Add `by` to `x`, and say what it
//!           was before.
//! inout     x       u32
//! out       before  u32
//! imm       by      1..9 step 2
//! kind      scalar
//! uniform
//! target    sm_90  ptx 8.0
//! see       PTX ISA, add
// A comment inside.
{
    .reg .u32  kept, other;
again:
    mov.u32  kept, ${x};
    mov.u32  ${before}, kept;
    add.u32  ${x}, ${x}, ${by};
}
"""


def write(folder: Path, text: str) -> Path:
    """A fragment file."""
    file = folder / "some.ptx"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_header_is_read(tmp_path: Path) -> None:
    """Name, texts over several lines, operands, rules, flags, target and the body without its comments."""
    (fragment,) = parse_fragments(write(tmp_path, GOOD), PTX)
    assert (fragment.name, fragment.line, fragment.kind) == ("bump", 2, "scalar")
    assert fragment.about == "Add `by` to `x`, and say what it was before."
    assert [(o.direction, o.name, o.wanted) for o in fragment.operands] == [
        ("inout", "x", "u32"),
        ("out", "before", "u32"),
    ]
    assert [i.spell(5) for i in fragment.immediates] == ["5"]
    assert (fragment.uniform, fragment.aligned) == (True, False)
    assert (fragment.target, fragment.version) == ("sm_90", (8, 0))
    assert fragment.locals == {"kept", "other", "again"}
    assert not any("comment" in line for line in fragment.text)


def test_an_inout_operand_is_overwritten(tmp_path: Path) -> None:
    """A fragment that is not uniform makes the register it changes differ from lane to lane; a uniform one does not."""
    for text, uniform in ((GOOD, True), (GOOD.replace("//! uniform\n", ""), False)):
        (fragment,) = parse_fragments(write(tmp_path, text), PTX)
        w = Writer("k", target="sm_90a", threads=32)
        x = w.constant(U32, 3)
        before = w.place(fragment, x=x, by=1)
        assert before.uniform == x.uniform == uniform
        assert f"add.u32  {x.text}, {x.text}, 1;" in w.text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("inout     x       u32", "inout     x       u31", "some.ptx:5: fragment bump: 'u31' is no register type"),
        ("//! kind      scalar", "//! kind      scaler", "some.ptx:2: fragment bump: kind 'scaler' is none of"),
        ("//! kind      scalar\n", "", "kind '' is none of"),
        ("sm_90  ptx 8.0", "sm_90", "`target` must read like `sm_90a ptx 8.0`"),
        ("sm_90  ptx 8.0", "hopper ptx 8.0", "`target` must read like `sm_90a ptx 8.0`"),
        ("1..9 step 2", "1 to 9", "some.ptx:7: fragment bump: immediate rule '1 to 9' must read like"),
        ("1..9 step 2", "9..1", "immediate rule '9..1' must read like"),
        ("//! uniform\n", "//! needs     elects\n", "'elects' is no capability of a target; nearest: elect"),
        ("//! uniform", "//! uniformly", "some.ptx:9: fragment bump: unknown header line 'uniformly'"),
        ("add.u32  ${x}, ${x}, ${by}", "add.u32  ${x}, ${x}, 1", "declared and never used: ['by']"),
        ("add.u32  ${x}, ${x}, ${by}", "add.u32  ${x}, ${y}, ${by}", "used and never declared: ['y']"),
        ("out       before  u32", "out       before  u32[*]", "output before has no fixed length"),
        ("// A comment of the file.", "//! about     Too early.", "some.ptx:1: header line before any"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Each malformed header is refused when the file is read, not when the fragment is used."""
    assert old in GOOD
    with pytest.raises(FragmentError) as caught:
        parse_fragments(write(tmp_path, GOOD.replace(old, new, 1)), PTX)
    assert caught.value.code == "TK-FRAG-001"
    assert message in str(caught.value)


def test_the_library_is_found_and_complete() -> None:
    """All files are read, one group a file name, and every kind of fragment is in use."""
    library = fragments_of(SM_90A)
    files = {file.stem for file in (fragment_root() / "ptx").rglob("*.ptx")}
    assert set(library) == files
    assert {"tma", "mbarrier", "wgmma", "memory"} <= files
    assert {fragment.kind for _, fragment in every_fragment(PTX)} == set(KINDS)


def test_calls_are_python_names() -> None:
    """Every group, fragment and operand can be written in a Python call."""
    for name, fragment in every_fragment(PTX):
        words = [name, fragment.name, *(o.name for o in fragment.operands), *(i.name for i in fragment.immediates)]
        assert all(word.isidentifier() for word in words), fragment
        assert len(set(words[2:])) == len(words[2:]), fragment
