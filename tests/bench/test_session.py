"""A whole suite on a simulated machine, from the entrants to the tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.simulated import peer
from tilekit.bench.contest import QUICK
from tilekit.bench.entrants import library_entrants, tilekit_entrants
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.record import Record, facts, merged
from tilekit.bench.report import to_markdown
from tilekit.bench.session import gather, measure_suite
from tilekit.bench.suites import SuiteCase
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import E4M3

CASES = [
    SuiteCase("decode", MatmulWorkload(1, 256, 256)),
    SuiteCase("odd", MatmulWorkload(61, 59, 67)),
    SuiteCase("squares-small", MatmulWorkload(512, 512, 512)),
    SuiteCase("fp8", MatmulWorkload(64, 64, 64, a_dtype=E4M3, b_dtype=E4M3)),
    SuiteCase("grouped", GroupedWorkload((128, 0, 256), 64, 32)),
]


def measure(machine: Any, cases: list[SuiteCase] = CASES, **rest: Any) -> Record:
    """Measure cases with tilekit at 1 us, the library at 2 us a call, and a peer at 3 us."""
    record = Record(facts(machine))
    entrants = [*tilekit_entrants(machine), *library_entrants(machine), peer("slow", machine, 3)]
    measure_suite(cases, entrants, machine, record, **rest)
    return record


def test_every_family_is_measured_by_its_own_entrants(computing: Any) -> None:
    """Dense, 8-bit and grouped cases have tilekit first, and right results; two groups cost the library two calls."""
    record = measure(computing)
    cases = {case.suite: case for case in record.cases}
    assert len(cases) == len(CASES)
    for suite, case in cases.items():
        assert case.results[0].name == "tilekit"
        assert all(result.failure is None for result in case.results), case
        library = case.results[1]
        # A grouped launch of the stand-in's peer is tilekit's 1 us.
        assert library.ratio == pytest.approx(4 if suite == "grouped" else 2)
    assert [result.name for result in cases["grouped"].results] == ["tilekit", "cuBLAS (simulated)"]
    assert [result.name for result in cases["odd"].results] == ["tilekit", "cuBLAS (simulated)", "slow"]
    assert (cases["fp8"].bits, cases["odd"].bits) == (8, 16)
    assert record.notes == []


def test_bursts_are_for_what_the_power_limit_holds_back(computing: Any) -> None:
    """Below 100 FLOP a byte the quick pace takes no bursts, above it takes one each."""
    cases = {case.suite: case for case in measure(computing).cases}
    assert cases["decode"].intensity < QUICK.burst_intensity < cases["squares-small"].intensity
    assert [len(result.bursts) for result in cases["decode"].results] == [0, 0, 0]
    assert [len(result.bursts) for result in cases["squares-small"].results] == [1, 1, 1]
    assert cases["decode"].results[1].burst_ratio is None
    assert cases["squares-small"].results[1].burst_ratio == pytest.approx(2)


def test_a_run_out_of_time_names_what_it_left_out(computing: Any) -> None:
    """The cases that the time box cut off are counted and named."""
    record = measure(computing, CASES[:2], box_seconds=-1)
    assert record.cases == []
    assert record.notes == ["2 of 2 case(s) left out, time was up: decode 1x256x256, odd 61x59x67"]


def test_the_record_grows_case_by_case(computing: Any, tmp_path: Path) -> None:
    """At each progress call the record already holds the case, so that writing it loses nothing."""
    file = tmp_path / "run.json"
    seen: list[int] = []
    record = Record(facts(computing))

    def progress(case: Any) -> None:
        record.write(file)
        seen.append(len(json.loads(file.read_text())["cases"]))

    entrants = [*tilekit_entrants(computing), *library_entrants(computing)]
    measure_suite(CASES[:3], entrants, computing, record, progress=progress)
    assert seen == [1, 2, 3]
    assert list(tmp_path.iterdir()) == [file]


def test_parts_measured_apart_make_the_table_of_the_whole(computing: Any, tmp_path: Path) -> None:
    """Two runs of half the cases each, written, read and merged, give the tables of one run."""
    whole = measure(computing, CASES)
    halves = [measure(computing, CASES[:2]), measure(computing, CASES[2:])]
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for half, file in zip(halves, files, strict=True):
        half.write(file)
    again = merged([Record.read(file) for file in files])
    rows = [sorted(line for line in to_markdown(record).splitlines() if "|" in line) for record in (whole, again)]
    assert len(rows[0]) == len(rows[1]) > 10

    def names(lines: list[str]) -> list[str]:
        return [line.split("|")[1] for line in lines]

    assert names(rows[0]) == names(rows[1])


def test_gathering_peers_tells_who_is_absent(computing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library and a peer file take part with its versions; one whose package is missing becomes a note."""
    (tmp_path / "good.py").write_text(
        "from tilekit.bench.entrants import Entrant\n"
        "ENTRANTS = [Entrant('good', lambda a, b, out: None)]\n"
        "ABOUT = {'good': '1.2'}\n"
    )
    (tmp_path / "absent.py").write_text("import a_package_that_is_not_there\n")
    record = Record(facts(computing))
    entrants = gather(computing, ["library", str(tmp_path / "good.py"), str(tmp_path / "absent.py")], record)
    assert [entrant.name for entrant in entrants if entrant.family == "matmul"] == [
        "tilekit",
        "cuBLAS (simulated)",
        "good",
    ]
    assert record.about["good"] == "1.2"
    (note,) = record.notes
    assert note.startswith("absent does not take part: ModuleNotFoundError: No module named")
    assert not any(
        entrant.name.startswith("cuBLAS") for entrant in gather(computing, [str(tmp_path / "good.py")], record)
    )
