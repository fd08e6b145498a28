"""Kernels whose CTAs wait for each other end in whatever order clusters start, and however few of them run."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from tests.matmul.launches_sm_90a import consumers, launched
from tests.matmul.launches_sm_100a import pairs, single
from tests.matmul.matmul_launch import LaunchCase, computes
from tests.matmul.matmul_launch_data import Inputs
from tilekit.dtypes import BF16
from tilekit.emulator import Livelock, StepBudgetExceeded

Runs = tuple[tuple[str, int, int], ...]
"""Schedules, seeds, and clusters that the device has room for."""

ONE_OR_TWO: Runs = (("adversarial", 0, 1), ("adversarial", 1, 2), ("adversarial", 2, 1))


def small(**knobs: Any) -> Any:
    """One of Hopper's configs."""
    return consumers(64, 64, **{"stages": 2, "output_buffers": 1, **knobs})


def room(clusters: int) -> Runs:
    """Hopper's grids are as large as the device: a launch of each schedule."""
    return (("adversarial", 0, clusters), ("random", 1, clusters))


CASES: dict[str, tuple[LaunchCase, Runs]] = {
    "one CTA": (LaunchCase(single(128, 64, stages=4, split_k=3), tiles=(2, 2), k_blocks=5), ONE_OR_TWO),
    "no claims": (
        LaunchCase(single(128, 64, stages=4, split_k=2, clc_stages=0), tiles=(3, 1), k_blocks=4),
        ONE_OR_TWO,
    ),
    "pair": (
        LaunchCase(pairs(128, 64, stages=2, split_k=2), computes(residual=BF16), tiles=(2, 1), k_blocks=4),
        ONE_OR_TWO,
    ),
    "cluster": (LaunchCase(single(64, 64, stages=2, split_k=3, cluster=(2, 1)), tiles=(1, 3), k_blocks=3), ONE_OR_TWO),
    "turns, one wave": (launched(small(split_k=3), 128, 64, 384), room(6)),
    "turns, three waves": (launched(small(split_k=2), 192, 64, 256), room(2)),
    "turns of clusters": (launched(small(split_k=2, cluster=(2, 1)), 256, 64, 256), room(2)),
    "streamed": (launched(small(stream_k=4), 576, 64, 320), room(4)),
    "streamed behind a wave": (launched(small(stream_k=2), 448, 64, 192), room(3)),
    "in a cluster": (launched(small(cluster_k=2), 192, 64, 320), room(2)),
}
STARTS = ("ascending", "descending", "random")


@cache
def inputs(name: str) -> Inputs:
    """What a case multiplies."""
    case, _ = CASES[name]
    return case.inputs(case.problem, "integers", 0)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("name", CASES)
def test_any_order(name: str, starts: str) -> None:
    """Clusters that start in any order, on a device for few of them: the launch ends, and its sums are exact."""
    case, runs = CASES[name]
    for schedule, seed, clusters in runs:
        outcome = case.run(inputs(name), schedule=schedule, seed=seed, clusters=clusters, starts=starts)
        assert not outcome.wrong
        assert outcome.report.clean, str(outcome.report)


def test_numbers_of_the_grid() -> None:
    """Numbered by the grid instead, as every cluster was once, a share waits for one that has no place to start."""
    (case, _), given = CASES["one CTA"], inputs("one CTA")
    text, count = re.subn(r"ld\.shared\.u32 (\w+), \[\w+\];(.*StartOrder)", r"mov.u32 \1, %ctaid.x;\2", case.kernel.ptx)
    assert count >= 3, "every role reads the number"
    assert not case.run(given, clusters=1, text=text).wrong
    with pytest.raises((StepBudgetExceeded, Livelock), match=r"ld\.acquire\.gpu\.global"):
        case.run(given, clusters=1, starts="descending", text=text)


def test_shares_are_never_claimed() -> None:
    """A kernel whose tiles' sums are shared has no role that claims, and one that counts its clusters as they start."""
    case, _ = CASES["one CTA"]
    assert case.config.clc_stages
    assert not case.config.claims_tiles
    assert "clusterlaunchcontrol" not in case.kernel.ptx
    assert case.kernel.ptx.count("atom.relaxed.gpu.global.inc.u32") == 1
