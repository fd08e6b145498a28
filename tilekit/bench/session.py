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

__all__ = ["gather", "measure_suite"]


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
    """

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
