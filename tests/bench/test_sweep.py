"""The sweep of configs, on a simulated machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from benchmarks import sweep
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.workload import MatmulWorkload
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.targets import SM_90A

WORKLOAD = MatmulWorkload(16, 256, 512)


def test_small_m_configs_hold_m() -> None:
    """Every config is swapped and its columns just hold M; most are legal, among them shares, clusters and k-groups."""
    for m, columns in ((1, 8), (8, 8), (9, 16), (64, 64), (100, 104)):
        workload = MatmulWorkload(m, 4096, 4096)
        found = [c for c in sweep.small_m(workload) if c.legal(SM_90A, workload.spec)]
        assert len(found) > 50
        assert {(c.swap_ab, c.tile[1]) for c in found} == {(True, columns)}
        assert {c.split_k for c in found} == {1, 2, 3, 4, 6}
        assert {c.k_group for c in found} >= {1, 2}


@pytest.mark.parametrize(("m", "rings"), [(1, 2), (16, 2), (64, 2), (128, 1)])
def test_overlaps_leave_room_for_another_cta(m: int, rings: int) -> None:
    """All are the picker's choice but for ring and prefetch; an SM holds two with the short ring, if it is legal."""
    workload = MatmulWorkload(m, 28672, 4096)
    found = [config for config in sweep.overlaps(workload) if config.legal(SM_90A, workload.spec)]
    assert len({config.changed(stages=None, prefetch=0) for config in found}) == 1
    assert {config.prefetch for config in found} >= {0, 4, 12}
    used = sorted({config.shared_bytes(workload.spec, config.stages or 0) for config in found})
    assert len(used) == rings
    assert 2 * used[-1] > SM_90A.shared_bytes
    assert rings == 1 or 2 * used[0] < SM_90A.shared_bytes


def test_rounds_are_shuffled_and_the_median_counts(machine: SimulatedMachine) -> None:
    """Each round measures every contestant once more, in orders that differ; time's end is heeded."""
    passes = {name: machine.capture(lambda us=us: machine.spend(us * 1e-6)) for name, us in (("a", 20), ("b", 10))}
    times = sweep.shuffled_rounds(machine, passes, rounds=6, seconds=60)
    assert times == {"a": pytest.approx(20e-6), "b": pytest.approx(10e-6)}
    order = [replay for replay, _ in machine.slices[4::2]]
    rounds = [order[i : i + 2] for i in range(0, 12, 2)]
    assert all(set(each) == set(passes.values()) for each in rounds)
    assert rounds[1:] != rounds[:-1]
    machine.slices.clear()
    sweep.shuffled_rounds(machine, passes, rounds=6, seconds=0)
    assert len(machine.slices) == 8  # one round


def test_a_sweep_ranks_by_time_and_by_model(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickest comes first, places are the model's, the picker's choice is there, and wrong kernels are not."""

    def compiled(spec: tilekit.MatmulSpec, config: MatmulConfig) -> Any:
        def bind(a: Any, b: Any, out: Any) -> Any:
            def plan() -> None:
                machine.spend(1e-6 * config.split_k)
                out[...] = np.zeros_like(out) if config.k_group == 2 else (a.astype(np.float32) @ b.astype(np.float32))

            return plan

        return SimpleNamespace(bind=bind)

    monkeypatch.setattr(sweep, "_compiled", compiled)
    rows = sweep.sweep(machine, WORKLOAD, "small_m", rounds=1, seconds=0, most=30)
    assert rows == sorted(rows, key=lambda row: row.microseconds)
    assert rows[0].microseconds == pytest.approx(1.0)
    assert len(rows) > 5
    assert len({row.model_place for row in rows}) == len(rows)
    assert all(" x 2 stages" not in row.config for row in rows)
