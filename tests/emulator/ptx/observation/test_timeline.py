"""The timeline of a launch: a file that viewers read, whose slices nest and are named after what happened."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from product_kernels import HANG, TICKETS, doubling

from tilekit.emulator import Deadlock, Device, LaunchError


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a file, after the checks that hold for every file."""
    trace = json.loads(path.read_text())
    found: list[dict[str, Any]] = trace["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    open_slices: dict[tuple[str, int], int] = {}
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    for event in found:
        if event["ph"] == "X":
            assert event["dur"] > 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            open_slices[event["cat"], event["id"]] = event["ts"]
        elif event["ph"] == "e":
            assert open_slices.pop((event["cat"], event["id"])) <= event["ts"]
    assert not open_slices
    for track, slices in tracks.items():
        assert track in named
        stack: list[int] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], "slices overlap without nesting"
            stack.append(end)
    return found


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_double_buffer(schedule: Any, tmp_path: Path):
    """Roles are tracks, waits are named after barrier and phase, and every copy is in flight for a while."""
    launch = doubling(schedule=schedule, seed=3)
    report = launch.kernel.launch(**launch.options, timeline=tmp_path / "trace.json")
    found = events(tmp_path / "trace.json")
    names = [e["args"]["name"] for e in found if e["name"] == "thread_name"]
    assert sorted(names) == ["copy (warp 0)", "double (warp 1)"]
    runs = [e for e in found if e["ph"] == "X" and e["cat"] == "run"]
    assert sum(e["dur"] for e in runs) == report.steps
    copies = [e for e in found if e["ph"] == "b" and e["cat"] == "TMA"]
    assert [e["name"] for e in copies] == ["load stage[0]", "load stage[1]"] * 3
    assert all(e["args"]["bytes"] == 128 for e in copies)
    if schedule == "adversarial":
        waits = {e["name"] for e in found if e["ph"] == "X" and e["cat"] == "wait"}
        assert {"full[0] phase 0", "empty[0] phase 0"} <= waits


def test_a_hang_is_in_the_picture(tmp_path: Path):
    """A launch that ends in a fault writes its timeline too, with the waits that never ended."""
    launch = doubling(HANG)
    with pytest.raises(Deadlock):
        launch.kernel.launch(**launch.options, timeline=tmp_path / "trace.json")
    waits = {e["name"] for e in events(tmp_path / "trace.json") if e.get("cat") == "wait"}
    assert "empty[0] phase 0 (never ended)" in waits


def test_many_ctas(tmp_path: Path):
    """Every CTA is a process with its index in its name."""
    device = Device("sm_90a", schedule="random", check="off")
    args = [np.zeros(1, np.uint32), np.zeros(4, np.uint32)]
    device.load(TICKETS)["tickets"].launch((3, 2), 128, args, timeline=tmp_path / "trace.json")
    found = events(tmp_path / "trace.json")
    processes = [e["args"]["name"] for e in found if e["name"] == "process_name"]
    assert len(processes) == 6
    assert "CTA (2, 1, 0), cluster 5 rank 0" in processes


@pytest.mark.parametrize("path", ["", "no/such/folder/trace.json", 3, "a\0b"])
def test_a_path_that_cannot_be_written(path: Any, tmp_path: Path) -> None:
    """It is refused by its name before anything runs, and a path that can be written is left as it is until then."""
    launch = doubling()
    given = tmp_path / path if isinstance(path, str) else path
    with pytest.raises(LaunchError, match=r"timeline=.* legal: a (path to write a file to|string or a Path or None)"):
        launch.kernel.launch(**launch.options, timeline=given)
    assert np.isnan(launch.result.read()).all()
    kept = tmp_path / "kept.json"
    for _ in range(2):
        with pytest.raises(LaunchError, match="seed"):
            launch.kernel.launch(**launch.options, seed="a", timeline=kept)
        assert not kept.exists() or kept.read_text() == "as it was"
        kept.write_text("as it was")
