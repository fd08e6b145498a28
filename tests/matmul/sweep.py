"""Assemble and run every kernel of `launches_sm_100a`: `python -m tests.matmul.sweep`.

Every kernel runs on each of its problems, with every seed and kind of inputs.

Prints what was run and what was found, for docs/blackwell.md; exits with 1 if anything was. With words, as in
`python -m tests.matmul.sweep pairs residual`, only the kernels whose names have all of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.matmul.launches_sm_100a import CASES
from tests.matmul.matmul_launch import LaunchCase, Run
from tests.matmul.matmul_launch_data import kinds_of
from tilekit.emulator import EmulatorError
from tilekit.runtime.toolchain import find_ptxas

SEEDS = range(20)


def runs_of(case: LaunchCase) -> Iterator[Run]:
    """All launches of a case: every seed with integers, and with one operand after the other position-coded."""
    coded = kinds_of(case.spec)[1:]
    for seed in SEEDS:
        schedule = "adversarial" if seed < 14 else "random" if seed < 19 else "fair"
        for problem in (case.problem, case.short):
            for kind in ("integers", coded[seed % len(coded)]):
                yield Run(case, problem, kind, schedule, seed, 1 + seed % 2)


@dataclass
class Tally:
    """What the launches of one case came to.

    Attributes
    ----------
    claims
        Cluster tiles that a running cluster took over, and the fewest in a launch of the larger problem.
    slowest
        Seconds of processor time, and the launch.
    bad
        What went wrong.
    registers, spilled
        Of a thread, and bytes, as ptxas says.
    """

    launches: int = 0
    tiles: int = 0
    claims: int = 0
    fewest: int = 1 << 30
    slowest: tuple[float, str] = (0.0, "")
    bad: list[str] = field(default_factory=list)
    registers: int = 0
    spilled: int = 0


def tally_of(index: int) -> Tally:
    """Run all launches of one case."""
    case = CASES[index]
    tally = Tally()
    for run in runs_of(case):
        begun = time.process_time()
        try:
            inputs = case.inputs(run.problem, run.kind, run.seed)
            outcome = case.run(inputs, schedule=run.schedule, seed=run.seed, clusters=run.clusters)
        except EmulatorError as error:
            tally.bad.append(f"{run}: {type(error).__name__}: {error}")
            continue
        if outcome.wrong or not outcome.report.clean or outcome.report.remarks:
            tally.bad.append(f"{run}: {outcome.wrong}\n{outcome.report}")
        tally.launches += 1
        tally.tiles += outcome.tiles
        if case.config.claims_tiles:
            claims = outcome.tiles - outcome.started
            tally.claims += claims
            if run.problem == case.problem:
                tally.fewest = min(tally.fewest, claims)
        tally.slowest = max(tally.slowest, (time.process_time() - begun, str(run)))
    resources = case.kernel.resources
    tally.registers, tally.spilled = resources.registers, resources.spill_store_bytes
    return tally


def main(words: tuple[str, ...]) -> None:
    """Run the sweep."""
    chosen = [index for index, case in enumerate(CASES) if all(word in str(case) for word in words)]
    begun = time.monotonic()
    tallies: list[Tally] = []
    with ProcessPoolExecutor() as pool:
        for done, (index, tally) in enumerate(zip(chosen, pool.map(tally_of, chosen), strict=True)):
            tallies.append(tally)
            print(f"{done + 1}/{len(chosen)} {CASES[index]}: {len(tally.bad)} bad", *tally.bad[:2], sep="\n  ")
    seconds, slowest = max(tally.slowest for tally in tallies)
    bad = sum(len(tally.bad) for tally in tallies)
    claiming = [t for index, t in zip(chosen, tallies, strict=True) if CASES[index].config.claims_tiles]
    print(
        f"{sum(t.launches for t in tallies)} launches of {len(chosen)} kernels under {len(SEEDS)} seeds: {bad} bad.\n"
        f"{sum(t.tiles for t in tallies)} cluster tiles, {sum(t.claims for t in tallies)} of them taken over by a "
        f"running cluster, at least {min((t.fewest for t in claiming), default=0)} in a launch of a whole problem.\n"
        f"ptxas {'.'.join(map(str, find_ptxas().version))} assembles all of them, with up to "
        f"{max(t.registers for t in tallies)} registers a thread and {sum(t.spilled for t in tallies)} bytes spilled.\n"
        f"The slowest launch took {seconds:.1f} s: {slowest}.\n"
        f"{time.monotonic() - begun:.0f} s on {os.cpu_count()} cores."
    )
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
