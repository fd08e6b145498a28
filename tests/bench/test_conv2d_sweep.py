"""The sweep of convolutions' configs, on a simulated machine."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import conv2d_sweep
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.conv2d import ConvWorkload
from tilekit.targets import SM_90A

LAYER = ConvWorkload.parse("1x5x4x64 40x1x1")


@pytest.mark.parametrize("residual", [False, True])
def test_a_sweep_checks_and_ranks(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs compute what the layer is, the picker's among them, and have a place in the model's order."""
    layer = replace(LAYER, bias=True, activation="relu", residual=True) if residual else LAYER
    machine = SimulatedMachine()
    machine.l2_bytes = 1
    call = conv2d_sweep._call

    def costing(*given: Any) -> Any:
        machine.spend(1e-6)
        return call(*given)

    monkeypatch.setattr(conv2d_sweep, "_call", costing)
    tried = conv2d_sweep.residuals(layer) if residual else conv2d_sweep.spread(layer)
    small = [config for config in tried if config.tile[0] <= 64][:3]
    rows = conv2d_sweep.sweep(machine, layer, small, [], rounds=1, most=4, turn=1e-5)
    assert 3 <= len(rows) <= 4
    assert [row.picked for row in rows].count(True) == 1
    assert all(row.fields is not None and row.model_place >= 1 for row in rows)


def test_residuals_differ_in_buffers() -> None:
    """Each tile has them of several numbers, all legal somewhere."""
    layer = replace(LAYER, bias=True, activation="relu", residual=True)
    found = [config for config in conv2d_sweep.residuals(layer) if config.legal(SM_90A, layer.spec)]
    assert {config.output_buffers for config in found} == {1, 2, 3, 4, 6}
    assert len({(c.tile, c.schedule, c.swap_ab) for c in found}) > 10


def test_choices_are_judged() -> None:
    """Of each recorded layer the model's first was timed, and is hardly slower than the best on average."""
    path = Path(conv2d_sweep.__file__).parent / "results" / "h200-2026-11-23-conv2d-sweeps.json.gz"
    verdicts = [conv2d_sweep.judged(case) for case in json.loads(gzip.decompress(path.read_bytes()))]
    losses = [loss for loss, _, _ in verdicts]
    assert len(losses) == 40
    assert min(losses) >= 1
    assert max(losses) < 1.35
    assert math.exp(sum(map(math.log, losses)) / len(losses)) < 1.08
