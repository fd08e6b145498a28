"""Contests of products, dense or grouped: tilekit and its peers on the same operands, checked, then timed."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.contest import THOROUGH, Pace, Timing, hold
from tilekit.bench.entrants import Collect, Entrant, first_line
from tilekit.bench.machine import Machine
from tilekit.bench.workload import Workload, checked_rows

__all__ = ["Case", "Result", "run"]

_L2_MULTIPLE: Final = 3
_MOST_SETS: Final = 1024


@dataclass(slots=True)
class Result:
    """One entrant's figures in one case.

    Attributes
    ----------
    name : str
    error : float or None
        Relative Frobenius error of its first and last output against float32, the larger; None of a part.
    failure : str or None
        Why there are no times.
    us, burst_us : float or None
        Microseconds a launch, sustained and burst.
    tflops : float or None
        Of the sustained figure.
    ratio, burst_ratio : float or None
        This entrant's time over tilekit's, median over rounds or bursts: above 1, tilekit is faster.
    spread : tuple of float or None
        Smallest and largest ratio within a round.
    rounds, bursts : sequence of float
        Microseconds a launch of each round and burst, which the figures above are made of.
    ratios, burst_ratios : sequence of float
        The same over tilekit's of the same round or burst; empty for tilekit itself.
    sm_mhz, watts : float or None
        Means over the entrant's measured slices.
    part : bool
        Whether it computes a part of the workload, to show what the rest costs: no peer.
    """

    name: str
    error: float | None = None
    failure: str | None = None
    us: float | None = None
    burst_us: float | None = None
    tflops: float | None = None
    ratio: float | None = None
    burst_ratio: float | None = None
    spread: Sequence[float] | None = None
    rounds: Sequence[float] = ()
    bursts: Sequence[float] = ()
    ratios: Sequence[float] = ()
    burst_ratios: Sequence[float] = ()
    sm_mhz: float | None = None
    watts: float | None = None
    part: bool = False

    def summarise(self, flops: int) -> None:
        """Compute the figures from the rounds and bursts; a failure has none."""
        if self.failure is not None:
            self.rounds = self.bursts = self.ratios = self.burst_ratios = ()
        self.us, self.burst_us = _median(self.rounds), _median(self.bursts)
        self.ratio, self.burst_ratio = _median(self.ratios), _median(self.burst_ratios)
        self.tflops = None if self.us is None else flops / self.us / 1e6
        self.spread = (min(self.ratios), max(self.ratios)) if self.ratios else None


@dataclass(slots=True)
class Case:
    """One workload, measured: its entrants in the order given, tilekit first.

    Attributes
    ----------
    label, kind : str
        The workload's; with ``suite`` they tell cases apart.
    flops, bytes : int
        Of one launch.
    sets : int
        Operand sets that were rotated.
    seconds : float
        What measuring it took.
    results : list of Result
    suite : str
        The suite that the case is of; empty for shapes given one by one.
    bits : int
        Of an element of A.
    """

    label: str
    kind: str
    flops: int
    bytes: int
    sets: int
    seconds: float
    results: list[Result]
    suite: str = ""
    bits: int = 16

    @property
    def worst_ratio(self) -> float:
        """Smallest sustained ratio over the peers; a failure of tilekit's own counts as 0, no peer as infinity."""
        if self.results[0].failure is not None:
            return 0.0
        peers = (result.ratio for result in self.results if not result.part and result.ratio is not None)
        return min(peers, default=math.inf)

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes


def run(
    workloads: Sequence[Workload],
    entrants: Sequence[Entrant],
    machine: Machine,
    *,
    seconds: float = 0.0,
    box_seconds: float = math.inf,
    seed: int = 0,
    pace: Pace = THOROUGH,
    suites: Sequence[str] | None = None,
    progress: Callable[[Case], None] | None = None,
) -> list[Case]:
    """Measure workloads and return the cases, worst first.

    Parameters
    ----------
    workloads, entrants
        What is computed, and by whom. Each workload is for the entrants of its family, the first of which is the one
        that the others are compared with.
    machine : Machine
    seconds : float, optional
        Time for all cases together, set-up included. A case takes at least the pace's fewest rounds, whatever that
        takes.
    box_seconds : float, optional
        After this time no further case is begun: what is left out is not in the answer.
    seed : int, optional
        Of the operands.
    pace : Pace, optional
    suites : sequence of str, optional
        The suite that each workload is of.
    progress : callable, optional
        Called with each case as it is done.
    """
    began = time.perf_counter()
    cases: list[Case] = []
    with ClockSampler(machine.uuid) as sampler:
        for index, (workload, suite) in enumerate(zip(workloads, suites or itertools.repeat(""), strict=False)):
            spent = time.perf_counter() - began
            if spent > box_seconds:
                break
            share = max(0.0, seconds - spent) / (len(workloads) - index)
            own = [entrant for entrant in entrants if entrant.family == workload.family]
            case = _measure(workload, own, machine, share, seed, sampler, pace)
            case.suite = suite
            cases.append(case)
            if progress is not None:
                progress(case)
    return sorted(cases, key=lambda case: case.worst_ratio)


