"""The process that measures candidates, so that one that hangs or crashes takes nothing else with it.

Reads one JSON request from standard input, and writes a JSON line for each candidate to standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import as_dtype

OPERAND_BYTES = 200_000_000
"""What the rotated operand sets take at least: more than L2 holds."""

LEAD_IN_SECONDS = 0.03
MEASURED_SECONDS = 0.06


def main() -> None:
    """Measure what the request asks for."""
    import tilekit
    from tilekit.targets import target as target_named
    from tilekit.tuning.table import config_of

    request = json.load(sys.stdin)
    workload = workload_from(request["workload"])
    machine = require_machine()
    seeds = count()
    sets = max(2, min(12, -(-OPERAND_BYTES // workload.bytes)))
    operands = [workload.operand_set(machine, seeds) for _ in range(sets)]
    target = target_named(request["target"])
    for index, values in enumerate(request["configs"]):
        try:
            config = config_of(values, target)
            kernel = tilekit.compile(workload.spec, target=target.name, config=config)
            plans = [kernel.bind(a, b, out) for a, b, out in operands]
            answer: dict[str, Any] = {"index": index, "seconds": _seconds(machine, plans)}
        except Exception as error:
            answer = {"index": index, "failure": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


def workload_from(values: dict[str, Any]) -> MatmulWorkload:
    """Build a workload from its fields as JSON has them."""
    types = {name: as_dtype(values[name]) for name in ("a_dtype", "b_dtype", "out_dtype")}
    return MatmulWorkload(**{**values, **types})


def _seconds(machine: Machine, plans: Sequence[Callable[[], Any]]) -> float:
    def work() -> None:
        for plan in plans:
            plan()

    work()
    replay = machine.capture(work)
    machine.time(replay, 1)
    once = max(machine.time(replay, 1), 1e-7)
    machine.time(replay, max(1, round(LEAD_IN_SECONDS / once)))
    times = max(1, round(MEASURED_SECONDS / once))
    return machine.time(replay, times) / times / len(plans)


if __name__ == "__main__":
    main()
