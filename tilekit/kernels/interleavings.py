"""Whether what a kernel computes depends on the order in which its warps run: `kernel.check()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from tilekit.errors import ArgumentError
from tilekit.kernels.plan import EmulatedPlan, Plan


class Checked(tuple[Any, ...]):
    """What the emulator reported of each run of a `check`, in whose results all of them agree."""

    __slots__ = ()

    def __repr__(self) -> str:
        found = [str(report) for report in self if not report.clean]
        return f"<{len(self)} interleavings with the same results; {'; '.join(found) or 'nothing found'}>"


def agreeing(name: str, plan_of: Callable[[int], Plan], seeds: Sequence[int]) -> Checked:
    """Run a kernel on the emulator under several interleavings and return what was reported of each run.

    Parameters
    ----------
    name
        The kernel's, for errors.
    plan_of
        Binds arrays in host memory, and new outputs, for a seed.
    seeds
        Of the interleavings.

    Raises
    ------
    ArgumentError
        ``TK-COMP-006`` where the results of two interleavings differ; ``TK-COMP-003`` for arrays in GPU memory.
    """
    reports, first = [], ""
    for seed in seeds:
        plan = plan_of(seed)
        if not isinstance(plan, EmulatedPlan):
            raise ArgumentError(
                f"{name}: given arrays that are not the emulator's to run; legal: arrays in host memory that are not "
                "empty. Nearest: copies",
                code="TK-COMP-003",
            )
        made = plan()
        outputs = made if isinstance(made, tuple) else (made,)
        digest = sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in outputs)).hexdigest()
        if first and digest != first:
            raise ArgumentError(
                f"{name}: what it computes depends on the interleaving: seed {seed} gives other results than seed "
                f"{seeds[0]}; nearest: an order of sums that does not depend on who comes first",
                code="TK-COMP-006",
            )
        first = digest
        reports.append(plan.report)
    return Checked(reports)
