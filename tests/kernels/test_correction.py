"""What corrects the model of Hopper: where it is asked, by how much, and that it is of use."""

from __future__ import annotations

import gzip
import json
import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from benchmarks.model import ALL_TIMES, judged
from benchmarks.sweep import config_of
from tests.kernels.test_picker_against_times import swept
from tilekit.bench.suites import SUITES
from tilekit.bench.workload import MatmulWorkload
from tilekit.heuristics.trees import Trees
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.matmul.picker import ranked
from tilekit.kernels.matmul.sm_90a import correction
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

SHAPE = {"m": 328, "n": 3584, "k": 3584}


def _totals(spec: MatmulSpec, **shape: int) -> dict[str, float]:
    return {str(one.config): one.total for one in ranked(spec, SM_90A, **shape)}


def test_the_best_are_corrected_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a third at most; the model's own first has the benefit of the doubt."""
    after = _totals(MatmulSpec(), **SHAPE)
    monkeypatch.setattr(correction, "corrects", lambda spec: False)
    before = _totals(MatmulSpec(), **SHAPE)
    least = min(before.values())
    far = [name for name, total in before.items() if total > correction.NEAR * least]
    near = [name for name in before if name not in set(far)]
    assert len(near) > 10
    assert all(after[name] == before[name] for name in far)
    assert max(abs(math.log(after[name] / before[name])) for name in near) < 0.33
    monkeypatch.setattr(correction, "corrects", lambda spec: True)
    monkeypatch.setattr(Trees, "sums", lambda self, rows: np.zeros(len(rows)))
    doubted = _totals(MatmulSpec(), **SHAPE)
    changed = [name for name in before if doubted[name] != before[name]]
    assert changed == [next(iter(before))]
    assert doubted[changed[0]] == pytest.approx((1 - correction.DOUBT) * before[changed[0]])


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (MatmulSpec(groups="ends"), SHAPE | {"groups": 4}),
        (BlockwiseSpec(), SHAPE),
        (MatmulSpec(), {"m": 64, "n": 64, "k": 64}),
    ],
    ids=["groups", "scales of blocks", "shorter than what was timed"],
)
def test_what_was_not_timed_is_not_corrected(
    spec: MatmulSpec, shape: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees are not asked, and would fail if they were."""
    monkeypatch.setattr(correction, "_trees", lambda: None)
    assert _totals(spec, **shape)


def test_choices_lose_less_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the kept cases, which the trees have seen; on shapes that they have not, `benchmarks.learn` says."""
    cases = [case for path in ALL_TIMES[-4:] for case in swept(path)]

    def losses() -> list[float]:
        return [math.log(verdict.loss) for case in cases if (verdict := judged(case)) and verdict.configs >= 8]

    corrected = losses()
    monkeypatch.setattr(correction, "corrects", lambda spec: False)
    alone = losses()
    assert len(alone) > 80
    assert fmean(corrected) < 0.75 * fmean(alone)
    assert sum(loss > math.log(1.1) for loss in corrected) < sum(loss > math.log(1.1) for loss in alone)


def test_large_squares_take_what_was_quicker_in_long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are at the power limit, and most of what the trees have seen was timed in short turns.

    So another config than the model's own is one that took less time beside it in turns of 100 ms. One that is turned
    round is the same there: 48 kept pairs of such take 0.997 of each other's time.
    """
    cases = [case for case in SUITES["squares-large"].cases if isinstance(case, MatmulWorkload)]

    def picks() -> list[str]:
        return [upright(ranked(case.spec, SM_90A, m=case.m, n=case.n, k=case.k)[0].config) for case in cases]

    def upright(config: Any) -> str:
        return str(config.changed(swap_ab=False))

    corrected = picks()
    monkeypatch.setattr(correction, "corrects", lambda spec: False)
    times: dict[str, list[dict[str, float]]] = {}
    for path in ALL_TIMES:
        for case in json.loads(gzip.decompress(path.read_bytes())):
            if case["turn"] >= 0.1:
                ours = [row for row in case["rows"] if row["fields"] is not None]
                rows = {upright(config_of(row["fields"])): row["microseconds"] for row in ours}
                times.setdefault(case["case"], []).append(rows)
    for case, taken, alone in zip(cases, corrected, picks(), strict=True):
        if taken != alone:
            beside = [rows for rows in times[f"{case.label} {case.kind}"] if {taken, alone} <= set(rows)]
            assert beside, f"{case.label}: {taken} was not timed beside {alone}"
            assert all(rows[taken] < rows[alone] for rows in beside)
    assert len(cases) == 5
