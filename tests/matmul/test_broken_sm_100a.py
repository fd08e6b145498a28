"""A broken Blackwell matmul is reported, in words that name the role, the barrier and its phase."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from tests.matmul.broken_sm_100a import KERNELS, Broken
from tests.matmul.bugs_sm_100a import BARRIERS, BROKEN, HARMLESS, miscounted
from tests.mutations.judge import NOT_CAUGHT, WRONG_RESULT, judge
from tests.mutations.mutation import Mutation
from tilekit.emulator import LaunchReport
from tilekit.emulator.ptx.lint.lint import lint

STEP_BUDGET = 100_000
"""More than twice the blocks that an unbroken launch of these executes."""


class Launcher:
    """Runs a text in the place of one of `KERNELS`, as `judge` wants it.

    Attributes
    ----------
    wrong
        What was wrong with the latest result that was.
    """

    def __init__(self, kernel: str) -> None:
        self._case = KERNELS[kernel]
        self._inputs = self._case.inputs(self._case.problem, "integers", 0)
        self._clusters = 2 if self._case.config.split_k > 1 else 1
        self.wrong = ""

    @property
    def text(self) -> str:
        """The unbroken text."""
        return self._case.kernel.ptx

    def run(self, text: str, schedule: Any, seed: int) -> tuple[LaunchReport, bool]:
        """Launch; returns the report and whether the result is right."""
        outcome = self._case.run(
            self._inputs, schedule=schedule, seed=seed, clusters=self._clusters, text=text, step_budget=STEP_BUDGET
        )
        self.wrong = outcome.wrong or self.wrong
        return outcome.report, not outcome.wrong


@cache
def launcher(kernel: str) -> Launcher:
    """The one of a kernel."""
    return Launcher(kernel)


def verdict_of(broken: Broken) -> tuple[str, str]:
    """Kind and text of the report on a bug."""
    runs = launcher(broken.kernel)
    runs.wrong = ""
    mutation = broken.mutation()
    verdict = judge(runs, mutation)  # type: ignore[arg-type]
    if verdict.caught != NOT_CAUGHT:
        return verdict.caught, verdict.message or runs.wrong
    return NOT_CAUGHT, ""


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_caught(broken: Broken) -> None:
    """A bug is reported as what it is: who, where, which barrier and phase; or the result is seen to be wrong."""
    caught, said = verdict_of(broken)
    assert caught == broken.caught, said
    for words in broken.words:
        assert re.search(words, said), f"nothing like {words!r} in\n{said}"


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("broken", list(miscounted()), ids=str)
def test_miscounted(broken: Broken) -> None:
    """Every barrier of the kernel, waiting for an arrival too few or too many, is reported by its name and phase."""
    caught, said = verdict_of(broken)
    assert caught == broken.caught if broken.caught else caught not in (NOT_CAUGHT, WRONG_RESULT)
    for words in broken.words:
        assert re.search(words, said), f"nothing like {words!r} in\n{said}"


@pytest.mark.parametrize(("change", "why"), HARMLESS, ids=[str(change) for change, _ in HARMLESS])
def test_harmless(change: Broken, why: str) -> None:
    """A change that is no bug is not reported under any of the schedules, and its result is right."""
    caught, said = verdict_of(change)
    assert caught == NOT_CAUGHT, f"{why}\n{said}"


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("kernel", KERNELS)
def test_unbroken(kernel: str) -> None:
    """Without a bug nothing is reported, under every schedule that the bugs are judged by."""
    assert judge(launcher(kernel), Mutation("", "", "", "")).caught == NOT_CAUGHT  # type: ignore[arg-type]


def test_every_barrier_is_miscounted() -> None:
    """The miscounted barriers are all that any of the kernels has; there are enough bugs."""
    arrays = {a.name for case in KERNELS.values() for a in case.kernel.text.shared if a.kind == "mbarrier"}
    assert {array for some in BARRIERS.values() for array in some} == arrays
    assert len({broken.name for broken in BROKEN}) == len(BROKEN) >= 60


def test_the_permit_kept_is_seen_without_running() -> None:
    """That an allocation keeps its permit shows in nothing that one CTA does; it is said of the text, by role."""
    (change,) = (change for change, _ in HARMLESS if str(change) == "the permit to allocate kept")
    remarks = lint(change.mutation().apply(KERNELS[change.kernel].kernel.ptx))
    (said,) = (str(remark) for remark in remarks if remark.rule == "tcgen05")
    assert re.search(r"no tcgen05.relinquish_alloc_permit in this kernel: tcgen05.alloc.*\[mma ", said)
