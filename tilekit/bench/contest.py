"""The measurement: contestants in turn, round after round, compared within the round.

A GPU under load settles at the clock its power limit allows, drifts with temperature, and remembers its neighbour's
power for tens of milliseconds. So no contestant is timed alone. After a load of 0.3 s the contestants take turns, each
with an unmeasured lead-in, in an order that rotates; the ratio of two contestants is the median over rounds of the
ratio within the round, which cancels the drift. That is the *sustained* figure. The *burst* figure is a rested card:
idle, a little light load to bring the clock up, one pass unmeasured, some milliseconds measured.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.machine import Machine

__all__ = ["Timing", "hold"]

LOAD_SECONDS = 0.3
LEAD_IN_SECONDS = 0.025
SLICE_SECONDS = 0.1
IDLE_SECONDS = 0.3
LIGHT_LOAD_SECONDS = 0.02
BURST_SECONDS = 0.006
BURSTS = 3
FEWEST_ROUNDS = 3
MOST_ROUNDS = 12


@dataclass(slots=True)
class Timing:
    """One contestant's times, in microseconds a launch.

    Attributes
    ----------
    rounds : list of float
        One figure a round of the sustained measurement; index i is the same round for every contestant.
    bursts : list of float
        One figure a burst.
    sm_mhz, watts : float or None
        Means over the contestant's own measured slices; None where nothing could read them.
    """

    rounds: list[float] = field(default_factory=list)
    bursts: list[float] = field(default_factory=list)
    sm_mhz: float | None = None
    watts: float | None = None

    @property
    def sustained(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def burst(self) -> float:
        """Median over the bursts."""
        return statistics.median(self.bursts)

    def ratio_to(self, other: Timing) -> float:
        """Median over the rounds of this contestant's time over the other's in the same round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))

    def spread_to(self, other: Timing) -> tuple[float, float]:
        """Smallest and largest of the ratios within a round."""
        ratios = [mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True)]
        return min(ratios), max(ratios)


def hold(
    machine: Machine,
    passes: Mapping[str, Callable[[], None]],
    launches: int,
    seconds: float,
    sampler: ClockSampler,
) -> dict[str, Timing]:
    """Time contestants against each other.

    Parameters
    ----------
    machine : Machine
        Captures and times.
    passes : mapping of str to callable
        Each contestant's name, and the function that enqueues its one pass over all buffer sets on the current stream.
        It must have run before, so that capturing it compiles and allocates nothing.
    launches : int
        Launches in a pass.
    seconds : float
        Time for everything together. At least three rounds are held whatever they take.
    sampler : ClockSampler
        Watches clock and power during the slices.
    """
    deadline = time.perf_counter() + seconds
    replays = {name: machine.capture(work) for name, work in passes.items()}
    single = {name: _single_pass(machine, replay) for name, replay in replays.items()}
    timings = {name: Timing() for name in passes}

    def measure(name: str, span: float) -> float:
        count = max(1, math.ceil(span / single[name]))
        return machine.time(replays[name], count) / count

    burst_span = BURSTS * len(passes) * (IDLE_SECONDS + LIGHT_LOAD_SECONDS + BURST_SECONDS + 2 * max(single.values()))
    _load(machine, replays, single)
    names = list(passes)
    windows: dict[str, list[tuple[float, float]]] = {name: [] for name in passes}
    for index in range(MOST_ROUNDS):
        began = time.perf_counter()
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            measure(name, LEAD_IN_SECONDS)
            start = time.perf_counter()
            timings[name].rounds.append(measure(name, SLICE_SECONDS) / launches * 1e6)
            windows[name].append((start, time.perf_counter()))
        now = time.perf_counter()
        if index + 1 >= FEWEST_ROUNDS and now + (now - began) + burst_span > deadline:
            break
    for name, timing in timings.items():
        timing.sm_mhz, timing.watts = sampler.mean(windows[name])

    for index in range(BURSTS):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            time.sleep(IDLE_SECONDS)
            machine.light_load(LIGHT_LOAD_SECONDS)
            machine.time(replays[name], 1)
            timings[name].bursts.append(measure(name, BURST_SECONDS) / launches * 1e6)
    return timings


def _single_pass(machine: Machine, replay: Callable[[], None]) -> float:
    # The first replay of a graph uploads it; the second is a fair estimate.
    machine.time(replay, 1)
    return max(machine.time(replay, 1), 1e-6)


def _load(machine: Machine, replays: Mapping[str, Callable[[], None]], single: Mapping[str, float]) -> None:
    share = LOAD_SECONDS / len(replays)
    for name, replay in replays.items():
        machine.time(replay, max(1, math.ceil(share / single[name])))
