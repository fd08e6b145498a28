"""The measurement: contestants in turn, round after round, compared within the round.

A GPU under load settles at the clock its power limit allows, drifts with temperature, and remembers its neighbour's
power for tens of milliseconds. So no contestant is timed alone. After a load of 0.3 s the contestants take turns,
each with an unmeasured lead-in, in an order that changes: by who is first, and by who comes behind whom. The ratio of
two contestants is the median over rounds of the ratio within the round, which cancels the drift. That is the
*sustained* figure. The *burst* figure is a rested card: idle, a little light load to bring the clock up, one pass
unmeasured, some milliseconds measured. How long each step takes is the pace.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tilekit.bench.clocks import ClockSampler
from tilekit.bench.machine import Machine

__all__ = ["QUICK", "THOROUGH", "Pace", "Timing", "hold"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each step of a measurement takes.

    Attributes
    ----------
    name : str
    load_seconds : float
        Of all contestants together, before the first round.
    lead_in_seconds, slice_seconds : float
        Of each contestant in each round: unmeasured, then measured.
    fewest_rounds, most_rounds : int
    idle_seconds, light_load_seconds, burst_seconds : float
        Before each burst, and the burst itself.
    bursts : int
        Of each contestant.
    burst_intensity : float
        FLOP per byte below which a case has no bursts: what waits for memory is as quick on a rested card.
    """

    name: str
    load_seconds: float
    lead_in_seconds: float
    slice_seconds: float
    fewest_rounds: int
    most_rounds: int
    idle_seconds: float
    light_load_seconds: float
    burst_seconds: float
    bursts: int
    burst_intensity: float


THOROUGH: Final = Pace("thorough", 0.3, 0.025, 0.1, 3, 12, 0.3, 0.02, 0.006, 3, 0.0)
"""For figures to publish: 4 to 6 seconds a case."""

QUICK: Final = Pace("quick", 0.3, 0.01, 0.02, 3, 3, 0.1, 0.01, 0.006, 1, 100.0)
"""For lists of many cases: about a second each, at most. Contestants inherit more of their neighbours' power state."""


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


def hold(
    machine: Machine,
    passes: Mapping[str, Callable[[], None]],
    launches: int,
    seconds: float,
    sampler: ClockSampler,
    pace: Pace = THOROUGH,
    with_bursts: bool = True,
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
        Time for everything together. The pace's fewest rounds are held whatever they take.
    sampler : ClockSampler
        Watches clock and power during the slices.
    pace : Pace, optional
    with_bursts : bool, optional
        Whether a rested card is measured too.
    """
    deadline = time.perf_counter() + seconds
    replays = {name: machine.capture(work) for name, work in passes.items()}
    single = {name: _single_pass(machine, replay) for name, replay in replays.items()}
    timings = {name: Timing() for name in passes}
    bursts = pace.bursts if with_bursts else 0

    def measure(name: str, span: float) -> float:
        count = max(1, math.ceil(span / single[name]))
        return machine.time(replays[name], count) / count

    one_burst = pace.idle_seconds + pace.light_load_seconds + pace.burst_seconds + 2 * max(single.values())
    burst_span = bursts * len(passes) * one_burst
    for name in passes:
        measure(name, pace.load_seconds / len(passes))
    names = list(passes)
    windows: dict[str, list[tuple[float, float]]] = {name: [] for name in passes}
    for index in range(pace.most_rounds):
        began = time.perf_counter()
        for name in _in_turn(names, index):
            measure(name, pace.lead_in_seconds)
            start = time.perf_counter()
            timings[name].rounds.append(measure(name, pace.slice_seconds) / launches * 1e6)
            windows[name].append((start, time.perf_counter()))
        now = time.perf_counter()
        if index + 1 >= pace.fewest_rounds and now + (now - began) + burst_span > deadline:
            break
    for name, timing in timings.items():
        timing.sm_mhz, timing.watts = sampler.mean(windows[name])

    for index in range(bursts):
        for name in _in_turn(names, index):
            time.sleep(pace.idle_seconds)
            machine.light_load(pace.light_load_seconds)
            machine.time(replays[name], 1)
            timings[name].bursts.append(measure(name, pace.burst_seconds) / launches * 1e6)
    return timings


def _in_turn(names: list[str], index: int) -> list[str]:
    """The order of a round: another is first, and who comes behind whom changes, since clocks are inherited."""
    turn = index % len(names)
    first, *others = names[turn:] + names[:turn]
    return [first, *(reversed(others) if index % 2 else others)]


def _single_pass(machine: Machine, replay: Callable[[], None]) -> float:
    # The first replay of a graph uploads it; the second is a fair estimate.
    machine.time(replay, 1)
    return max(machine.time(replay, 1), 1e-6)
