"""Attention broken at one place is noticed: a part of the sweep, and that its results are explained."""

from __future__ import annotations

import pytest

from tests.generated import with_tables

from .attention import UNNOTICED, attention_cases, tried, why_unnoticed
from .judge import NOT_CAUGHT, judge
from .mutation import Mutation, mutations
from .sweep import PAGE
from .sweep_attention import results, table

ALL = [(name, mutation) for name, case in attention_cases().items() for mutation in tried(case)]
USUAL = ALL[::80]
FURTHER = [pytest.param(*one, marks=pytest.mark.breadth) for one in ALL[::8] if one not in USUAL]
USUAL_LAUNCHES = "sm_90a, few queries", "sm_90a, packed"


@pytest.mark.parametrize(
    "name",
    [name if name in USUAL_LAUNCHES else pytest.param(name, marks=pytest.mark.breadth) for name in attention_cases()],
)
def test_unbroken_attention_is_clean(name: str) -> None:
    """Without a mutation the result is right and nothing is reported, under every schedule and seed."""
    assert judge(attention_cases()[name], Mutation("", "", "", "")).caught == NOT_CAUGHT


@pytest.mark.parametrize(("launch", "mutation"), [*USUAL, *FURTHER])
def test_noticed_or_explained(launch: str, mutation: Mutation) -> None:
    """A mutation is reported or shows in the result, unless it is explained why it does not."""
    verdict = judge(attention_cases()[launch], mutation)
    assert verdict.caught != NOT_CAUGHT or why_unnoticed(launch, mutation.name) is not None


def test_the_results_are_explained() -> None:
    """What is unnoticed has its reason, the page has the counts, and most of what was tried is still in the kernels."""
    rows = results()
    for launch, _, _, name, caught in rows:
        assert caught != NOT_CAUGHT or why_unnoticed(launch, name), (launch, name)
    page = PAGE.read_text("utf-8")
    assert with_tables(page, {"attention": table()}) == page
    present = {(name, m.name) for name, case in attention_cases().items() for m in mutations(case.text)}
    assert sum((launch, name) in present for launch, _, _, name, _ in rows) > len(rows) / 2


@pytest.mark.parametrize("entry", UNNOTICED, ids=[entry[0] for entry in UNNOTICED])
def test_each_reason_is_about_a_mutation(entry: tuple[str, str]) -> None:
    """That was tried."""
    assert any(
        why_unnoticed(launch, name) == entry[1] for launch, _, _, name, caught in results() if caught == NOT_CAUGHT
    )