def _measure(
    workload: Workload,
    entrants: Sequence[Entrant],
    machine: Machine,
    seconds: float,
    seed: int,
    sampler: ClockSampler,
    pace: Pace,
) -> Case:
    began = time.perf_counter()
    sets = _operand_sets(workload, machine, seed)
    results = {entrant.name: Result(entrant.name, part=entrant.part) for entrant in entrants}
    passes: dict[str, Callable[[], None]] = {}
    check = ResultCheck(workload, machine, sets)
    for entrant in entrants:
        work = _one_pass(entrant, sets)
        result = results[entrant.name]
        try:
            if entrant.prepare is not None:
                entrant.prepare(machine, sets)
            if entrant.part:
                work()
                machine.synchronize()
            else:
                result.error = check(work, entrant.collect)
        except Exception as error:
            # A peer that cannot run a case is a line of the table, not the end of the benchmark.
            result.failure = first_line(error)
            continue
        if result.error is not None and not result.error <= workload.error_limit:
            result.failure = f"wrong: relative error {result.error:.2g}, limit {workload.error_limit:.2g}"
        else:
            passes[entrant.name] = work
    timings: dict[str, Timing] = {}
    if passes:
        left = seconds - (time.perf_counter() - began)
        with_bursts = workload.flops / workload.bytes >= pace.burst_intensity
        timings = hold(machine, passes, len(sets), left, sampler, pace, with_bursts)
    _fill(results, timings, workload.flops, ours=entrants[0].name)
    return Case(
        workload.label,
        workload.kind,
        workload.flops,
        workload.bytes,
        len(sets),
        time.perf_counter() - began,
        list(results.values()),
        bits=workload.bits,
    )


def _operand_sets(workload: Workload, machine: Machine, seed: int) -> list[tuple[Any, ...]]:
    # Two sets at least: with one, the end of a launch would leave the beginning of the next in the L2 cache.
    wanted = math.ceil(_L2_MULTIPLE * machine.l2_bytes / workload.bytes)
    seeds = itertools.count(seed)
    return [workload.operand_set(machine, seeds) for _ in range(min(max(wanted, 2), _MOST_SETS))]


def _one_pass(entrant: Entrant, sets: Sequence[tuple[Any, ...]]) -> Callable[[], None]:
    def work() -> None:
        for operands in sets:
            entrant.launch(*operands)

    return work


class ResultCheck:
    """Compares the first and the last output of a pass with float32 products, which are computed once a case.

    Every element must be written; `checked_rows` are compared.
    """

    def __init__(self, workload: Workload, machine: Machine, sets: Sequence[tuple[Any, ...]]) -> None:
        self._machine = machine
        self._sets = (sets[0], sets[-1])
        self._outputs = [operands[-1] for operands in self._sets]
        self._written: list[Any] = []
        self._expected: list[tuple[Any, Any]] = []
        for operands in (sets[0], sets[-1]):
            for a, b, out in workload.pieces(operands):
                self._written.append(out)
                some = (..., checked_rows(a.shape[-2]), slice(None))
                expected = workload.finished(machine, operands, machine.product(a[some], b))
                self._expected.append((out[some], expected))

    def __call__(self, work: Callable[[], None], collect: Collect | None = None) -> float:
        """Run a pass and return the largest relative error; what is left unwritten is NaN."""
        for out in self._outputs:
            self._machine.poison(out)
        work()
        if collect is not None:
            for operands in self._sets:
                collect(*operands)
        self._machine.synchronize()
        if any(self._machine.any_nan(out) for out in self._written):
            return math.nan
        return max(self._machine.distance(out, expected) for out, expected in self._expected)


def _fill(results: Mapping[str, Result], timings: Mapping[str, Timing], flops: int, ours: str) -> None:
    mine = timings.get(ours)
    for name, result in results.items():
        timing = timings.get(name)
        if timing is not None:
            result.rounds, result.bursts = timing.rounds, timing.bursts
            result.sm_mhz, result.watts = timing.sm_mhz, timing.watts
            if mine is not None and mine is not timing:
                result.ratios = _over(timing.rounds, mine.rounds)
                result.burst_ratios = _over(timing.bursts, mine.bursts)
        result.summarise(flops)


def _over(theirs: Sequence[float], mine: Sequence[float]) -> list[float]:
    return [their / my for their, my in zip(theirs, mine, strict=True)]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
