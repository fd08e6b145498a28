"""Tuning at the first call, where `settings.tuning` asks for it: the best few by the model are timed once, and kept."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from tilekit.bench.workload import MatmulWorkload
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import ranked
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.settings import FIRST_CALL, settings
from tilekit.targets import Target
from tilekit.tuning.lookup import table_of, tuned_config
from tilekit.tuning.table import Problem
from tilekit.tuning.tuner import measure

CANDIDATES = 6
"""How many are timed: the model's choice, and those that it likes next."""

_one_at_a_time = threading.Lock()
_timed: set[tuple[str, Problem]] = set()
"""What this process has timed, or could not: it does so once."""


def tuned_or_timed(
    spec: MatmulSpec, target: Target, device: str, *, m: int, n: int, k: int, batches: int
) -> KernelConfig | None:
    """What tuning found for a problem on a device; with ``settings.tuning = "first call"`` it looks first.

    It does so in a process of its own, once a process of the caller's, and for what a benchmark's workload can be: not
    for convolutions, nor for operands that lie as none of its layouts. A failure is a warning, and None: the model's
    choice is as right.
    """
    shape: dict[str, Any] = {"m": m, "n": n, "k": k, "batches": batches}
    found = tuned_config(spec, target, device, **shape)
    if found is not None or settings.tuning != FIRST_CALL or 0 in shape.values():
        return found
    problem = Problem.of(spec, **shape)
    workload = _workload_of(spec, problem)
    if workload is None:
        return None
    with _one_at_a_time:  # of two threads, the second finds what the first has kept
        if (device, problem) not in _timed:
            _timed.add((device, problem))
            _time(workload, problem, target, device)
    return tuned_config(spec, target, device, **shape)


def _time(workload: MatmulWorkload, problem: Problem, target: Target, device: str) -> None:
    shape = _shape(problem)
    configs = [estimate.config for estimate in ranked(workload.spec, target, **shape)[:CANDIDATES]]
    try:
        measured = measure(workload, target, configs)
    except OSError as error:  # no process can be started
        reason = str(error)
    else:
        if any(m.seconds is not None for m in measured):
            table_of(device, target).add(problem, measured)
            return
        reason = measured[0].failure
    warnings.warn(
        f"{workload.label} {workload.kind} was not tuned at its first call ({reason}): the model's choice is taken",
        RuntimeWarning,
        stacklevel=2,
    )


def _workload_of(spec: MatmulSpec, problem: Problem) -> MatmulWorkload | None:
    """A benchmark's workload that the same configs compute; None where there is none."""
    for padded in (False, True):
        try:
            workload = MatmulWorkload(
                m=problem.m,
                n=problem.n,
                k=problem.k,
                batch=problem.batches if spec.batched else None,
                a_dtype=spec.a_dtype,
                b_dtype=spec.b_dtype,
                out_dtype=spec.out_dtype,
                a_major=spec.a_major,
                b_major=spec.b_major,
                precision=spec.precision,
                accumulation=spec.accumulation,
                padded=padded,
            )
            own = workload.spec
        except ArgumentError:
            continue
        if type(own) is type(spec) and Problem.of(own, **_shape(problem)) == problem:
            return workload
    return None


def _shape(problem: Problem) -> dict[str, Any]:
    return {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches}
