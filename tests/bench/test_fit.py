"""Fitting the model's constants."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from benchmarks import fit
from tilekit.kernels.matmul.sm_90a import model as hopper_model

RESULTS = Path(fit.__file__).parent / "results"


def test_a_fit_finds_what_made_the_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From times that the model itself made, a constant that was moved goes back; and `kept` puts all back."""
    cases = json.loads(gzip.decompress((RESULTS / "h200-2026-11-22-sweeps.json.gz").read_bytes()))
    some = [case for case in cases if len(case["rows"]) > 10][:4]
    for case in some:
        times = fit.Times.of(case)
        assert times is not None
        configs = iter(times.modelled().tolist())
        for row in case["rows"]:
            if row["fields"] is not None:
                row["microseconds"] = math.exp(next(configs)) / fit.CLOCK * 1e6
    file = tmp_path / "made.json"
    file.write_text(json.dumps(some))
    made = fit.read([file], 0.0)
    assert all(case.loss() == pytest.approx(1) for case in made)
    right = hopper_model.L2_BYTES_PER_CLOCK
    monkeypatch.setattr(fit, "CONSTANTS", ("L2_BYTES_PER_CLOCK",))
    with fit.kept():
        hopper_model.L2_BYTES_PER_CLOCK = right * 1.3
        changed = fit.climb(made, 5)
        assert changed["L2_BYTES_PER_CLOCK"] == pytest.approx(right, rel=0.05)
        hopper_model.L2_BYTES_PER_CLOCK = right
    assert right == hopper_model.L2_BYTES_PER_CLOCK


def test_the_shipped_random_sweeps_are_those_the_model_was_fitted_to() -> None:
    """The model's choices lose 4 % at most on average, of what was swept of random shapes."""
    cases = [case for case in fit.read([RESULTS / "h200-2026-11-22-sweeps.json.gz"], 0.0) if len(case.log_times) > 1]
    mean = math.exp(sum(math.log(case.loss()) for case in cases) / len(cases))
    assert len(cases) > 120
    assert mean < 1.04
