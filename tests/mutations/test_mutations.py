"""A kernel broken at one place is reported, in words that name the place: the fast part of the sweep."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilekit import MatmulConfig, MatmulSpec
from tilekit.emulator.ptx.language.parser import parse_module

from .judge import NOT_CAUGHT, judge
from .known import CLUSTER, LAYERED, ORDER, PINGPONG, SINGLE, STREAMED, UNNOTICED, explanation
from .launches import Case, argument_mutations, cases
from .mutation import Mutation, mutations
from .statements import Program
from .sweep import PAGE, RESULTS

README = Path(__file__).parents[2] / "README.md"
NAMED = ("wait", "arrive", "expect_tx", "init")
"""Families whose report must name a barrier of the ring."""

Chosen = tuple[str, Mutation, Any]


def every() -> Iterator[Chosen]:
    """All mutations of all launches, with the change of arguments that some of them are."""
    for name, case in cases().items():
        yield from ((name, mutation, None) for mutation in mutations(case.text))
        yield from ((name, mutation, change) for mutation, change in argument_mutations(case))


def is_fast(launch: str, mutation: Mutation) -> bool:
    """What runs with the tests: order in a cluster, turns, sums, what two warpgroups show, one of each other kind."""
    if launch == CLUSTER:
        return mutation.family in ORDER or (mutation.ordinal == 0 and mutation.family != "guard")
    if launch == PINGPONG:
        return mutation.family == "barrier" and "BoundPingPong" in mutation.site
    if launch == LAYERED:
        return mutation.family in ORDER and "BoundDsmemReduction" in mutation.site
    if launch == STREAMED:
        here = any(name in mutation.site for name in ("BoundFixup", "BoundWorkspace", "StreamKScheduler"))
        return here and mutation.family in (*ORDER, "loop")
    return launch == SINGLE and mutation.family in ("barrier", "registers", "wgmma", "count")


ALL = list(every())
FAST = [chosen for chosen in ALL if is_fast(*chosen[:2])]


@pytest.mark.sampled(one_in=10)
@pytest.mark.parametrize(("launch", "mutation", "change"), FAST, ids=[f"{c[0]}-{c[1].name}" for c in FAST])
def test_caught_or_explained(launch: str, mutation: Mutation, change: Any) -> None:
    """A mutation is noticed unless it is documented to go unnoticed; broken order is reported by role and barrier."""
    verdict = judge(cases()[launch], mutation, change)
    known = explanation(launch, mutation)
    if known is not None:
        assert verdict.caught == NOT_CAUGHT, f"documented as unnoticed ({known.why}), but reported:\n{verdict.message}"
        return
    assert verdict.caught != NOT_CAUGHT
    if mutation.family in ORDER:
        assert verdict.reported, "only the result is wrong"
        assert re.search(r"role (load|mma) \(warp", verdict.message), verdict.message
        assert re.search(r"line \d+: .+\[\w+ [\w.]+ [\w/]+\.py:\d+\]", verdict.message), verdict.message
    if mutation.family in NAMED:
        assert re.search(r"inputs\.(full|empty)\[\d\]|sum\.(full|empty)", verdict.message), verdict.message


def test_enough_mutations() -> None:
    """The fast part has well over a hundred mutations of every family there is."""
    assert len(FAST) >= 150
    assert {m.family for _, m, _ in ALL} - {m.family for _, m, _ in FAST} == {"guard"}


def test_the_results_are_of_these_mutations() -> None:
    """Every mutation there is now has its line in the results, and no other has; the page says how many."""
    lines = {f"| {m.site} | `{m.instruction}` | {m.change}" for _, m, _ in ALL}
    shown = [line.rsplit(" | ", 2)[0] for line in RESULTS.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert {line for line in shown if not line.startswith("| where")} == lines
    page = PAGE.read_text("utf-8")
    assert f"{len(ALL)} mutations of {len(cases())} launches:" in page


def test_the_readme_says_how_many_there_are() -> None:
    """Those of tilekit's matmuls and of other compilers' kernels, and a line each in the other results; in hundreds."""
    others = re.search(r"^(\d+) mutations of \d+ kernels;", PAGE.read_text("utf-8"), re.MULTILINE)
    assert others
    count = len(ALL) + int(others[1])
    for name in ("amd_matmuls", "attention", "conv2d", "gcn", "scaled"):
        lines = (RESULTS.parent / f"results_{name}.md").read_text("utf-8").splitlines()
        count += sum(line.startswith("| ") for line in lines) - sum(line.startswith("|--") for line in lines)
    assert f"which of some {round(count, -2):,} planted defects" in " ".join(README.read_text("utf-8").split())


@pytest.mark.parametrize("entry", UNNOTICED, ids=[entry.pattern for entry in UNNOTICED])
def test_documented(entry: Any) -> None:
    """Each documented exception is about mutations that exist in its launches, and stands in the documentation."""
    for launch in entry.launches:
        assert any(entry.covers(launch, mutation) for name, mutation, _ in ALL if name == launch), launch
    assert entry.why in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", list(cases()))
def test_unbroken_kernels_are_clean(name: str) -> None:
    """Without a mutation nothing is reported, under every schedule and seed that the mutations run with."""
    case = cases()[name]
    assert judge(case, Mutation("", "", "", "")).caught == NOT_CAUGHT


@pytest.mark.parametrize(("columns", "buffers"), [(64, 2), (192, 2), (128, 3)])
def test_subtiles_that_do_not_fill_the_ring(columns: int, buffers: int) -> None:
    """Tiles whose subtiles are no multiple of the buffers reuse them across tiles without a race."""
    config = MatmulConfig(tile=(64, columns), cluster=(1, 1), consumers=1, stages=2, output_buffers=buffers)
    case = Case("subtiles", config, MatmulSpec(), 256, columns, 128)
    assert judge(case, Mutation("", "", "", "")).caught == NOT_CAUGHT


CORPUS = sorted((Path(__file__).parents[1] / "emulator" / "ptx" / "corpus" / "ptx").rglob("*.sm_90a.ptx"))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_reads_other_compilers_text(path: Path) -> None:
    """Statements of text that tilekit did not write are those that the emulator's parser finds, opcode by opcode."""
    text = path.read_text()
    found = [s.opcode for s in Program.read(text).statements]
    parsed = [i for function in parse_module(text).functions.values() for i in function.instructions]
    assert Counter(opcode.partition(".")[0] for opcode in found) == Counter(i.name.partition(".")[0] for i in parsed)
    made = mutations(text)
    for mutation in made[:: len(made) // 4 + 1]:
        assert len(Program.read(mutation.apply(text)).statements) >= len(found) - 2
