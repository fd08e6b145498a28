"""``tilekit bench --suite`` and ``tilekit bench report`` on a simulated machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from tests.bench.simulated import measured
from tilekit.bench import machine as machines
from tilekit.bench import suites
from tilekit.bench.record import Record
from tilekit.bench.suites import Suite
from tilekit.bench.workload import MatmulWorkload
from tilekit.cli.app import app
from tilekit.runtime import driver


@pytest.fixture
def command(computing: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command on the simulated machine, with a suite of four small cases."""
    cases = tuple(MatmulWorkload(rows, 64, 32) for rows in (8, 16, 24, 32))
    monkeypatch.setattr(suites, "SUITES", {"tiny": Suite("tiny", "small ones", cases, 1.1, 1.0)})
    monkeypatch.setattr(machines, "find_machine", lambda: computing)
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *words: CliRunner().invoke(app, ["bench", *map(str, words)])


def test_a_suite_in_parts_becomes_one_report(command: Any, tmp_path: Path) -> None:
    """Two parts, each with its JSON, merge into tables and a plot of all four cases."""
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    for index, file in enumerate(files, 1):
        run: Result = command("--suite", "tiny", "--part", f"{index}/2", "--peers", "library", "--json-file", file)
        assert run.exit_code == 0, run.output
        assert len(json.loads(file.read_text())["cases"]) == 2
        assert "2/2 tiny " in run.stderr
    markdown, plot = tmp_path / "suite.md", tmp_path / "suite.svg"
    report: Result = command("report", *files, "--markdown", markdown, "--plot", plot)
    assert report.exit_code == 0, report.output
    assert markdown.read_text() == report.stdout.removesuffix("\n")
    assert "cuBLAS (simulated) | 4 | **2.000**" in report.stdout
    assert "pace quick" in report.stdout
    titles = [title.text for title in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 8


def test_sample_and_time_box(command: Any, tmp_path: Path) -> None:
    """A sample has as many cases as asked for; a box of no time leaves all out and says so."""
    sampled: Result = command("--suite", "tiny", "--sample", 3, "--peers", "library", "--json")
    assert len(json.loads(sampled.stdout)["cases"]) == 3
    boxed: Result = command("--suite", "all", "--seconds", -1, "--peers", "library")
    assert boxed.exit_code == 0
    assert "4 of 4 case(s) left out, time was up" in boxed.stdout


def test_a_wrong_result_exits_with_1(command: Any, computing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that tilekit gets wrong is in the table, and the exit code says so."""
    monkeypatch.setattr("tilekit.matmul", lambda a, b, *, out, **_: out.fill(0))
    result: Result = command("--suite", "tiny", "--sample", 1, "--peers", "library")
    assert result.exit_code == 1
    assert "**tilekit failed in 1 case(s)**" in result.stdout


def test_shapes_take_peers_and_a_pace(command: Any) -> None:
    """`--shape` at the quick pace with no peers is a table of tilekit alone."""
    result: Result = command("--shape", "32x32x32", "--pace", "quick", "--seconds", 0.1, "--json")
    whole = json.loads(result.stdout)
    assert whole["about"]["pace"] == "quick"
    assert [r["name"] for r in whole["cases"][0]["results"]] == ["tilekit", "cuBLAS (simulated)"]


def test_all_accumulate_alike(command: Any, computing: Any) -> None:
    """`--accumulation` reaches tilekit and, through the machine, the library and the peers; the table names it."""
    words = ("--shape", "32x32x32", "--dtype", "e4m3", "--pace", "quick", "--seconds", 0.1, "--json")
    result: Result = command(*words, "--accumulation", "promoted")
    (case,) = json.loads(result.stdout)["cases"]
    assert case["kind"] == "e4m3→bf16 k/k promoted contiguous"
    assert computing.accumulation == "promoted"
    assert all(r["failure"] is None for r in case["results"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "tiny", "--accumulation", "promoted"], "without --suite"),
        (["--suite", "tyni"], "tiny"),
        (["--suite", "tiny", "--shape", "8x8x8"], "--suite or --shape, not both"),
        (["--suite", "tiny", "--part", "3/2"], "2/2"),
        (["--suite", "tiny", "--part", "half"], "I/N, such as 1/4"),
        (["--suite", "tiny", "--sample", "0"], "--sample: given 0"),
        (["--suite", "tiny", "--host"], "without --suite"),
        (["--suite", "tiny", "--pace", "slow"], "quick or thorough"),
        (["--suite", "tiny", "--peers", "nobody"], "--peers: given 'nobody'"),
        (["--suite", "tiny", "--plot", "x.png"], "x.svg"),
        (["--sample", "3"], "with --suite only"),
        (["--part", "1/2"], "with --suite only"),
        (["matmul", "x.json"], "after `report` only"),
        (["report"], "after `report`"),
        (["report", "none.json"], "none.json"),
    ],
    ids=" ".join,
)
def test_bad_usage_is_refused_before_anything_runs(command: Any, words: list[str], message: str) -> None:
    """Each option that does not fit is named with what is legal, and the exit code is 2."""
    result: Result = command(*words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_a_report_needs_no_gpu(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reports are made anywhere; measuring asks for a GPU."""
    monkeypatch.setattr(machines, "find_machine", lambda: None)
    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver")
    Record({"device": "NVIDIA H200"}, [measured("1x8x8", {"cuBLAS": [1.0]})]).write(tmp_path / "run.json")
    assert command("report", tmp_path / "run.json").exit_code == 0
    assert command("--suite", "tiny").exit_code == 3
