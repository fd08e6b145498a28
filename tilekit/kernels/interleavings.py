"""Whether what a kernel computes depends on the order in which its warps run: `kernel.check()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from tilekit.errors import ArgumentError
from tilekit.kernels.plan import EmulatedPlan, Plan


class Checked(tuple[Any, ...]):
    """What the emulator reported of each run of a `check`, whose results agree; true where it is clean."""

    __slots__ = ()

    @property
    def clean(self) -> bool:
        """Whether nothing was found in any run."""
        return all(report.clean for report in self)

    def __bool__(self) -> bool:
        return self.clean

    def __repr__(self) -> str:
        found = dict.fromkeys(str(finding) for report in self for finding in report.findings)
        return f"<{len(self)} interleavings with the same results; {'; '.join(found) or 'nothing found'}>"


def agreeing(
    name: str, plan_of: Callable[[int], Plan], seeds: Sequence[int], *, outputs: Sequence[str] = ()
) -> Checked:
    """Run a kernel on the emulator under several interleavings and return what was reported of each run.

    Parameters
    ----------
    name
        The kernel's, for errors.
    plan_of
        Binds arrays in host memory, and new outputs, for a seed.
    seeds
        Of the interleavings.
    outputs
        Names of the outputs, where each element of them is to be written.

    Raises
    ------
    ArgumentError
        ``TK-COMP-006`` where the results of two interleavings differ, ``TK-COMP-010`` where no thread writes an element
        of `outputs`; ``TK-COMP-003`` for arrays in GPU memory.
    """
    reports, first, untouched = [], "", Untouched(name, outputs)
    for seed in seeds:
        plan = plan_of(seed)
        if not isinstance(plan, EmulatedPlan):
            raise ArgumentError(
                f"{name}: given arrays that are not the emulator's to run; legal: arrays in host memory that are not "
                "empty. Nearest: copies",
                code="TK-COMP-003",
            )
        made = plan.out if isinstance(plan.out, tuple) else (plan.out,)
        untouched.mark(made)
        reports.append(plan.emulate())
        untouched.look(made)
        digest = sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in made)).hexdigest()
        if first and digest != first:
            untouched.refuse()
            raise ArgumentError(
                f"{name}: what it computes depends on the interleaving: seed {seed} gives other results than seed "
                f"{seeds[0]}; nearest: an order of sums that does not depend on who comes first",
                code="TK-COMP-006",
            )
        first = digest
    return Checked(reports)


class Untouched:
    """Elements of outputs that no thread writes: they differ from run to run as what was there before does."""

    def __init__(self, kernel: str, names: Sequence[str]) -> None:
        self._kernel, self._names = kernel, names
        self._runs = 0
        self._kept: list[Any] = []

    @property
    def _before(self) -> int:
        return 0xFF - self._runs % 0x7F

    def mark(self, outputs: Sequence[Any]) -> None:
        """Fill outputs with bytes of this run."""
        for one, _ in zip(outputs, self._names, strict=False):
            _bytes(one)[...] = self._before

    def look(self, outputs: Sequence[Any]) -> None:
        """See which elements still have them."""
        same = [
            (_bytes(one) == self._before).all(1).reshape(one.shape)
            for one, _ in zip(outputs, self._names, strict=False)
        ]
        self._kept = [old & new for old, new in zip(self._kept, same, strict=True)] if self._runs else same
        self._runs += 1

    def refuse(self) -> None:
        """Raise ``TK-COMP-010`` for the first output of which elements have been as they were in every run."""
        for name, kept in zip(self._names, self._kept, strict=True):
            if kept.any():
                place = tuple(map(int, np.argwhere(kept)[0]))
                raise ArgumentError(
                    f"{self._kernel}: no thread writes {int(kept.sum()):,} of {kept.size:,} elements of {name}, the "
                    f"first at {place}; nearest: a schedule and bounds that cover the output",
                    code="TK-COMP-010",
                )


def _bytes(array: Any) -> Any:
    """An output's bytes, a row an element."""
    return array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
