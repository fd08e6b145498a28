"""Attention's own time stamps: complete, in order, and not there at all unless they are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilekit
from tests.attention.cases import Case, expected, worst
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.attention.compiled import AttentionKernel

CHIPS = ("sm_90a", "sm_100a")


def lanes(config: Any) -> tuple[str, ...]:
    """Activities of a config, each of its warpgroups a lane."""
    if isinstance(config, tilekit.AttentionConfig):
        activities = {"load": 1, "mma": config.warpgroups, "epilogue": config.warpgroups}
    else:
        activities = {"load": 1, "mma": 1, "softmax": config.tiles, "correction": 1}
    return tuple(f"{name} {group}" if group else name for name, groups in activities.items() for group in range(groups))


def traced(chip: Any, case: Case, tiles: int = 64) -> tuple[Any, AttentionKernel]:
    """The times of a launch whose results are right, and its kernel."""
    q, k, v = case.arrays(5)
    usual = tilekit.attention_kernel_for(q, k, v, target=chip, **case.options)
    kernel = tilekit.compile(usual.spec, chip, replace(usual.config, profile_tiles=tiles))
    assert isinstance(kernel, AttentionKernel)
    plan: Any = kernel.bind(q, k, v, multiprocessors=3, **case.options)
    assert worst(plan(), expected(q, k, v, **case.options)[0], v, case.dtype) < 1.5
    assert plan.report.findings == ()
    return plan.trace(), kernel


@pytest.mark.parametrize("chip", ["sm_90a", pytest.param("sm_100a", marks=pytest.mark.breadth)])
def test_every_tile_is_noted_by_every_role(chip: str) -> None:
    """Each activity leaves a record for each tile: its first query, its head among all; roles follow each other."""
    case = Case(2, 300, 300, 3, 1, 64, 64, options={"causal": True})
    found, kernel = traced(chip, case)
    assert found.lanes == lanes(kernel.config)
    expected_places = sorted((row, head) for row in range(0, 300, kernel.config.queries) for head in range(6))
    times: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    for index, lane in enumerate(found.lanes):
        filled = [record for record in found.records[:, index].flat if record["turn"]]
        times[lane] = {(int(r["row"]), int(r["column"])): (int(r["begin"]), int(r["end"])) for r in filled}
        assert sorted(times[lane]) == expected_places, lane
        assert len(filled) == len(expected_places)
        assert all(begin < end for begin, end in times[lane].values())
    first, last = ("mma", "epilogue") if chip == "sm_90a" else ("softmax", "correction")
    for place, (begin, _) in times["load"].items():
        assert begin < times[first][place][1]
        assert times[first][place][1] <= times[last][place][1]


def test_few_queries_and_their_shares() -> None:
    """Shares of a tile's keys are records of the same place, one a CTA."""
    found, _ = traced("sm_90a", Case(1, 1, 700, 4, 1, 64, 64))
    records = found.records[:, 0]
    places = [(int(r["row"]), int(r["column"])) for r in records.flat if r["turn"]]
    assert places == [(0, 0)] * len(places)
    assert len(places) > 1


def test_later_tiles_leave_none() -> None:
    """With room for one, each CTA notes its first, and nothing is written beyond."""
    found, _ = traced("sm_90a", Case(2, 300, 64, 3, 3, 64, 64), tiles=1)
    assert set(found.records["turn"].flat) == {1}
    assert found.records.shape == (3, len(found.lanes), 1)


@pytest.mark.parametrize("chip", CHIPS)
def test_nothing_is_there_unless_it_is_asked_for(chip: Any) -> None:
    """The text has no clock and no parameter, and a config with none says so like any other."""
    kernel = tilekit.compile(tilekit.AttentionSpec(), chip)
    assert "globaltimer" not in kernel.assembly
    assert "profile" not in {one.name for one in kernel.parameters}
    assert "globaltimer" in tilekit.compile(tilekit.AttentionSpec(), chip, replace(kernel.config, profile_tiles=2)).ptx
    assert "profile" not in repr(kernel.config)
    q, k, v = Case(1, 4, 4, 1, 1, 128, 128).arrays()
    plan = kernel.bind(q, k, v)
    plan()
    with pytest.raises(ArgumentError, match="profile_tiles"):
        plan.trace()
    for tiles in (-1, 1 << 20):
        with pytest.raises(ConfigError, match="profile_tiles"):
            tilekit.compile(tilekit.AttentionSpec(), chip, replace(kernel.config, profile_tiles=tiles))
