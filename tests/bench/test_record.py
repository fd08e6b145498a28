"""Runs as files: what is written is read, and what several runs measured becomes one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.bench.simulated import measured
from tilekit.bench.host import HostTimes
from tilekit.bench.matmul import Case
from tilekit.bench.record import Record, merged
from tilekit.bench.report import to_markdown
from tilekit.errors import ArgumentError

ABOUT = {"device": "NVIDIA H200", "tilekit": "1.0"}


def record(*cases: Case, **about: str) -> Record:
    """A run of these cases."""
    return Record({**ABOUT, **about}, list(cases))


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    """Everything in a record is in its file, tuples as lists, and the figures come back the same."""
    before = record(measured("1x8x8", {"cuBLAS": [1.1, 1.2, 1.3]}), measured("2x8x8", {}))
    before.notes.append("a note")
    before.host = HostTimes("64x64x64", {"plan()": 2.5})
    before.write(tmp_path / "run.json")
    after = Record.read(tmp_path / "run.json")
    assert after.to_json() == before.to_json()
    assert after.cases[0].results[1].ratio == pytest.approx(1.2)
    assert after.host == before.host


def test_another_file_is_refused(tmp_path: Path) -> None:
    """A file that is missing, no JSON, of another format or cut off is an error that names it."""
    file = tmp_path / "x.json"
    with pytest.raises(ArgumentError, match=r"x\.json.*No such file"):
        Record.read(file)
    whole = record(measured("1x8x8", {"cuBLAS": [1.1]})).to_json()
    for text in ("", "[]", "{}", whole.replace("bench-1", "bench-0"), whole.replace('"label"', '"name"'), whole[:-9]):
        file.write_text(text)
        with pytest.raises(ArgumentError, match=r"FILE.*x\.json.*--json-file"):
            Record.read(file)


def test_a_file_damaged_in_any_way(tmp_path: Path) -> None:
    """Whatever stands in the file: a record of which tables can be made, or an error that names the file."""
    chance = random.Random(11)
    file = tmp_path / "x.json"
    text = record(measured("1x8x8", {"cuBLAS": [1.1, 1.2]}), measured("2x8x8", {})).to_json()
    odd: list[Any] = [None, 7, -1, 1.5, "x", [], [1], {}, {"a": 1}, True, [None], [[1]], "9" * 5000]
    said: list[str] = []
    texts = [b"\xff", b"[" * 100_000, b"null", b"7", b'{"format": []}', text.encode()[: len(text) // 2]]
    for _ in range(200):
        whole = json.loads(text)
        place: Any = whole
        for _ in range(chance.choice((1, 1, 2, 3, 4))):
            keys = (
                list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
            )
            if not keys:
                break
            last, key = place, chance.choice(keys)
            place = place[key]
        last[key] = chance.choice(odd)
        texts.append(json.dumps(whole).encode())
    for damaged in texts:
        file.write_bytes(damaged)
        try:
            found = Record.read(file)
        except ArgumentError as error:
            said.append(str(error))
        else:
            to_markdown(found)
    assert len(said) > 50
    assert all("x.json" in text for text in said)


@pytest.mark.parametrize("place", ["error", "failure"])
def test_the_worse_of_two_runs_counts(place: str) -> None:
    """Error and failure of a case are those of the run that had them, whichever came first."""
    for first in (True, False):
        one, two = (record(measured("1x8x8", {"cuBLAS": [1.1]})) for _ in range(2))
        for run, error, failure in ((one, 1e-3, None), (two, 5e-3, "wrong")):
            run.cases[0].results[0].error, run.cases[0].results[0].failure = error, failure
        merged_ = merged([one, two] if first else [two, one]).cases[0].results[0]
        assert getattr(merged_, place) == (5e-3 if place == "error" else "wrong")


def test_parts_are_put_side_by_side_worst_first() -> None:
    """Cases of several files are one list again, and notes and versions are kept once each."""
    one, two = record(measured("1x8x8", {"cuBLAS": [1.5]})), record(measured("2x8x8", {"cuBLAS": [0.9]}), triton="3.6")
    one.notes, two.notes = ["same", "one"], ["same", "two"]
    both = merged([one, two])
    assert [case.label for case in both.cases] == ["2x8x8", "1x8x8"]
    assert both.notes == ["same", "one", "two"]
    assert both.about == {**ABOUT, "triton": "3.6"}


def test_a_case_of_two_runs_has_the_rounds_of_both() -> None:
    """Medians are over all rounds of all runs, ratios stay within their round, and the time spent adds up."""
    one = record(measured("1x8x8", {"cuBLAS": [1.0, 1.1, 1.2]}))
    two = record(measured("1x8x8", {"cuBLAS": [1.3, 1.4, 1.5]}, us=20.0))
    (case,) = merged([one, two]).cases
    ours, cublas = case.results
    assert ours.us == pytest.approx(15)
    assert cublas.ratio == pytest.approx(1.25)
    assert cublas.spread == (pytest.approx(1.0), pytest.approx(1.5))
    assert cublas.burst_ratio == pytest.approx(1.15)
    assert cublas.tflops == pytest.approx(case.flops / cublas.us / 1e6)
    assert case.seconds == pytest.approx(1.0)


def test_a_peer_of_one_run_only_keeps_its_own_rounds() -> None:
    """A peer that took part in one of two runs has the ratios of that run."""
    one = record(measured("1x8x8", {"cuBLAS": [1.0] * 3}))
    two = record(measured("1x8x8", {"cuBLAS": [1.2] * 3, "Triton": [0.9] * 3}))
    (case,) = merged([one, two]).cases
    ratios = {result.name: result.ratio for result in case.results[1:]}
    assert ratios == {"cuBLAS": pytest.approx(1.1), "Triton": pytest.approx(0.9)}


def test_a_wrong_result_in_one_run_is_wrong_in_all() -> None:
    """A failure is not averaged away: the case has no time, and stands first."""
    one, two = (record(measured("1x8x8", {"cuBLAS": [1.0] * 3})) for _ in range(2))
    two.cases[0].results[0].failure = "wrong: relative error 1, limit 0.008"
    both = merged([one, two, record(measured("2x8x8", {"cuBLAS": [0.5]}))])
    assert both.cases[0].results[0].failure == "wrong: relative error 1, limit 0.008"
    assert both.cases[0].results[0].us is None


def test_the_same_shape_in_two_suites_stays_two_cases() -> None:
    """4096 cubed is a square and a prefill."""
    both = merged([record(*(measured("4096x4096x4096", {}, suite=suite) for suite in ("squares-large", "prefill")))])
    assert len(both.cases) == 2


def test_runs_of_two_gpus_are_not_merged() -> None:
    """Figures of different chips never share a table."""
    with pytest.raises(ArgumentError, match="one kind of GPU"):
        merged([record(), record(device="NVIDIA H100")])
