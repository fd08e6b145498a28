"""Many orders of one launch: the first that goes wrong, or what was tried."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from tilekit.emulator.core.errors import EmulatorError, LaunchError, TextError, UnsupportedInstruction
from tilekit.emulator.core.memory.memory import GlobalMemory
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.schedules import Policy, Progress

__all__ = ["Exploration", "Failure", "explore"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that went wrong.

    Attributes
    ----------
    seed, schedule
        With these, `Kernel.launch` goes wrong in the same way.
    error
        The fault; None when the launch ended.
    report
        Of a launch that ended with findings, or with results that were not accepted; else None.
    """

    seed: int
    schedule: Policy
    error: EmulatorError | None
    report: LaunchReport | None

    def __str__(self) -> str:
        if self.error is not None:
            return str(self.error)
        assert self.report is not None
        return str(self.report) if not self.report.clean else f"the results were not accepted\n{self.report}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What many launches of one kernel showed.

    Attributes
    ----------
    kernel
        Name of the entry.
    tries
        Launches made.
    schedules
        The schedules among them.
    failure
        The last of them, if it went wrong.
    different
        Names of the buffers whose contents depended on the order of events, in launches that found nothing.
    seconds
        Wall time.
    """

    kernel: str
    tries: int
    schedules: tuple[Policy, ...]
    failure: Failure | None
    different: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether no launch went wrong."""
        return self.failure is None

    def __str__(self) -> str:
        count = f"{self.tries} launch{'es' if self.tries != 1 else ''}"
        lines = [f"{self.kernel}: {count} ({', '.join(self.schedules)}) in {self.seconds:.2f} s"]
        if self.failure is None:
            lines.append("  nothing found")
        else:
            lines.append(f"  number {self.tries} went wrong: seed={self.failure.seed}, "
                         f"schedule={self.failure.schedule!r}")  # fmt: skip
            lines += [f"  {line}" for line in str(self.failure).splitlines()]
        if self.different:
            lines.append(f"  different results in different orders: {', '.join(self.different)}")
        return "\n".join(lines)


def explore(
    kernel: str,
    launch: Callable[[int, Policy], LaunchReport],
    memory: GlobalMemory,
    args: Sequence[Any],
    tries: int,
    schedules: Sequence[Policy],
    seed: int,
    accept: Callable[[LaunchReport], bool] | None,
    progress: Progress | None,
) -> Exploration:
    """Launch in many orders; see the `explore` of a kernel.

    Parameters
    ----------
    kernel
        Its name.
    launch
        Makes one launch with a seed and a schedule.
    memory, args
        What is put back between launches: the device's memory, and the arrays among the arguments.
    """
    if tries < 1:
        raise LaunchError.argument("tries", tries, "1 or more", 1)
    if not schedules or not set(schedules) <= set(get_args(Policy)):
        raise LaunchError.argument("schedules", schedules, f"some of {', '.join(get_args(Policy))}", get_args(Policy))
    before = _snapshot(memory)
    arrays = [(value, value.copy()) for value in args if isinstance(value, np.ndarray)]
    seen: dict[tuple[int, str], set[bytes]] = {}
    failure = None
    start = time.perf_counter()
    done = 0
    try:
        while failure is None and done < tries:
            _restore(memory, before, arrays)
            order = schedules[done % len(schedules)]
            failure = _attempt(launch, seed + done, order, accept)
            done += 1
            if failure is None:
                _note(memory, arrays, seen)
            if progress is not None:
                progress(done, tries, time.perf_counter() - start)
    finally:
        _restore(memory, before, arrays)
    different = tuple(name for (_, name), digests in seen.items() if len(digests) > 1)
    used = tuple(dict.fromkeys(schedules[index % len(schedules)] for index in range(done)))
    return Exploration(kernel, done, used, failure, different, time.perf_counter() - start)


def _attempt(
    launch: Callable[[int, Policy], LaunchReport],
    seed: int,
    schedule: Policy,
    accept: Callable[[LaunchReport], bool] | None,
) -> Failure | None:
    """One launch: how it went wrong, or None."""
    try:
        report = launch(seed, schedule)
    except (LaunchError, TextError, UnsupportedInstruction):
        raise  # what was asked is wrong, whatever the order
    except EmulatorError as error:
        return Failure(seed, schedule, error, None)
    if not report.clean or (accept is not None and not accept(report)):
        return Failure(seed, schedule, None, report)
    return None


Snapshot = dict[int, np.ndarray[Any, Any]]
Arrays = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def _snapshot(memory: GlobalMemory) -> Snapshot:
    return {allocation.start: allocation.data.copy() for allocation in memory.allocations()}


def _restore(memory: GlobalMemory, before: Snapshot, arrays: Arrays) -> None:
    for allocation in memory.allocations():
        if allocation.start in before:
            allocation.data[:] = before[allocation.start]
    for array, contents in arrays:
        if array.flags.writeable:  # no launch has changed another
            array[...] = contents


def _note(memory: GlobalMemory, arrays: Arrays, seen: dict[tuple[int, str], set[bytes]]) -> None:
    """Remember what the launch left in memory, by place and name: buffers may have one name, or none."""
    contents = [((a.start, a.name), a.data.tobytes()) for a in memory.allocations()]
    names = [f"array {index} of the arguments" for index in range(len(arrays))]
    contents += [((0, name), array.tobytes()) for name, (array, _) in zip(names, arrays, strict=True)]
    for place, data in contents:
        seen.setdefault(place, set()).add(hashlib.blake2b(data, digest_size=16).digest())
