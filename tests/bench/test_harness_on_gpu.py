"""The harness on a real GPU: graphs are replayed, time is device time, and a kernel is as fast as itself."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.entrants import Entrant
from tilekit.bench.machine import CupyMachine, Machine, TorchMachine
from tilekit.bench.matmul import run
from tilekit.bench.workload import MatmulWorkload

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["torch", "cupy"])
def machine(request: pytest.FixtureRequest) -> Machine:
    """The GPU through each library that is installed."""
    module: Any = pytest.importorskip(request.param)
    return TorchMachine(module) if request.param == "torch" else CupyMachine(module)


def test_a_replay_repeats_the_work(machine: Machine) -> None:
    """What was captured is computed again at each replay, into poisoned memory as well."""
    workload = MatmulWorkload(256, 128, 64)
    operands = workload.operands(0, machine.upload)
    out = machine.empty(workload.out_shape, workload.out_dtype)
    machine.matmul(operands.a, operands.b, out)
    replay = machine.capture(lambda: machine.matmul(operands.a, operands.b, out))
    machine.poison(out)
    assert machine.time(replay, 1) > 0
    assert workload.accuracy(workload.operands(0), machine.download(out)).right


def test_the_library_is_as_fast_as_itself(machine: Machine) -> None:
    """Two contestants that do the same have a ratio of one within 5 %, and clock and power were read."""
    entrants = [Entrant(name, machine.matmul) for name in ("tilekit", "again")]
    (case,) = run([MatmulWorkload(2048, 2048, 2048)], entrants, machine, seconds=0)
    mine, again = case.results
    assert mine.failure is None
    assert again.ratio == pytest.approx(1, abs=0.05)
    assert mine.tflops is not None
    assert mine.tflops > 50
    with ClockSampler(machine.uuid) as sampler:
        machine.light_load(0.5)
    clock, watts = sampler.mean([(0.0, 1e12)])
    assert clock is not None
    assert watts is not None
    assert clock > 100
    assert watts > 20
