"""Matmul contests: tilekit and its peers on the same operands, checked, then timed."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.contest import Timing, hold
from tilekit.bench.machine import Machine
from tilekit.bench.workload import MatmulWorkload

__all__ = ["OURS", "Case", "Entrant", "Result", "library_entrant", "run", "tilekit_entrant"]

OURS = "tilekit"

_L2_MULTIPLE = 3
_MOST_SETS = 1024


@dataclass(frozen=True, slots=True)
class Entrant:
    """One contestant: ``launch(a, b, out)`` enqueues the product on the library's current stream."""

    name: str
    launch: Callable[[Any, Any, Any], None]


@dataclass(slots=True)
class Result:
    """One entrant's figures in one case.

    Attributes
    ----------
    name : str
    error : float or None
        Relative Frobenius error of its first and last output against float32, the larger.
    failure : str or None
        Why there are no times.
    us, burst_us : float or None
        Microseconds a launch, sustained and burst.
    tflops : float or None
        Of the sustained figure.
    ratio, burst_ratio : float or None
        This entrant's time over tilekit's: above 1, tilekit is faster.
    spread : tuple of float or None
        Smallest and largest ratio within a round.
    rounds : list of float
        Sustained microseconds, round by round.
    sm_mhz, watts : float or None
    """

    name: str
    error: float | None = None
    failure: str | None = None
    us: float | None = None
    burst_us: float | None = None
    tflops: float | None = None
    ratio: float | None = None
    burst_ratio: float | None = None
    spread: tuple[float, float] | None = None
    rounds: Sequence[float] = ()
    sm_mhz: float | None = None
    watts: float | None = None


@dataclass(slots=True)
class Case:
    """One workload, measured: its entrants in the order given, tilekit first."""

    label: str
    kind: str
    flops: int
    bytes: int
    sets: int
    seconds: float
    results: list[Result]

    @property
    def worst_ratio(self) -> float:
        """Smallest sustained ratio over the peers; a failure of tilekit's own counts as 0, no peer as infinity."""
        if self.results[0].failure is not None:
            return 0.0
        return min((result.ratio for result in self.results if result.ratio is not None), default=math.inf)


def tilekit_entrant() -> Entrant:
    """Return tilekit's own entrant: the array call, with the kernel its heuristic picks."""
    import tilekit

    def launch(a: Any, b: Any, out: Any) -> None:
        tilekit.matmul(a, b, out=out)

    return Entrant(OURS, launch)


def library_entrant(machine: Machine) -> Entrant:
    """Return the array library's own product (cuBLAS through torch or CuPy)."""
    return Entrant(f"cuBLAS ({machine.library.split()[0]})", machine.matmul)


def run(
    workloads: Sequence[MatmulWorkload],
    entrants: Sequence[Entrant],
    machine: Machine,
    *,
    seconds: float,
    seed: int = 0,
    progress: Callable[[Case], None] | None = None,
) -> list[Case]:
    """Measure every workload and return the cases, worst first.

    Parameters
    ----------
    workloads, entrants
        What is computed, and by whom; the first entrant is the one that the others are compared with.
    machine : Machine
    seconds : float
        Time for all cases together, set-up included. A case takes at least the fewest rounds, whatever that takes.
    seed : int
        Of the operands.
    progress : callable, optional
        Called with each case as it is done.
    """
    deadline = time.perf_counter() + seconds
    cases = []
    with ClockSampler(machine.uuid) as sampler:
        for index, workload in enumerate(workloads):
            share = max(0.0, deadline - time.perf_counter()) / (len(workloads) - index)
            case = _measure(workload, entrants, machine, share, seed, sampler)
            cases.append(case)
            if progress is not None:
                progress(case)
    return sorted(cases, key=lambda case: case.worst_ratio)


def _measure(
    workload: MatmulWorkload,
    entrants: Sequence[Entrant],
    machine: Machine,
    seconds: float,
    seed: int,
    sampler: ClockSampler,
) -> Case:
    began = time.perf_counter()
    sets = _operand_sets(workload, machine, seed)
    results = {entrant.name: Result(entrant.name) for entrant in entrants}
    passes: dict[str, Callable[[], None]] = {}
    for entrant in entrants:
        work = _one_pass(entrant, sets)
        result = results[entrant.name]
        try:
            result.error = _check(work, sets, machine)
        except Exception as error:
            # A peer that cannot run a case is a line of the table, not the end of the benchmark.
            result.failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".strip()
            continue
        if not result.error <= workload.error_limit:
            result.failure = f"wrong: relative error {result.error:.2g}, limit {workload.error_limit:.2g}"
        else:
            passes[entrant.name] = work
    left = seconds - (time.perf_counter() - began)
    timings = hold(machine, passes, len(sets), left, sampler) if passes else {}
    for name, timing in timings.items():
        _fill(results[name], timing, workload, timings.get(entrants[0].name))
    return Case(
        workload.label,
        workload.kind,
        workload.flops,
        workload.bytes,
        len(sets),
        time.perf_counter() - began,
        list(results.values()),
    )


def _operand_sets(workload: MatmulWorkload, machine: Machine, seed: int) -> list[tuple[Any, Any, Any]]:
    # Two sets at least: with one, the end of a launch would leave the beginning of the next in the L2 cache.
    wanted = math.ceil(_L2_MULTIPLE * machine.l2_bytes / workload.bytes)
    count = min(max(wanted, 2), _MOST_SETS)
    seeds = itertools.count(seed)
    sets = []
    for _ in range(count):
        operands = []
        for operand in ("a", "b"):
            operands.append(workload.cut(operand, machine.normal(*workload.stored(operand), next(seeds))))
        sets.append((operands[0], operands[1], machine.empty(workload.out_shape, workload.out_dtype)))
    return sets


def _one_pass(entrant: Entrant, sets: Sequence[tuple[Any, Any, Any]]) -> Callable[[], None]:
    def work() -> None:
        for a, b, out in sets:
            entrant.launch(a, b, out)

    return work


def _check(work: Callable[[], None], sets: Sequence[tuple[Any, Any, Any]], machine: Machine) -> float:
    """Return the larger relative error of the first and the last set; what is left unwritten is NaN."""
    ends = (sets[0], sets[-1])
    for _, _, out in ends:
        machine.poison(out)
    work()
    machine.synchronize()
    errors = [machine.relative_error(*operands) for operands in ends]
    return math.nan if any(math.isnan(error) for error in errors) else max(errors)


def _fill(result: Result, timing: Timing, workload: MatmulWorkload, ours: Timing | None) -> None:
    result.us, result.burst_us = timing.sustained, timing.burst
    result.tflops = workload.flops / timing.sustained / 1e6
    result.rounds, result.sm_mhz, result.watts = timing.rounds, timing.sm_mhz, timing.watts
    if ours is not None and ours is not timing:
        result.ratio = timing.ratio_to(ours)
        result.burst_ratio = timing.burst / ours.burst
        result.spread = timing.spread_to(ours)
