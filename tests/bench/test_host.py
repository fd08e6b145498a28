"""What a call costs the host: which calls are timed, by a clock of the test's."""

from __future__ import annotations

from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest

from tests.bench.simulated import SimulatedMachine
from tilekit.bench import host
from tilekit.bench.workload import MatmulWorkload


def test_every_way_to_call_is_timed(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan, the call with and without an output, and the library's own, each on the clock between two batches."""
    ticks = count()
    monkeypatch.setattr(host, "_CALLS", 1)
    monkeypatch.setattr(host, "_BATCHES", 1)
    monkeypatch.setattr(host, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 2e-6))
    times = host.measure_host(machine, MatmulWorkload(16, 16, 16))
    assert times.shape == "16x16x16"
    names = ["plan()", "tilekit.matmul(a, b, out=c)", "tilekit.matmul(a, b)"]
    names += ["simulated.matmul(a, b, out=c)", "simulated.matmul(a, b)"]
    assert list(times.us) == names
    assert all(us == pytest.approx(2) for us in times.us.values())


def test_batches_take_turns(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's batches are spread over the whole measurement, in an order that rotates."""
    order: list[str] = []
    monkeypatch.setattr(host, "_CALLS", 1)
    monkeypatch.setattr(host, "_BATCHES", 3)
    calls = {name: partial(order.append, name) for name in "abc"}
    assert list(host._medians(calls, machine)) == ["a", "b", "c"]
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
