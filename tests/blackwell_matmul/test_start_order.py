"""Shares of a sum wait for each other whatever the order in which clusters start, and however few of them run."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tilekit.dtypes import BF16
from tilekit.emulator import Livelock, StepBudgetExceeded

from .case import Case
from .configs import computes, pairs, single
from .inputs import Inputs

CASES = {
    "one CTA": Case(single(128, 64, stages=4, split_k=3), tiles=(2, 2), k_blocks=5),
    "no claims": Case(single(128, 64, stages=4, split_k=2, clc_stages=0), tiles=(3, 1), k_blocks=4),
    "pair": Case(pairs(128, 64, stages=2, split_k=2), computes(residual=BF16), tiles=(2, 1), k_blocks=4),
    "cluster": Case(single(64, 64, stages=2, split_k=3, cluster=(2, 1)), tiles=(1, 3), k_blocks=3),
}
STARTS = ("ascending", "descending", "random")


@cache
def inputs(name: str) -> Inputs:
    """What a case multiplies."""
    return CASES[name].inputs(CASES[name].problem, "integers", 0)


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("name", CASES)
def test_any_order(name: str, starts: str) -> None:
    """One or two clusters at a time, started in any order: the launch ends, and its sums are exact."""
    for seed, clusters in ((0, 1), (1, 2), (2, 1)):
        outcome = CASES[name].run(inputs(name), seed=seed, clusters=clusters, starts=starts)
        assert not outcome.wrong
        assert outcome.report.clean, str(outcome.report)


def test_numbers_of_the_grid() -> None:
    """Numbered by the grid instead, as every cluster was once, a share waits for one that has no place to start."""
    case, given = CASES["one CTA"], inputs("one CTA")
    text, count = re.subn(r"ld\.shared\.u32 (\w+), \[\w+\];(.*StartOrder)", r"mov.u32 \1, %ctaid.x;\2", case.kernel.ptx)
    assert count >= 3, "every role reads the number"
    assert not case.run(given, clusters=1, text=text).wrong
    with pytest.raises((StepBudgetExceeded, Livelock), match=r"ld\.acquire\.gpu\.global"):
        case.run(given, clusters=1, starts="descending", text=text)


def test_nobody_claims_shares() -> None:
    """A kernel whose tiles' sums are shared has no role that claims, and one that counts its clusters as they start."""
    case = CASES["one CTA"]
    assert case.config.clc_stages
    assert not case.config.claims_tiles
    assert "clusterlaunchcontrol" not in case.kernel.ptx
    assert case.kernel.ptx.count("atom.relaxed.gpu.global.inc.u32") == 1
