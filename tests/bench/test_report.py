"""The tables: geometric means, the worst case, aims, and every line of the same width."""

from __future__ import annotations

import pytest

from tests.bench.simulated import measured
from tilekit.bench.host import HostTimes
from tilekit.bench.record import Record
from tilekit.bench.report import summaries, to_markdown

ABOUT = {"device": "NVIDIA H200", "tilekit": "1.0"}


def test_a_summary_is_geometric_mean_and_worst() -> None:
    """Ratios of 0.8 and 1.25 have the geometric mean 1, and the worst is named."""
    cases = [measured("1x8x8", {"cuBLAS": [0.8]}), measured("2x8x8", {"cuBLAS": [1.25]})]
    (summary,) = summaries(cases)
    assert (summary.suite, summary.peer, summary.cases) == ("decode", "cuBLAS", 2)
    assert summary.geomean == pytest.approx(1.0)
    assert (summary.worst, summary.worst_case) == (pytest.approx(0.8), "1x8x8")
    assert summary.burst_geomean == pytest.approx(1.0)


def test_the_ratio_is_the_median_over_rounds() -> None:
    """One disturbed round does not move a case."""
    (summary,) = summaries([measured("1x8x8", {"cuBLAS": [1.1, 1.1, 5.0]})])
    assert summary.geomean == pytest.approx(1.1)


def test_the_quickest_peer_is_the_bar() -> None:
    """With several peers there is a line for the quickest in each case."""
    cases = [
        measured("1x8x8", {"cuBLAS": [0.9], "Triton": [1.1]}),
        measured("2x8x8", {"cuBLAS": [1.4], "Triton": [1.2]}),
    ]
    by_peer = {summary.peer: summary for summary in summaries(cases)}
    assert list(by_peer) == ["cuBLAS", "Triton", "quickest peer"]
    assert by_peer["quickest peer"].geomean == pytest.approx((0.9 * 1.2) ** 0.5)
    assert by_peer["quickest peer"].worst == pytest.approx(0.9)


def test_suites_come_in_their_own_order() -> None:
    """However the cases are sorted, the table of suites is in the published order, shapes last."""
    cases = [
        measured("a", {"cuBLAS": [1]}, suite=""),
        measured("b", {"cuBLAS": [1]}, suite="odd"),
        measured("c", {"cuBLAS": [1]}, suite="squares-large"),
    ]
    assert [summary.suite for summary in summaries(cases)] == ["squares-large", "odd", ""]


def test_a_failure_is_in_no_mean_and_is_said() -> None:
    """tilekit's own failure is announced above the table, stands in its row, and does not count as a ratio."""
    cases = [measured("1x8x8", {"cuBLAS": [2.0]}), measured("2x8x8", {"cuBLAS": [1.0]})]
    cases[0].results[0].failure = "wrong: relative error nan, limit 0.0078"
    text = to_markdown(Record(ABOUT, cases))
    assert "**tilekit failed in 1 case(s)**" in text
    assert "| **wrong: relative error nan, limit 0.0078** |" in text
    assert summaries(cases)[0].geomean == pytest.approx(1.0)


def test_the_table_shows_the_aims_and_all_lines_are_whole() -> None:
    """A suite's aims stand beside what was reached; each table's lines have the same number of cells, also with a bar
    in a failure, an absent peer and no bursts."""
    cases = [
        measured("1x8x8", {"cuBLAS": [0.9, 1.0, 1.1], "Triton": [1.2, 1.2, 1.2]}),
        measured("2x8x8", {"cuBLAS": [1.3]}),
        measured("3x8x8", {"cuBLAS": [1.3]}),
    ]
    cases[1].results[1].bursts = cases[1].results[1].burst_ratios = ()
    cases[2].results[1].failure = "ValueError: a | b"
    for case in cases:
        for result in case.results:
            result.summarise(case.flops)
    record = Record(ABOUT, cases, notes=["deepgemm does not take part"], host=HostTimes("64x64x64", {"plan()": 2.5}))
    text = to_markdown(record)
    assert text.startswith("device NVIDIA H200, tilekit 1.0\n")
    assert "| decode | cuBLAS | 2 | **1.140** | 1.15 | 1.000 | 1.00 | 1x8x8 |" in text
    assert "**1.000** (0.900-1.100)" in text
    assert "| 10.00 | 200 | 1000 |" in text, "us, TFLOP/s and GB/s"
    assert "| plan() | 2.50 |" in text
    assert text.endswith("- deepgemm does not take part\n")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for lines in tables:
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


def test_shapes_have_no_suite_column() -> None:
    """Shapes given one by one are a table without suites and aims."""
    text = to_markdown(Record(ABOUT, [measured("1x8x8", {"cuBLAS": [1.0]}, suite="")]))
    assert "| case | kind |" in text
    assert "| shapes | cuBLAS | 1 | **1.000** |  | 1.000 |  | 1x8x8 |" in text
