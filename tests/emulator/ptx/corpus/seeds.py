"""Run every kernel of the corpus under many seeds and compare what is said.

    python tests/emulator/ptx/corpus/seeds.py

A seed decides the order of events and nothing else here: the inputs stay the same. Whatever the emulator says of a
kernel's program order it must say under each of them, so a verdict leaves out what an order of events may change:
numbers, and how often.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from corpus_case import CASES, Case, compare, emulate

from tilekit.emulator import EmulatorError

SEEDS = 20
Run = tuple[str, int]
"""A schedule and a seed."""


def orders(seeds: int) -> list[Run]:
    """So many seeds where work lands late, and, of as many, every fifth where it lands at any time."""
    return [("adversarial", seed) for seed in range(seeds)] + [("random", seed) for seed in range(0, seeds, 5)]


def verdict(case: Case, schedule: str, seed: int) -> tuple[str, ...]:
    """What is said of a kernel, without numbers: its fault, or its findings and whether the results are right."""
    try:
        report, launch = emulate(case, seed=seed, drawn=0, schedule=schedule)
    except EmulatorError as error:
        found = error.details.get("findings", ())
        return (f"{error.title}: {_without_values(error.message)}", *_said(found))
    try:
        compare(launch, report.printed)
        right = "right"
    except AssertionError:
        right = "wrong"
    return (right, *_said(report.findings), *_said(report.remarks))


def _said(findings: Iterable[object]) -> list[str]:
    return sorted({_without_values(str(finding).splitlines()[0]) for finding in findings})


def _without_values(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)


def differing(case: Case, runs: Iterable[Run]) -> dict[tuple[str, ...], list[Run]]:
    """The verdicts on a kernel, and where each came; more than one is a defect of the emulator."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for schedule, seed in runs:
        found.setdefault(verdict(case, schedule, seed), []).append((schedule, seed))
    return found


def main(cases: list[Case], seeds: int, say: Callable[[str], object] = print) -> int:
    """Compare the verdicts on these kernels; returns how many differ."""
    start, different = time.monotonic(), 0
    for case in cases:
        begun = time.monotonic()
        found = differing(case, orders(seeds))
        different += len(found) > 1
        first = " | ".join(next(iter(found)))
        say(f"{case}: {first if len(found) == 1 else 'DIFFERS'} ({time.monotonic() - begun:.1f} s)")
        if len(found) > 1:
            for lines, runs in found.items():
                say(f"    {len(runs)} times, first {runs[0][0]} {runs[0][1]}: {' | '.join(lines)}")
    say(f"{len(cases)} kernels, {len(orders(seeds))} orders each, {time.monotonic() - start:.0f} s: {different} differ")
    return different


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of kernels' names; all kernels without")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    for source in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(source.stem)
    chosen = [case for case in CASES if not given.names or any(name in str(case) for name in given.names)]
    sys.exit(bool(main(chosen, given.seeds, lambda line: print(line, flush=True))))
