"""The simulated machine, without and with stand-ins for tilekit's own calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tests.bench.simulated import SimulatedMachine
from tilekit.bench import contest


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """A simulated machine, with the harness's idle time taken out."""
    monkeypatch.setattr(contest.time, "sleep", lambda seconds: None)
    return SimulatedMachine()


@pytest.fixture
def computing(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """The simulated machine, with tilekit's calls replaced by NumPy at 1 us a launch."""

    def matmul(a: Any, b: Any, *, out: Any, scale: Any, precision: Any, accumulation: str) -> None:
        assert precision == ("tf32" if a.dtype == np.float32 else None)
        assert accumulation == (machine.accumulation if a.dtype.itemsize == 1 else "fast")
        machine.spend(1e-6)
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)

    def grouped_matmul(a: Any, b: Any, ends: Any, *, out: Any) -> None:
        machine.spend(1e-6)
        start = 0
        for group, end in enumerate(ends.tolist()):
            out[start:end] = (a[start:end].astype(np.float32) @ b[group].astype(np.float32)).astype(out.dtype)
            start = end

    monkeypatch.setattr(tilekit, "matmul", matmul, raising=False)
    monkeypatch.setattr(tilekit, "grouped_matmul", grouped_matmul, raising=False)
    return machine
