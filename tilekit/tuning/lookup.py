"""Which config tuning found for a problem: what calls ask before the model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tilekit.kernels.family_kernel import CallArguments
from tilekit.settings import settings
from tilekit.targets import Target
from tilekit.tuning.table import TABLES, Problem, TunedTable


def table_of(device: str, target: Target) -> TunedTable:
    """The table of a device in the cache folder of the settings, read once a process."""
    return _table_in(settings.cache_dir / TABLES, device, target)


@cache
def _table_in(folder: Path, device: str, target: Target) -> TunedTable:
    return TunedTable(device, target, folder)


def tuned_config(
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
    """The quickest config that tuning found for a problem on a device, of those that can be built for this spec.

    What an epilogue's functions and a caller's components are is no part of a problem, and not every config has them.
    """
    table = table_of(device, target)
    if not len(table):
        return None
    problem = Problem.of(spec, m=m, n=n, k=k, batches=batches, groups=groups)
    return table.best(problem, lambda config: config.legal(target, spec))
