"""Which config tuning found for a problem: what `tilekit.matmul` asks before the model."""

from __future__ import annotations

from functools import cache

from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tuning.table import Problem, TunedTable


@cache
def table_of(device: str, target: Target) -> TunedTable:
    """The table of a device, read once a process."""
    return TunedTable(device, target)


def tuned_config(
    spec: MatmulSpec, target: Target, device: str, *, m: int, n: int, k: int, batches: int
) -> KernelConfig | None:
    """The config that tuning found for a problem on a device, if it can be built for this spec."""
    table = table_of(device, target)
    found = table.best(Problem.of(spec, m=m, n=n, k=k, batches=batches)) if len(table) else None
    return found if found is not None and found.legal(target, spec) else None
