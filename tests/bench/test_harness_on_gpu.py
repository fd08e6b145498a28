"""The harness on a real GPU: graphs are replayed, time is device time, and a kernel is as fast as itself."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.entrants import Entrant
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.machine import CupyMachine, Machine, TorchMachine
from tilekit.bench.matmul import run
from tilekit.bench.record import Record, facts
from tilekit.bench.session import gather, measure_suite
from tilekit.bench.suites import SuiteCase
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import E4M3

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


def test_the_library_beside_itself(machine: Machine) -> None:
    """Two contestants that do the same are both timed, as far apart as other tests on the same GPU can drive them, and
    clock and power were read."""
    entrants = [Entrant(name, machine.matmul) for name in ("tilekit", "again")]
    (case,) = run([MatmulWorkload(2048, 2048, 2048)], entrants, machine, seconds=0)
    mine, again = case.results
    assert mine.failure is None
    assert again.ratio is not None
    assert 0.2 < again.ratio < 5
    assert mine.tflops is not None
    assert mine.tflops > 10
    with ClockSampler(machine.uuid) as sampler:
        machine.light_load(0.5)
    clock, watts = sampler.mean([(0.0, 1e12)])
    assert clock is not None
    assert watts is not None
    assert clock > 100
    assert watts > 20


@pytest.mark.parametrize(
    "workload",
    [
        MatmulWorkload(16, 4096, 4096),
        MatmulWorkload(1000, 1000, 1000),
        MatmulWorkload(129, 257, 260, b_major="mn"),
        MatmulWorkload(4096, 4096, 512, a_dtype=E4M3, b_dtype=E4M3),
        GroupedWorkload((256, 0, 128), 512, 256),
    ],
    ids=lambda workload: workload.label,
)
def test_every_peer_that_is_here_is_right_or_says_why(workload: Any) -> None:
    """tilekit, the library and each peer that loads compute dense, ragged, 8-bit and grouped cases right; a peer may
    refuse a type or layout, but never compute it wrong."""
    machine = TorchMachine(pytest.importorskip("torch"))
    record = Record(facts(machine))
    entrants = gather(machine, ["all"], record)
    measure_suite([SuiteCase("test", workload)], entrants, machine, record)
    ours, library, *peers = record.cases[0].results
    assert ours.failure is None
    assert library.failure is None
    assert library.ratio is not None
    assert not any((peer.failure or "").startswith("wrong") for peer in peers), peers


def test_a_quick_case_is_quick() -> None:
    """The second case of a shape, with kernels built and tilekit and the library alone, is over in a second."""
    machine = TorchMachine(pytest.importorskip("torch"))
    record = Record(facts(machine))
    case = SuiteCase("test", MatmulWorkload(2048, 4096, 4096))
    measure_suite([case, case], gather(machine, ["library"], record), machine, record)
    assert min(case.seconds for case in record.cases) < 1.0
