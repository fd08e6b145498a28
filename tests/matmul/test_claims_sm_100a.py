"""Blackwell's tiles are claimed by clusters that are free, and plans without claims use the whole device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.matmul.launches_sm_100a import pairs, single
from tests.matmul.matmul_launch import LaunchCase
from tilekit.emulator.ptx.execution.scheduler import Machine
from tilekit.kernels.plan import EmulatedPlan


@pytest.mark.parametrize("clusters", [1, 2])
def test_tiles_are_claimed(monkeypatch: pytest.MonkeyPatch, clusters: int) -> None:
    """With claims, clusters take over at least two tiles each; without, the grid is as small as the device."""
    claimed: list[object] = []
    cancel = Machine.cancel_waiting

    def counted(machine: Machine) -> tuple[int, int, int] | None:
        claimed.append(cancel(machine))
        return claimed[-1]  # type: ignore[return-value]

    monkeypatch.setattr(Machine, "cancel_waiting", counted)
    for config in (single(128, 208, stages=3), pairs(128, 128, (2, 1), stages=4)):
        case = LaunchCase(config, tiles=(4, 2), k_blocks=1)
        claimed.clear()
        outcome = case.run(case.inputs(case.problem, "integers", 0), clusters=clusters)
        assert outcome.started == clusters
        assert outcome.tiles == 8
        assert len([c for c in claimed if c is not None]) == 8 - clusters >= 2 * clusters
        assert claimed.count(None) == clusters, "each asks until it is refused, and no more"
    static = LaunchCase(pairs(128, 64, clc_stages=0), tiles=(4, 2), k_blocks=1)
    claimed.clear()
    outcome = static.run(static.inputs(static.problem, "integers", 0), clusters=clusters)
    assert (outcome.started, outcome.tiles, claimed) == (clusters, 8, [])


def test_bound_plans_use_the_whole_device() -> None:
    """`bind` launches as many clusters of a static schedule as the emulated device has room for."""
    case = LaunchCase(pairs(128, 64, clc_stages=0), tiles=(3, 2), k_blocks=1)
    inputs = case.inputs(case.problem, "integers", 0)
    a = np.zeros((case.problem.m, 64), inputs.a.dtype)[:, : case.problem.k]
    b = np.zeros((case.problem.n, 64), inputs.b.dtype)[:, : case.problem.k]
    a[...], b[...] = inputs.a, inputs.b.T
    for multiprocessors, clusters in ((2, 1), (5, 2), (12, 6), (None, 6)):
        plan = case.kernel.bind(a, b.T, multiprocessors=multiprocessors)
        assert isinstance(plan, EmulatedPlan)
        assert np.array_equal(plan().astype(np.float32), inputs.expected.astype(np.float32))
        assert plan.report.grid == (2 * clusters, 1, 1)
