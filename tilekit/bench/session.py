"""A run of suite cases from beginning to end: who takes part, what is left out and why, the record as it grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilekit.bench import matmul
from tilekit.bench.contest import QUICK, Pace
from tilekit.bench.entrants import Entrant, library_entrants, load_peers, tilekit_entrants
from tilekit.bench.machine import Machine
from tilekit.bench.record import Record
from tilekit.bench.suites import SuiteCase
from tilekit.errors import DriverError
from tilekit.kernels.registry import families
from tilekit.kernels.resolve import runs_text
from tilekit.targets import TARGETS

__all__ = ["gather", "measure_suite", "require_kernels", "why_not"]


def why_not(machine: Machine, family: str) -> str | None:
    """Why no kernel for workloads of a family runs on a machine; None where one does."""
    entry = families().get(family.removeprefix("fused_"))
    if entry is None or any(runs_text(TARGETS[name], machine.capability) for name in entry.targets):
        return None
    able = " or ".join(f"{name} ({TARGETS[name].product})" for name in entry.targets if TARGETS[name].isa == "ptx")
    capability = ".".join(map(str, machine.capability))
    return f"{family} needs a GPU that is {able}, and {machine.device} has compute capability {capability}"


def require_kernels(machine: Machine, family: str) -> None:
    """Raise `DriverError` (``TK-BENCH-002``) where no kernel for workloads of a family runs on a machine."""
    why = why_not(machine, family)
    if why is not None:
        raise DriverError(why, code="TK-BENCH-002")


def gather(machine: Machine, peers: Sequence[str], record: Record) -> list[Entrant]:
    """Return tilekit's entrants and those of the peers asked for; versions and absences go into the record.

    Parameters
    ----------
    machine : Machine
    peers : sequence of str
        ``"library"``, names and paths as :func:`load_peers` takes them, or ``"all"``.
    record : Record
        Is added to.
    """
    found = load_peers([name for name in peers if name != "library"])
    record.about |= found.about
    record.notes += [f"{name} does not take part: {why}" for name, why in found.skipped.items()]
    library = library_entrants(machine) if {"library", "all"} & set(peers) else []
    return [*tilekit_entrants(machine), *library, *found.entrants]


def measure_suite(
    cases: Sequence[SuiteCase],
    entrants: Sequence[Entrant],
    machine: Machine,
    record: Record,
    *,
    box_seconds: float = math.inf,
    pace: Pace = QUICK,
    seed: int = 0,
    progress: Callable[[matmul.Case], None] | None = None,
) -> None:
    """Measure cases of suites into a record, each as it is done, worst first in the end.

    Cases of families that the machine's chip has no kernels of are left out with a note.

    Parameters
    ----------
    cases : sequence of SuiteCase
        In the order in which they are measured.
    entrants, machine, pace, seed
        As :func:`tilekit.bench.matmul.run` takes them.
    record : Record
        Is added to.
    box_seconds : float, optional
        After this time no further case is begun.
    progress : callable, optional
        Called with each case when the record has it.

    Raises
    ------
    DriverError
        ``TK-BENCH-002`` where no case is left.
    """
    reasons = {case.workload.family: why_not(machine, case.workload.family) for case in cases}
    for family, why in reasons.items():
        if why is not None:
            count = sum(case.workload.family == family for case in cases)
            record.notes.append(f"{count} of {len(cases)} case(s) left out: {why}")
    if reasons and None not in reasons.values():
        require_kernels(machine, next(iter(reasons)))
    cases = [case for case in cases if reasons[case.workload.family] is None]

    def done(case: matmul.Case) -> None:
        record.cases.append(case)
        if progress is not None:
            progress(case)

    record.cases = matmul.run(
        [case.workload for case in cases],
        entrants,
        machine,
        box_seconds=box_seconds,
        seed=seed,
        pace=pace,
        suites=[case.suite for case in cases],
        progress=done,
    )
    left_out = cases[len(record.cases) :]
    if left_out:
        names = ", ".join(f"{case.suite} {case.workload.label}" for case in left_out)
        record.notes.append(f"{len(left_out)} of {len(cases)} case(s) left out, time was up: {names}")
