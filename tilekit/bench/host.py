"""Host time: what a call costs the CPU, for shapes so small that the GPU waits for it."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilekit.bench.machine import CupyMachine, Machine
from tilekit.bench.workload import MatmulWorkload

__all__ = ["HostTimes", "measure_host"]

_BATCHES = 25
_CALLS = 200
"""Calls between two synchronisations: fewer than the driver queues before it makes the host wait."""


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Microseconds a call, by what was called."""

    shape: str
    us: dict[str, float]


def measure_host(machine: Machine, workload: MatmulWorkload | None = None) -> HostTimes:
    """Time a bound plan, tilekit's array call with and without ``out=``, the library's own, and torch's operator.

    Where torch's arrays are timed and CuPy is here too, the calls with CuPy's arrays follow.

    Parameters
    ----------
    machine : Machine
    workload : MatmulWorkload, optional
        64x64x64 in bf16 if not given.
    """
    workload = workload or MatmulWorkload(64, 64, 64)
    calls = _calls(machine, workload)
    if machine.library.startswith("torch") and importlib.util.find_spec("cupy") is not None:
        import cupy

        calls |= {f"{name}, of CuPy": call for name, call in _calls(CupyMachine(cupy), workload).items()}
    return HostTimes(workload.label, _medians(calls, machine))


def _calls(machine: Machine, workload: MatmulWorkload) -> dict[str, Callable[[], Any]]:
    """What is timed with the arrays of one library, by name."""
    import tilekit

    a, b = (
        workload.cut(operand, machine.normal(*workload.stored(operand), seed))
        for seed, operand in enumerate(("a", "b"))
    )
    out = machine.empty(workload.out_shape, workload.out_dtype)
    kernel = tilekit.compile(
        tilekit.MatmulSpec(
            workload.a_dtype,
            workload.b_dtype,
            workload.out_dtype,
            workload.a_major,
            workload.b_major,
            batched=workload.batch is not None,
        )
    )
    library = machine.library.split()[0]
    calls: dict[str, Callable[[], Any]] = {
        "plan()": kernel.bind(a, b, out),
        "tilekit.matmul(a, b, out=c)": lambda: tilekit.matmul(a, b, out=out),
        "tilekit.matmul(a, b)": lambda: tilekit.matmul(a, b, out_dtype=workload.out_dtype),
        f"{library}.matmul(a, b, out=c)": lambda: machine.matmul(a, b, out),
    }
    if workload.bits > 8:
        calls[f"{library}.matmul(a, b)"] = lambda: a @ b
    if library == "torch":
        operators: Any = importlib.import_module("tilekit.torch")
        calls["tilekit.torch.matmul(a, b)"] = lambda: operators.matmul(a, b)
        calls["tilekit.torch.matmul(a, b, out=c)"] = lambda: operators.matmul(a, b, out=out)
    return calls


def _medians(calls: dict[str, Callable[[], Any]], machine: Machine) -> dict[str, float]:
    """Microseconds of each: medians over batches, which take turns in an order that rotates.

    Another process on the same cores then slows all of them, and not the one that is timed just then.
    """
    for call in calls.values():
        for _ in range(_CALLS):
            call()
        machine.synchronize()
    names = list(calls)
    batches: dict[str, list[float]] = {name: [] for name in names}
    for number in range(_BATCHES):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            call = calls[name]
            start = time.perf_counter()
            for _ in range(_CALLS):
                call()
            batches[name].append((time.perf_counter() - start) / _CALLS)
            machine.synchronize()
    return {name: statistics.median(found) * 1e6 for name, found in batches.items()}
