"""A kernel's own time stamps: complete, in order, and not there at all unless they are asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.dtypes import BF16
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.plan import DevicePlan

KERNELS: dict[str, tuple[Any, Any]] = {
    "sm_90a": (MatmulConfig(tile=(128, 64), cluster=(2, 1), profile_tiles=8), {"load", "mma", "mma 1", "epilogue"}),
    "sm_100a": (
        BlackwellConfig(tile=(128, 64), cta_group=2, cluster=(2, 1), profile_tiles=8),
        {"load", "mma", "epilogue", "epilogue_load"},
    ),
}


def _traced(target: str, m: int = 500, n: int = 200, k: int = 136) -> Any:
    config, _ = KERNELS[target]
    kernel = tilekit.compile(MatmulSpec(functions=ElementwiseSpec(residual=BF16)), target=target, config=config)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    c = rng.integers(-8, 9, (m, n)).astype(ml_dtypes.bfloat16)
    plan = kernel.bind(a, b.T, residual=c)
    exact = a.astype(np.float32) @ b.astype(np.float32).T + c.astype(np.float32)
    assert np.array_equal(plan(), exact.astype(ml_dtypes.bfloat16))
    assert plan.report.findings == ()
    return plan.trace()


def test_notes_of_an_earlier_launch_are_cleared() -> None:
    """A launch on a GPU begins with no records, since CTAs that claim tiles may note fewer than before."""
    done: list[str] = []
    plan: Any = object.__new__(DevicePlan)
    plan._scratch = {"profile": SimpleNamespace(clear=lambda: done.append("clear"))}
    plan.launch, plan.current_stream, plan.out = (lambda _: done.append("launch")), (lambda: 0), None
    for profiler, order in ((None, ["launch"]), (object(), ["clear", "launch"])):
        plan._profiler = profiler
        plan()
        assert done == order
        done.clear()


@pytest.mark.parametrize("target", KERNELS)
def test_every_tile_is_noted_by_every_role(target: str) -> None:
    """Each activity leaves one record for each tile it works on, with the tile's place, and time goes on."""
    trace = _traced(target)
    assert KERNELS[target][1] <= set(trace.lanes)
    rows, columns = range(0, 512, 128), range(0, 256, 64)
    for index, lane in enumerate(trace.lanes):
        records = trace.records[:, index]
        filled = records[records["turn"] > 0]
        assert (filled["end"] > filled["begin"]).all(), lane
        places = sorted((int(r["row"]), int(r["column"])) for r in filled)
        leads = [(row, column) for row in rows for column in columns if row % 256 == 0]
        every = [(row, column) for row in rows for column in columns]
        assert places == sorted(leads if lane == "mma" and target == "sm_100a" else every), lane


@pytest.mark.parametrize("target", KERNELS)
def test_the_events_are_a_trace(tmp_path: Path, target: str) -> None:
    """The file is valid JSON in the Trace Event Format, an event a record, and no two of a track overlap."""
    trace = _traced(target)
    trace.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == trace.count
    for track in {(e["pid"], e["tid"]) for e in slices}:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if (e["pid"], e["tid"]) == track)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize("target", KERNELS)
def test_there_is_nothing_when_off(target: str) -> None:
    """Without profile_tiles the text has no clock, no record and no parameter for them; the plan says what to do."""
    config = replace(KERNELS[target][0], profile_tiles=0)
    kernel = tilekit.compile(MatmulSpec(), target=target, config=config)
    assert "globaltimer" not in kernel.ptx
    assert "profile" not in {p.name for p in kernel.text.parameters}
    a = np.ones((8, 8), ml_dtypes.bfloat16)
    plan = kernel.bind(a, a.T)
    plan()
    with pytest.raises(ArgumentError, match="profile_tiles"):
        plan.trace()


def test_warpgroups_in_turn_note_their_own_tiles() -> None:
    """Consumers that take turns share the tiles of a CTA evenly, and multiply one after the other."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong", profile_tiles=8)
    kernel = tilekit.compile(MatmulSpec(), config=config)
    a, b = np.ones((64 * 6, 256), ml_dtypes.bfloat16), np.ones((64, 256), ml_dtypes.bfloat16)
    plan: Any = kernel.bind(a, b.T, multiprocessors=1)
    plan()
    trace = plan.trace()
    first, second = (trace.records[0, trace.lanes.index(lane)][:3] for lane in ("mma", "mma 1"))
    assert first["row"].tolist() == [0, 128, 256]
    assert second["row"].tolist() == [64, 192, 320]
    turns = sorted([*first, *second], key=lambda record: int(record["row"]))
    assert all(after["begin"] > before["begin"] for before, after in pairwise(turns))
    for mma, epilogue in (("mma", "epilogue"), ("mma 1", "epilogue 1")):
        lanes = [trace.records[0, trace.lanes.index(lane)] for lane in (mma, epilogue)]
        assert all((lanes[0]["end"] <= lanes[1]["begin"])[:3])


def test_later_tiles_leave_no_record() -> None:
    """A lane's records end where their memory does."""
    config = replace(KERNELS["sm_90a"][0], profile_tiles=1, cluster=(1, 1))
    kernel = tilekit.compile(MatmulSpec(), config=config)
    a, b = np.ones((128 * 14, 64), ml_dtypes.bfloat16), np.ones((64 * 10, 64), ml_dtypes.bfloat16)
    plan = kernel.bind(a, b.T)
    plan()
    assert plan.trace().count == plan.trace().records.size < 140 * 5
