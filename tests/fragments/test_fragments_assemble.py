"""Every fragment alone, through the real assembler."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fragment_entries import (
    CHIPS_BY_NAME,
    TARGETS,
    all_fragments,
    cases,
    claimed_targets,
    extremes,
    module,
    ptxas_errors,
    rejected,
)

import tilekit
from tilekit.assembly.fragment import KINDS, Fragment
from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.assembly.writer import Writer
from tilekit.targets import CAPABILITIES, CHIPS

EVERY = [pytest.param(group, fragment, id=f"{group}.{fragment.name}") for group, fragment in all_fragments()]
EVERY_TARGET = [
    pytest.param(group, fragment, target, id=f"{group}.{fragment.name}-{target}")
    for group, fragment in all_fragments()
    for target in claimed_targets(fragment)
]


@pytest.mark.parametrize(("group", "fragment", "target"), EVERY_TARGET)
def test_assembles_alone(group: str, fragment: Fragment, target: str) -> None:
    """ptxas takes the fragment with fresh registers, at both ends of every immediate, for every target it claims."""
    found = rejected(target, 1)
    assert {c.entry: found.get(c.entry) for c in cases(group, fragment)} == dict.fromkeys(
        c.entry for c in cases(group, fragment)
    )


@pytest.mark.parametrize("target", sorted({case.values[2] for case in EVERY_TARGET}))
def test_each_assembles_twice_in_one_scope(target: str) -> None:
    """A fragment's labels and temporaries do not clash with those of its own second use."""
    assert rejected(target, 2) == {}


@pytest.mark.parametrize(
    ("target", "version"), sorted({(f.target, f.version) for _, f in all_fragments()}), ids=lambda v: str(v)
)
def test_stated_version_is_enough(target: str, version: tuple[int, int]) -> None:
    """A module of exactly the PTX version and target that fragments name assembles with all of them in it."""
    chosen = [c for g, f in all_fragments() if (f.target, f.version) == (target, version) for c in cases(g, f)]
    assert ptxas_errors(module(chosen, target=target, version=version), target) == []


def test_chip_specific_targets_are_needed() -> None:
    """ptxas refuses wgmma and setmaxnreg for sm_90, and wgmma for sm_100a: no chip is claimed too narrowly."""
    for word, targets in (("wgmma.", ("sm_90", "sm_100a")), ("setmaxnreg.", ("sm_90",))):
        chosen = [(g, f) for g, f in all_fragments() if f.text[0].startswith(word)]
        assert chosen
        for group, fragment in chosen:
            text = module([next(cases(group, fragment))], target=fragment.target)
            for target in targets:
                elsewhere = re.sub(r"\.version 8\.[06]", ".version 9.0", text.replace(fragment.target, target))
                assert ptxas_errors(elsewhere, target), f"{group}.{fragment.name} assembles for {target}"
                assert not fragment.runs_on(CHIPS_BY_NAME[target])


@pytest.mark.parametrize(("group", "fragment"), EVERY)
def test_header_is_complete(group: str, fragment: Fragment) -> None:
    """Every fragment says what it does, where the vendor documents it, its kind and its target."""
    assert re.fullmatch(r"\S.*[.]", fragment.about), "about: one sentence with its full stop"
    assert len(fragment.see) > 5
    assert fragment.kind in KINDS
    assert fragment.file.parent.name == fragment.target.removesuffix("a"), "the folder is the lowest architecture"
    assert fragment.text


@pytest.mark.parametrize(("group", "fragment"), EVERY)
def test_aligned_instructions_are_declared_aligned(group: str, fragment: Fragment) -> None:
    """An instruction that all lanes must run together makes its fragment `aligned`; `bar.warp.sync` realigns them."""
    text = " ".join(fragment.text)
    needs = re.search(r"\.aligned|\bbar\.(sync|arrive)|(shfl|elect|vote)\.sync", text) is not None
    assert fragment.aligned == needs


@pytest.mark.parametrize(("group", "fragment"), EVERY)
def test_runs_on_the_targets_it_claims(group: str, fragment: Fragment) -> None:
    """`runs_on` agrees with what was assembled."""
    assert [t for t in TARGETS if fragment.runs_on(CHIPS[t])] == claimed_targets(fragment)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_chip_without_a_capability_lacks_its_fragments(capability: str) -> None:
    """Some fragment needs it, which a chip that is alike but for it does not run; or a component asks for it."""
    every = (fragment for dialect in DIALECTS.values() for _, fragment in every_fragment(dialect))
    needing = [fragment for fragment in every if capability in fragment.needs]
    asked = f'.has("{capability}")'
    components = (Path(tilekit.__file__).parent / "tile_op").glob("*.py")
    assert needing or any(asked in file.read_text("utf-8") for file in components)
    for fragment in needing:
        chips = [chip for chip in CHIPS.values() if fragment.runs_on(chip)]
        assert chips, fragment
        assert not any(fragment.runs_on(replace(t, capabilities=t.capabilities - {capability})) for t in chips)


def test_immediates_keep_to_their_rules() -> None:
    """The ends of every range and every word are legal; what lies outside or between is not, and the nearest is."""
    for _, fragment in all_fragments():
        for immediate in fragment.immediates:
            ends = extremes(immediate)
            assert [immediate.spell(end) for end in ends] == [str(end) for end in ends]
            outside = [ends[0] - 1, ends[-1] + 1, 0.5, "x"] if isinstance(ends[0], int) else ["f64", 0]
            for value in outside:
                assert immediate.spell(value) is None
                assert immediate.nearest(value) in {str(legal) for legal in immediate.values}


def test_local_names_do_not_hide_operands() -> None:
    """Registers called like a fragment's own labels and temporaries reach it under another name."""
    chosen = [(g, f) for g, f in all_fragments() if f.locals]
    assert {f.name for _, f in chosen} >= {"wait_parity", "widen_bf16", "response"}
    for group, fragment in chosen:
        case, target = next(cases(group, fragment)), claimed_targets(fragment)[-1]
        for hint in sorted(fragment.locals):
            w = Writer(case.entry, target=target, threads=128)
            operands = {o.name: w.new(o.type, hint, uniform=True) for o in fragment.operands if o.direction != "out"}
            w.place(fragment, **operands, **dict(case.immediates))
            assert not {v.text for v in operands.values()} & fragment.locals
            assert ptxas_errors(w.text(), target) == []


def test_what_reaches_another_cta_needs_clusters() -> None:
    """Accesses and arrivals in another CTA's shared memory, multicasts and CTA pairs say that they need clusters."""
    remote = (
        r"multicast::cluster|(ld|st)\.shared::cluster|st\.async|mbarrier\.arrive\S*shared::cluster|cta_group::2|mapa"
    )
    reaching = [fragment for _, fragment in all_fragments() if re.search(remote, " ".join(fragment.text))]
    assert len(reaching) > 15
    assert not [fragment.name for fragment in reaching if "clusters" not in fragment.needs]
