"""Configs of products of groups, and of products with scales of blocks, against each other and a peer.

    python -m benchmarks.groups_sweep --suite blockwise --peer deepgemm_blockwise     # where it is built
    python -m benchmarks.groups_sweep --suite random --seed 5 --sample 150       # bf16, a loop of cuBLAS's beside
    python -m benchmarks.groups_sweep --groups 1693,536,1453,803x3072x8192 --turn 0.1 --json sweep.json
    python -m benchmarks.groups_sweep --judge benchmarks/results/h200-2026-11-29-groups.json.gz  # what choices lose

As `benchmarks.sweep`, whose rounds these are. Timed are the picker's first few and the best of each kind near them.
What a choice loses has a part that no model can tell: sizes are known on the device alone.
"""

from __future__ import annotations

import json
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import tilekit
from benchmarks.sweep import CLOCK, COMPILERS, Row, config_of, fields_of, shuffled_rounds, table, verdicts
from tilekit.bench.blockwise import BlockwiseWorkload, GroupedBlockwiseWorkload
from tilekit.bench.entrants import Collect, Entrant, library_entrants, load_peers
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.matmul import ResultCheck
from tilekit.bench.row_groups import RowGroups, parse_groups
from tilekit.bench.suites import select
from tilekit.errors import TilekitError
from tilekit.kernels.matmul.estimates import Estimate
from tilekit.kernels.matmul.picker import candidates, estimates, ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.targets import SM_90A

Workload = GroupedWorkload | GroupedBlockwiseWorkload | BlockwiseWorkload

NEAR = 1.3
"""How many times as long as the model's best a config may take, by the model, to be timed."""


