"""Block-scaled products broken at one place are noticed: a part of the sweep, and that its results are explained."""

from __future__ import annotations

import pytest

from .judge import NOT_CAUGHT, judge
from .mutation import Mutation
from .scaled import UNNOTICED, scaled_cases, scaled_mutations, why_unnoticed
from .sweep import PAGE
from .sweep_scaled import SWEEP

NAMES = ("nvfp4, a pair", "to mxfp8, 128x4", "to nvfp4, rows, stored by threads")
USUAL = [(name, 5) for name in NAMES]
FURTHER = [pytest.param(name, part, marks=pytest.mark.breadth) for name in NAMES for part in range(16) if part != 5]


@pytest.mark.breadth
@pytest.mark.parametrize("name", NAMES)
def test_unbroken_products_are_clean(name: str) -> None:
    """Without a mutation the result is right and nothing is reported, under every schedule and seed."""
    assert judge(scaled_cases()[name], Mutation("", "", "", "")).caught == NOT_CAUGHT


@pytest.mark.parametrize(("launch", "part"), [*USUAL, *FURTHER])
def test_noticed_or_explained(launch: str, part: int) -> None:
    """A mutation, of sixteen over the launch's, is reported or shows in the result, unless it is explained why not."""
    case = scaled_cases()[launch]
    every = list(scaled_mutations(case))
    mutation = every[len(every) * part // 16]
    verdict = judge(case, mutation)
    assert verdict.caught != NOT_CAUGHT or why_unnoticed(launch, mutation.name) is not None


def test_the_results_are_explained() -> None:
    """What is unnoticed has its reason, the page has the counts, and what was tried is still in the kernels."""
    assert not SWEEP.unexplained()
    assert SWEEP.page() == PAGE.read_text("utf-8")
    assert tuple(scaled_cases()) == NAMES
    present = {(name, mutation.name) for name, case in scaled_cases().items() for mutation in scaled_mutations(case)}
    assert sum((launch, name) in present for launch, _, name, _ in SWEEP.rows()) > len(SWEEP.rows()) / 2


@pytest.mark.parametrize("entry", UNNOTICED, ids=[entry[0] for entry in UNNOTICED])
def test_each_reason_is_about_a_mutation(entry: tuple[str, str]) -> None:
    """That was tried."""
    assert any(
        why_unnoticed(launch, name) == entry[1] for launch, _, name, caught in SWEEP.rows() if caught == NOT_CAUGHT
    )
