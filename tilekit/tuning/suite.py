"""Tuning many cases: how far the model's choices are from the quickest, and what not yet timed configs gain."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilekit.bench.suites import SuiteCase
from tilekit.targets import ChipName
from tilekit.tuning.tuner import TuneResult, tune_workload
from tilekit.tuning.workloads import Tunable


@dataclass(frozen=True)
class TunedCase:
    """A case and what tuning found for it."""

    suite: str
    workload: Tunable
    result: TuneResult

    def __str__(self) -> str:
        result, best = self.result, self.result.best
        if best.seconds is None:
            return f"| {self.suite} {self.workload.label} | | | | no candidate ran: {best.failure} |"
        fresh = f"{result.tuning_gain:.3f}" if result.tuning_gain is not None else ""
        return (
            f"| {self.suite} {self.workload.label} | {best.seconds * 1e6:.2f} | {result.gain:.3f} | {fresh} | "
            f"{best.config} |"
        )


_ALL = "all"

HEAD = """\
| case | quickest, us | model's choice / quickest | candidates / what tuning adds | quickest config |
|---|---|---|---|---|"""


def tunable(cases: Iterable[SuiteCase]) -> list[tuple[str, Tunable]]:
    """Suites and workloads of which nothing is fused, which makes no difference to tuning."""
    return [
        (case.suite, work)
        for case in cases
        if isinstance(work := case.workload, Tunable) and not work.family.startswith("fused_")
    ]


def tune_suite(
    cases: Sequence[tuple[str, Tunable]],
    *,
    candidates: int,
    target: ChipName | None = None,
    seconds: float = math.inf,
    progress: Callable[[TunedCase], None] | None = None,
) -> list[TunedCase]:
    """Tune cases one after the other; see `tilekit.tune`.

    Parameters
    ----------
    cases
        Suites and workloads, in the order in which they are tuned.
    candidates, target
        As for `tilekit.tune`.
    seconds
        After this time no further case is begun.
    progress
        Called with each case when it is done.
    """
    until = time.perf_counter() + seconds
    done: list[TunedCase] = []
    for suite, workload in cases:
        if time.perf_counter() > until:
            break
        done.append(TunedCase(suite, workload, tune_workload(workload, candidates=candidates, target=target)))
        if progress is not None:
            progress(done[-1])
    return done


def summary(done: Sequence[TunedCase], left_out: int = 0) -> str:
    """Say of each suite, and of all, how far the model's choices are from the quickest, and where tuning's own win."""
    lines = []
    suites = {suite: [case for case in done if case.suite == suite] for suite in dict.fromkeys(c.suite for c in done)}
    for suite, cases in (suites | ({_ALL: list(done)} if len(suites) > 1 else {})).items():
        found = [case for case in cases if case.result.best.seconds is not None]
        if not found:
            lines.append(f"{suite}: no candidate ran")
            continue
        worst = max(found, key=lambda case: case.result.gain)
        lines.append(
            f"{suite}: {len(found)} case(s), the model's choice takes "
            f"{_geomean(case.result.gain for case in found):.3f} of the quickest's time, "
            f"{worst.result.gain:.3f} at worst ({worst.workload.label})"
        )
        gains = {case: gain for case in found if (gain := case.result.tuning_gain) is not None}
        wins = sorted((case for case in gains if gains[case] > 1), key=lambda case: -gains[case])
        if gains:
            mean = _geomean(gains.values())
            lines.append(f"  what only tuning tries wins {len(wins)} of {len(gains)}; geometric mean {mean:.3f}")
        if suite != _ALL:
            lines += [f"    {gains[case]:.3f}  {case.workload.label}  {_quickest_spare(case)}" for case in wins]
    if left_out:
        lines.append(f"{left_out} case(s) left out, time was up")
    return "\n".join(lines)


def _quickest_spare(case: TunedCase) -> Any:
    return next(m.config for m in case.result.measurements if m.config in case.result.tuning_candidates)


def _geomean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))
