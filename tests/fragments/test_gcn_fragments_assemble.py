"""Every GCN fragment alone, through the real assembler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fragment_entries import all_fragments
from gcn_entries import cases, claimed_chips, entry, gcn_fragments, rejected, said_of, symbol

from tilekit.assembly.fragment import KINDS, Fragment
from tilekit.assembly.fragment_files import fragments_of
from tilekit.assembly.verbs import NEUTRAL
from tilekit.targets import CAPABILITIES, GFX950

EVERY = [
    pytest.param(group, fragment, chip, id=f"{fragment.file.parent.name}-{group}.{fragment.name}-{chip}")
    for group, fragment in gcn_fragments()
    for chip in claimed_chips(fragment)
]
PACKAGE = Path(__file__).resolve().parents[2] / "tilekit"


@pytest.mark.parametrize(("group", "fragment", "chip"), EVERY)
def test_assembles_alone(group: str, fragment: Fragment, chip: str) -> None:
    """LLVM takes it twice in a kernel, at both ends of every immediate, for every chip that it claims."""
    found = rejected(chip)
    assert {symbol(case): found.get(symbol(case)) for case in cases(group, fragment)} == dict.fromkeys(
        symbol(case) for case in cases(group, fragment)
    )


def test_the_check_finds_what_is_wrong() -> None:
    """A fragment of a later chip is rejected, with its name: the assembler is asked, and the answer is looked at."""
    group, fragment = next((g, f) for g, f in gcn_fragments() if f.name == "read_transposed_b16")
    case = cases(group, fragment)[0]
    text = entry(case, "gfx950").text()
    found = said_of(
        {"fine": entry(case, "gfx950").text().replace("ds_read_b64_tr_b16", "ds_read_b64"), "bad": text}, "gfx942"
    )
    assert list(found) == ["bad"]
    assert "not supported" in found["bad"][0]


def test_every_fragment_is_documented() -> None:
    """Each says what it is about, and where the vendor does; names are words; a chip has it."""
    for group, fragment in gcn_fragments():
        assert fragment.about.endswith("."), fragment
        assert fragment.see, fragment
        assert fragment.kind in KINDS
        assert fragment.needs <= CAPABILITIES.keys()
        words = [group, fragment.name, *(o.name for o in fragment.operands), *(i.name for i in fragment.immediates)]
        assert all(word.isidentifier() for word in words), fragment
        assert claimed_chips(fragment), f"no chip runs {fragment.name}"


def test_neutral_fragments_are_called_alike() -> None:
    """What stands in neutral files of both instruction sets has the same operands and immediates by name and type."""
    ptx = {(g, f.name): f for g, f in all_fragments() if g in NEUTRAL}
    gcn = {(g, f.name): f for g, f in gcn_fragments() if g in NEUTRAL}
    both = ptx.keys() & gcn.keys()
    assert len(both) > 40
    for name in both:
        shapes = [
            ({(o.direction, o.name, o.wanted) for o in f.operands}, {i.name for i in f.immediates}, f.kind)
            for f in (ptx[name], gcn[name])
        ]
        assert shapes[0] == shapes[1], name


def test_what_shared_components_place_is_there() -> None:
    """Each neutral fragment that a file of the framework places exists in GCN, or needs what AMD chips lack."""
    placed = {
        (match[1], match[2])
        for file in PACKAGE.rglob("*.py")
        for match in re.finditer(r"\.isa\.(\w+)\.(\w+)", file.read_text("utf-8"))
    }
    assert len(placed) > 40
    library = fragments_of(GFX950)
    ptx = {(g, f.name): f for g, f in all_fragments()}
    lacking = {name for name in placed if name[1] not in library.get(name[0], {})}
    assert {name for name in lacking if not (ptx[name].needs - GFX950.capabilities)} == set()


def test_a_fragment_s_registers_and_labels_are_its_own() -> None:
    """Placed twice, a fragment with labels and temporaries has two of each."""
    group, fragment = next((g, f) for g, f in gcn_fragments() if (g, f.name) == ("counter", "wait_parity"))
    text = entry(cases(group, fragment)[0], "gfx942").text()
    labels = re.findall(r"^\s*(\.L\S+):$", text, re.M)
    assert len(labels) == len(set(labels)) == 2
    assert len(re.findall(r"s_cbranch_vccnz (\S+)", text)) == 2
