"""Tuning at the first call, where `settings.tuning` asks for it: the best few by the model are timed once, and kept."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from tilekit.kernels.family_kernel import CallArguments
from tilekit.settings import FIRST_CALL, settings
from tilekit.targets import Target
from tilekit.tuning.lookup import table_of, tuned_config
from tilekit.tuning.table import Problem, choices_of
from tilekit.tuning.tuner import measure
from tilekit.tuning.workloads import Tunable, workload_for

CANDIDATES = 6
"""How many are timed: the model's choice, and those that it likes next."""

_one_at_a_time = threading.Lock()
_timed: set[tuple[str, str, Problem]] = set()
"""What this process has timed, or could not: it does so once."""


def tuned_or_timed(
    spec: Any,
    target: Target,
    device: str,
    *,
    m: int,
    n: int,
    k: int,
    batches: int,
    groups: int = 0,
    call: CallArguments | None = None,
) -> Any:
    """What tuning found for a problem on a device; with ``settings.tuning = "first call"`` it looks first.

    It does so in a process of its own, once a process of the caller's, and for what a benchmark's workload can be: not
    for operands that lie as none of its layouts. A failure is a warning, and None: the model's choice is as right.
    """
    shape: dict[str, Any] = {"m": m, "n": n, "k": k, "batches": batches, "groups": groups}
    found = tuned_config(spec, target, device, **shape)
    if found is not None or settings.tuning != FIRST_CALL or 0 in (m, n, k, batches):
        return found
    problem = Problem.of(spec, **shape)
    with _one_at_a_time:  # of two threads, the second finds what the first has kept
        if (device, target.name, problem) not in _timed:
            _timed.add((device, target.name, problem))
            workload = workload_for(spec, target, problem, call)
            try:
                if workload is not None:
                    _time(workload, spec, problem, target, device)
            except KeyboardInterrupt:  # it says nothing about the problem
                _timed.discard((device, target.name, problem))
                raise
    return tuned_config(spec, target, device, **shape)


def _time(workload: Tunable, spec: Any, problem: Problem, target: Target, device: str) -> None:
    ranked = choices_of(problem.family).ranked(spec, target, **problem.shape, read=workload.read)
    try:
        measured = measure(workload, target, list(ranked[:CANDIDATES]))
    except OSError as error:  # no process can be started
        reason = str(error)
    else:
        if any(m.seconds is not None for m in measured):
            table_of(device, target).add(problem, measured)
            return
        reason = measured[0].failure if measured else "there is nothing to choose from"
    warnings.warn(
        f"{workload.label} {workload.kind} was not tuned at its first call ({reason}): the model's choice is taken",
        RuntimeWarning,
        stacklevel=2,
    )
