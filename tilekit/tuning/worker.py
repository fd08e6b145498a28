"""The process that measures candidates, so that one that hangs or crashes takes nothing else with it.

Reads one JSON request from standard input, and writes a JSON line for each candidate to standard output: its time, or
why it has none. Then those that have one are timed again, a line for each time, in `ROUNDS` rounds that each have an
order of their own, since a kernel inherits the clock that the one before it leaves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from typing import Any

from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.matmul import ResultCheck
from tilekit.tuning.workloads import extents, from_values

OPERAND_BYTES = 200_000_000
"""What the rotated operand sets take at least: more than L2 holds."""

COMPILERS = 12
"""Candidates that are assembled at once."""

ROUNDS = 3
LEAD_IN_SECONDS = 0.02
MEASURED_SECONDS = 0.04


def main() -> None:
    """Measure what the request asks for."""
    for answer in answers(require_machine(), json.load(sys.stdin)):
        print(json.dumps(answer), flush=True)


def answers(machine: Machine, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure what the request asks for on `machine`: ``index`` of the config, and ``seconds`` or a ``failure``."""
    from tilekit.targets import target as target_named
    from tilekit.tuning.table import Problem, config_of

    workload = from_values(request["family"], request["workload"])
    seeds = count()
    sets = max(2, min(12, -(-OPERAND_BYTES // workload.bytes)))
    operands = [workload.operand_set(machine, seeds) for _ in range(sets)]
    target = target_named(request["target"])
    spec = workload.spec_on(target.name)
    family = Problem.of(spec, **extents(workload, spec)).family
    check = ResultCheck(workload, machine, operands)
    passes: dict[int, Callable[[], None]] = {}

    def built(values: dict[str, Any]) -> Any:
        try:
            kernel = workload.kernel(target.name, config_of(family, values, target))
            kernel.assembled  # noqa: B018  by ptxas, in the pool's threads
        except Exception as error:
            return error
        return kernel

    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = list(pool.map(built, request["configs"]))
    for index, kernel in enumerate(kernels):
        try:
            if isinstance(kernel, Exception):
                raise kernel
            work = _one_pass([workload.bind(kernel, of) for of in operands])
            error = check(work)
            if not error <= workload.error_limit:  # nor is NaN
                yield {"index": index, "failure": f"wrong result: relative error {error:.1e}"}
                continue
            passes[index] = machine.capture(work)
            yield {"index": index, "seconds": _seconds(machine, passes[index]) / sets}
        except Exception as error:
            yield {"index": index, "failure": f"{type(error).__name__}: {error}"[:300]}
    for turn in range(ROUNDS):
        order = list(passes)
        Random(turn).shuffle(order)
        for index in order:
            yield {"index": index, "seconds": _seconds(machine, passes[index]) / sets}


def _one_pass(plans: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    def work() -> None:
        for plan in plans:
            plan()

    return work


def _seconds(machine: Machine, replay: Callable[[], None]) -> float:
    machine.time(replay, 1)
    once = max(machine.time(replay, 1), 1e-7)
    machine.time(replay, max(1, round(LEAD_IN_SECONDS / once)))
    times = max(1, round(MEASURED_SECONDS / once))
    return machine.time(replay, times) / times


if __name__ == "__main__":
    main()
