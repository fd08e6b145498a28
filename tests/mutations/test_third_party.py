"""Other compilers' kernels, broken at one place: the fast part of the sweep, and three planted bugs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from . import sweep_corpus
from .judge import NOT_CAUGHT, judge
from .known import Unnoticed
from .mutation import Mutation
from .planted import PLANTED, Planted
from .sweep import PAGE
from .sweep_third_party import RESULTS, planted_report
from .third_party import KERNELS, PROTOCOL, chosen, kernels
from .third_party_known import UNNOTICED, explanation

WORDS = {
    "wait": r"mbarrier|missing edge|wgmma|wait for",
    "arrive": r"arriv|expect",
    "expect_tx": r"expect|arriv|bytes",
    "init": r"initialis|arrival|barrier",
    "fence": r"fence|initialis|tensor map",
    "wgmma": r"wgmma",
    "group": r"cp\.async|group|race",
    "barrier": r"bar|missing edge|warp",
    "cluster": r"barrier\.cluster|cluster|exited|initialis",
    "tcgen05": r"tcgen05|mbarrier|tensor memory|arriv",
    "cancel": r"mbarrier|bytes|clusterlaunchcontrol",
}
"""What a report on a mutation of a family must speak of."""

ALL = [(name, mutation) for name, kernel in kernels().items() for mutation in chosen(kernel)]


def fast() -> Iterator[tuple[str, Mutation]]:
    """What runs with the tests: all of the smallest kernels, of the others the first of each family and instruction."""
    seen = set()
    for name, mutation in ALL:
        if mutation.family in PROTOCOL and explanation(name, mutation) is None:
            alike = (name, mutation.family, mutation.instruction)
            if name.startswith("nvcc/") or alike not in seen:
                yield name, mutation
            seen.add(alike)


FAST = list(fast())


@pytest.mark.sampled(one_in=10)
@pytest.mark.parametrize(("name", "mutation"), FAST, ids=[f"{name}-{m.name}" for name, m in FAST])
def test_reported(name: str, mutation: Mutation) -> None:
    """Broken order in a kernel that another compiler wrote is reported at a line, in words about what is broken."""
    verdict = judge(kernels()[name], mutation)
    assert verdict.reported, verdict.caught
    assert re.search(WORDS[mutation.family], verdict.message), verdict.message
    assert re.search(r"line \d+: ", verdict.message), verdict.message


@pytest.mark.parametrize("bug", PLANTED, ids=[bug.title for bug in PLANTED])
def test_planted(bug: Planted) -> None:
    """A bug that people make is found, with both accesses or the barrier, and the missing edge; the page shows it."""
    kernel = kernels()[bug.kernel]
    verdict = judge(kernel, bug.mutation(kernel.text))
    assert verdict.caught == bug.caught
    for words in bug.words:
        assert re.search(words, verdict.message), verdict.message
    assert planted_report(PLANTED.index(bug)) in PAGE.read_text()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("entry", UNNOTICED, ids=[f"{entry.launches[0]}-{entry.pattern}" for entry in UNNOTICED])
def test_unnoticed(entry: Unnoticed) -> None:
    """Each documented exception has a mutation that nothing notices indeed, and its reason stands on the page."""
    name, mutation = next((n, m) for n, m in reversed(ALL) if explanation(n, m) is entry)
    assert judge(kernels()[name], mutation).caught == NOT_CAUGHT
    assert entry.why in PAGE.read_text()


def test_products_in_another_order() -> None:
    """Factors of two products of a sum exchanged are no bug: nothing is reported, and the result is right."""
    verdicts = sweep_corpus.verdicts_of(("exchanged with the one before",), "triton/gluon_two_ctas-sm_100a")
    assert [v.caught for v in verdicts] == [NOT_CAUGHT] * 3


def test_enough() -> None:
    """The kernels and mutations are as many as the page says, and the fast part has over a hundred."""
    assert f"{len(ALL)} mutations of {len(KERNELS)} kernels;" in PAGE.read_text("utf-8")
    assert len(FAST) >= 100
    assert {m.family for _, m in FAST} == set(PROTOCOL)


def test_the_results_are_of_these_mutations() -> None:
    """Every mutation there is now has its line in the results, and no other has."""
    lines = {f"| {m.site} | `{m.instruction}` | {m.change}" for _, m in ALL}
    shown = [line.rsplit(" | ", 2)[0] for line in RESULTS.read_text("utf-8").splitlines() if line.startswith("| line")]
    assert len(shown) == len(ALL)
    assert set(shown) == lines