def contenders(workload: Workload, most: int) -> list[Estimate]:
    """The model's first half of `most`, then the best of each tile, schedule and cluster near them."""
    groups = len(workload.sizes) if isinstance(workload, RowGroups) else 0
    entries = ranked(workload.spec_on("sm_90a"), SM_90A, m=workload.m, n=workload.n, k=workload.k, groups=groups)
    near = [entry for entry in entries if entry.total <= NEAR * entries[0].total]
    first = near[: most // 2]
    kinds = {
        (c.tile, c.swap_ab, c.pingpong, c.cluster): e for e in reversed(near) for c in [cast(MatmulConfig, e.config)]
    }
    others = sorted((entry for entry in kinds.values() if entry not in first), key=near.index)
    return first + others[: most - len(first)]


def sweep(
    machine: Machine, workload: Workload, peers: list[Entrant], *, most: int, rounds: int, seconds: float, turn: float
) -> list[Row]:
    """Measure the contenders and the peers, quickest first."""
    entries, spec, seeds = contenders(workload, most), workload.spec_on("sm_90a"), count()
    sets = [workload.operand_set(machine, seeds) for _ in range(max(2, -(-3 * machine.l2_bytes // workload.bytes)))]
    check = ResultCheck(workload, machine, sets)

    def compiled(entry: Estimate) -> Any:
        try:
            kernel = tilekit.compile(spec, config=entry.config)
            kernel.assembled  # noqa: B018  by ptxas, in the pool's threads
        except TilekitError as error:
            return error
        return kernel

    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = list(pool.map(compiled, entries))
    passes: dict[Any, Any] = {}

    def enter(name: Any, launches: list[Any], collect: Collect | None = None) -> None:
        def work() -> None:
            for launch in launches:
                launch()

        error = check(work, collect)
        if error <= workload.error_limit:
            passes[name] = machine.capture(work)
        else:
            typer.echo(f"  {name}: relative error {error:.2e}", err=True)

    for entry, kernel in zip(entries, kernels, strict=True):
        if isinstance(kernel, TilekitError):
            typer.echo(f"  {entry.config}: {kernel}", err=True)
            continue
        enter(entry.config, [workload.bind(kernel, operands) for operands in sets])
    for peer in peers:
        if peer.family == workload.family:
            if peer.prepare is not None:
                peer.prepare(machine, sets)
            enter(peer.name, [partial(peer.launch, *operands) for operands in sets], peer.collect)
    rows = []
    places = {entry.config: (place, entry.total) for place, entry in enumerate(entries, 1)}
    for name, taken in shuffled_rounds(machine, passes, rounds=rounds, seconds=seconds, turn=turn).items():
        each = taken / len(sets)
        figures = str(name), None if isinstance(name, str) else fields_of(name), each * 1e6, workload.bytes / each / 1e9
        if isinstance(name, str):
            rows.append(Row(*figures))
        else:
            place, clocks = places[name]
            rows.append(Row(*figures, clocks / CLOCK * 1e6, place, picked=place == 1))
    return sorted(rows, key=lambda row: row.microseconds)


KEPT = re.compile(r"x(\d+)x(\d+) (?:bf16→bf16 k/k|(e4m3→bf16 blocks)(?:.* up to (\d+))?)")
"""A kept set of groups that can be judged: its N and K, its kind, and the rows that there is room for in each."""


def judged(case: dict[str, Any]) -> tuple[float, str, MatmulConfig] | None:
    """How many times as long as the quickest that was timed takes the first of the candidates, and which that is.

    None of a case that is not one of bf16 or of 8-bit elements with scales of blocks, in groups.
    """
    said = KEPT.search(case["case"])
    if case["sizes"] is None or said is None:
        return None
    n, k, blocks, rows = said.groups()
    sizes, extents = tuple(case["sizes"]), (int(n), int(k))
    room = {} if rows is None else {"rows": int(rows)}
    workload: GroupedWorkload | GroupedBlockwiseWorkload
    workload = GroupedBlockwiseWorkload(sizes, *extents, **room) if blocks else GroupedWorkload(sizes, *extents)
    spec = workload.spec_on("sm_90a")
    times = {config_of(row["fields"]): row["microseconds"] for row in case["rows"] if row["fields"] is not None}
    times = {config: us for config, us in times.items() if config.legal(SM_90A, spec)}
    shape = {"m": workload.m, "n": workload.n, "k": workload.k, "groups": len(workload.sizes)}
    offered = list(times.keys() & set(candidates(spec, SM_90A))) or list(times)
    each = estimates(offered, spec, SM_90A, **shape, sms=SM_90A.multiprocessors)
    chosen = min(zip(each, offered, strict=True), key=lambda pair: pair[0].total)[1]
    return times[chosen] / min(times.values()), case["case"], chosen


def main(
    groups: Annotated[
        list[str] | None, typer.Option(help="Of bf16, such as 700,90,1300x7168x2048. Repeatable.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="The cases of a suite that are groups or have scales.")] = None,
    judge: Annotated[Path | None, typer.Option(help="A sweep's file: what the model's choices lose.")] = None,
    seed: Annotated[int, typer.Option(help="Of the suite `random`.")] = 0,
    sample: Annotated[int | None, typer.Option(help="Of the suite.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help="As --peers of `tilekit bench`; else the library.")] = None,
    most: Annotated[int, typer.Option(help="Configs a case.")] = 12,
    rounds: Annotated[int, typer.Option()] = 5,
    turn: Annotated[float, typer.Option(help="Seconds of a contestant in a round.")] = 0.025,
    seconds: Annotated[float, typer.Option(help="A case: no round begins after that.")] = 20,
    until: Annotated[float, typer.Option(help="Seconds after which no further case is begun.")] = math.inf,
    show: Annotated[int, typer.Option(help="Rows to print a case.")] = 4,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Time configs of groups and of products with scales of blocks against each other."""
    if judge is not None:
        typer.echo(verdicts(judge, judged, "sets of groups"))
        return
    end = time.perf_counter() + until
    workloads: list[Workload] = [GroupedWorkload(*parse_groups(text)) for text in groups or ()]
    if suite is not None:
        chosen = (case.workload for case in select(suite.split(","), sample, seed=seed))
        workloads += [each for each in chosen if isinstance(each, Workload)]
    machine = require_machine()
    peers = load_peers(peer).entrants if peer else library_entrants(machine)
    results = []
    for workload in workloads:
        if time.perf_counter() > end:
            typer.echo("\ntime is up")
            break
        rows = sweep(machine, workload, peers, most=most, rounds=rounds, seconds=seconds, turn=turn)
        name = f"{workload.label} {workload.kind}"
        typer.echo("\n" + table(name, rows, show))
        sizes = list(workload.sizes) if isinstance(workload, RowGroups) else None
        results.append({"case": name, "sizes": sizes, "turn": turn, "rows": [asdict(row) for row in rows]})
        if json_file is not None:
            json_file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
