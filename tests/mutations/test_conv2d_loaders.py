"""Loaders of convolutions broken at one place are noticed: a part of the sweep, and that its results are current."""

from __future__ import annotations

from typing import Any

import pytest

from .conv2d import UNNOTICED, conv_cases, conv_mutations, why_unnoticed
from .judge import NOT_CAUGHT, judge
from .mutation import Mutation
from .sweep import PAGE
from .sweep_conv2d import SWEEP

ALL = [(name, *mutation) for name, case in conv_cases().items() for mutation in conv_mutations(case)]
SOME = ALL[::13]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", list(conv_cases()))
def test_unbroken_loaders_are_clean(name: str) -> None:
    """Without a mutation the result is right and nothing is reported, under every schedule and seed."""
    assert judge(conv_cases()[name], Mutation("", "", "", "")).caught == NOT_CAUGHT


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize(("launch", "mutation", "change"), SOME, ids=[f"{name}-{m.name}" for name, m, _ in SOME])
def test_noticed_or_explained(launch: str, mutation: Mutation, change: Any) -> None:
    """A mutation is reported or shows in the result, unless it is explained why it does not."""
    verdict = judge(conv_cases()[launch], mutation, change)
    assert (verdict.caught == NOT_CAUGHT) == (why_unnoticed(launch, mutation.name) is not None)


def test_the_results_are_of_these_mutations() -> None:
    """Every mutation there is now has its line, what is unnoticed is explained, and the page has the counts."""
    rows = SWEEP.rows()
    assert [row[:3] for row in rows] == [(launch, m.family, m.name) for launch, m, _ in ALL]
    quiet = {(launch, name) for launch, _, name, caught in rows if caught == NOT_CAUGHT}
    assert quiet == {(launch, m.name) for launch, m, _ in ALL if why_unnoticed(launch, m.name)}
    assert SWEEP.page() == PAGE.read_text("utf-8")


@pytest.mark.parametrize("entry", UNNOTICED, ids=[entry[1] for entry in UNNOTICED])
def test_each_reason_is_about_a_mutation(entry: tuple[tuple[str, ...], str, str]) -> None:
    """In each of its launches."""
    launches, _, why = entry
    for launch in launches:
        assert any(why_unnoticed(launch, m.name) == why for name, m, _ in ALL if name == launch), launch
