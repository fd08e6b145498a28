"""Many configs of convolutions against each other and cuDNN, the picker's among them.

    python -m benchmarks.conv2d_sweep --layer "32x56x56x96 384x1x1" --configs spread --json sweep.json
    python -m benchmarks.conv2d_sweep --layer "32x28x28x128 512x1x1" --residual --configs residuals

    python -m benchmarks.conv2d_sweep --judge benchmarks/results/h200-2026-11-23-conv2d-sweeps.json.gz

As `benchmarks.sweep`, whose rounds these are: operands rotated through three times the L2 cache, a CUDA graph a
contestant, an order of its own in each round, results checked on poisoned outputs before.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import tilekit
from benchmarks.sweep import (
    CLOCK,
    COMPILERS,
    KERNELS,
    SLICE_SECONDS,
    Replay,
    Row,
    config_of,
    fields_of,
    shuffled_rounds,
    table,
    verdicts,
)
from tilekit.bench.conv2d import ConvWorkload, images
from tilekit.bench.entrants import Entrant, load_peers
from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.matmul import ResultCheck
from tilekit.errors import TilekitError
from tilekit.kernels.matmul.picker import estimate, ranked
from tilekit.kernels.matmul.sm_90a.candidates import candidates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig, Schedule
from tilekit.targets import SM_90A

PEER = "cudnn"

LEADERS = 12
"""Of the configs that the model likes best, those that are timed first."""


def clocks_of(workload: ConvWorkload, config: MatmulConfig) -> float:
    """The model's time of a launch on the whole chip."""
    problem = workload.arguments().problem
    shape = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches, "read": problem.read}
    return estimate(config, workload.spec, SM_90A, **shape, sms=SM_90A.multiprocessors).total


def rank(workload: ConvWorkload) -> list[Any]:
    """The picker's estimates, best first."""
    problem = workload.arguments().problem
    shape = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batches, "read": problem.read}
    return ranked(workload.spec, SM_90A, **shape)


COLUMNS = (32, 64, 96, 128, 192, 256)
PLAIN = tuple(
    MatmulConfig(tile=(rows, columns), cluster=(1, 1), consumers=2, schedule=schedule)
    for rows, schedule in cast(
        "tuple[tuple[int, Schedule], ...]",
        ((128, "cooperative"), (128, "pingpong"), (64, "pingpong"), (256, "cooperative")),
    )
    for columns in COLUMNS
)
"""Tiles that are timed whatever the model makes of them, where they are legal."""


def spread(workload: ConvWorkload) -> Iterator[MatmulConfig]:
    """The model's best few, plain tiles, and the best of every kind of tile and cluster."""
    entries = [entry.config for entry in rank(workload)]
    yield from entries[:LEADERS]
    yield from PLAIN
    kinds = set()
    for config in entries:
        kind = (config.swap_ab, config.tile[0], config.pingpong, config.cluster, config.split_k, config.cluster_k)
        if kind not in kinds:
            kinds.add(kind)
            yield config


def residuals(workload: ConvWorkload) -> Iterator[MatmulConfig]:
    """The best few tiles, and plain ones, with subtiles of several numbers on their way."""
    entries = [entry.config for entry in rank(workload)]
    alone = [c.changed(output_buffers=2) for c in entries if c.cluster_size == 1 and c.split_k == 1]
    leaders = list(dict.fromkeys(alone))[:LEADERS]
    for config in dict.fromkeys((*leaders, *(config for config in PLAIN if config.tile[1] >= 64))):
        for buffers in (1, 2, 3, 4, 6):
            yield config.changed(output_buffers=buffers)


CONFIGS: dict[str, Callable[[ConvWorkload], Iterable[MatmulConfig]]] = {"spread": spread, "residuals": residuals}


def sweep(
    machine: Machine,
    workload: ConvWorkload,
    configs: Iterable[MatmulConfig],
    peers: Sequence[Entrant],
    *,
    rounds: int,
    most: int,
    turn: float,
) -> list[Row]:
    """Measure the legal ones of configs, the picker's, and peers, quickest first."""
    spec, entries = workload.spec, rank(workload)
    picked = entries[0].config
    clocks = [entry.total for entry in entries]
    found = [config for config in dict.fromkeys((picked, *configs)) if config.legal(SM_90A, spec)][:most]
    seeds = count()
    sets = max(2, -(-3 * machine.l2_bytes // workload.bytes))
    operands = [workload.operand_set(machine, seeds) for _ in range(sets)]
    check = ResultCheck(workload, machine, operands)
    compiled = [partial(_compiled, operands[0], config) for config in found]
    with ThreadPoolExecutor(COMPILERS) as pool:
        failures = list(pool.map(lambda compile_one: compile_one(), compiled))
    passes: dict[Any, Replay] = {}
    for config, failure in zip(found, failures, strict=True):
        if failure is not None:
            typer.echo(f"  {config}: {failure}", err=True)
            continue
        work = _one_pass([partial(_call, tilekit.conv2d, each, config) for each in operands])
        error = check(work)
        if not error <= workload.error_limit:
            typer.echo(f"  {config}: relative error {error:.2e}", err=True)
            continue
        passes[config] = machine.capture(work)
    for peer in peers:
        if peer.prepare is not None:
            peer.prepare(machine, operands)
        theirs = _one_pass([partial(peer.launch, *each) for each in operands])
        theirs()
        passes[peer.name] = machine.capture(theirs)
    rows = []
    for name, each in shuffled_rounds(machine, passes, rounds=rounds, seconds=math.inf, turn=turn).items():
        seconds = each / sets
        row = Row(str(name), None, seconds * 1e6, workload.bytes / seconds / 1e9)
        if isinstance(name, MatmulConfig):
            modelled = clocks_of(workload, name)
            place = 1 + sum(clock < modelled for clock in clocks)
            row = replace(row, fields=fields_of(name), picked=name == picked)
            row = replace(row, model_microseconds=modelled / CLOCK * 1e6, model_place=place)
        rows.append(row)
    return sorted(rows, key=lambda row: row.microseconds)


def _call(function: Callable[..., Any], operands: Sequence[Any], config: MatmulConfig) -> Any:
    """What is computed, or its kernel, with a config."""
    x, w, filtered, out = operands
    more = {"bias": filtered.fused.bias, "activation": filtered.fused.activation}
    if filtered.residual is not None:
        more["residual"] = images(filtered.residual)
    return function(images(x), images(w), out=images(out), config=config, **more, **filtered.how)


def _compiled(operands: Sequence[Any], config: MatmulConfig) -> TilekitError | None:
    try:
        _call(tilekit.conv2d_kernel_for, operands, config).assembled  # noqa: B018  by ptxas, in the pool's threads
    except TilekitError as error:
        return error
    return None


def _one_pass(plans: Sequence[Callable[[], Any]]) -> Replay:
    def work() -> None:
        for plan in plans:
            plan()

    return work


def judged(case: dict[str, Any]) -> tuple[float, str, MatmulConfig]:
    """How many times as long as the quickest that was timed the model's first of a case takes, and which those are."""
    label, _, kind = case["case"].partition(" bf16")
    layer = replace(ConvWorkload.parse(label), bias="+bias" in kind, residual="+residual" in kind)
    layer = replace(layer, activation="relu" if layer.bias else None)
    known = set(candidates(layer.spec, SM_90A))
    rows = [(config_of(row["fields"]), row["microseconds"]) for row in case["rows"] if row["fields"] is not None]
    clocks = {config: clocks_of(layer, config) for config, _ in rows if config in known}
    chosen = min(clocks, key=lambda config: clocks[config])
    return dict(rows)[chosen] / min(us for _, us in rows), case["case"], chosen


def main(
    layer: Annotated[list[str] | None, typer.Option(help="NxHxWxC KxRxS, then s, p, d, g. Repeatable.")] = None,
    judge: Annotated[Path | None, typer.Option(help="A sweep's file: what the model's choices lose.")] = None,
    bias: Annotated[bool, typer.Option(help="With a bias and a relu.")] = False,
    residual: Annotated[bool, typer.Option(help="With a bias, a residual and a relu.")] = False,
    configs: Annotated[str, typer.Option(help=f"Which: {' or '.join(CONFIGS)}.")] = "spread",
    rounds: Annotated[int, typer.Option(help="Rounds over all configs.")] = 3,
    most: Annotated[int, typer.Option(help="Configs a layer: those that come first.")] = 60,
    turn: Annotated[float, typer.Option(help="Seconds of a config in a round, after half as many.")] = SLICE_SECONDS,
    until: Annotated[float, typer.Option(help="Seconds after which no further layer is begun.")] = math.inf,
    show: Annotated[int, typer.Option(help="Rows to print a layer.")] = 8,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Time many configs of convolutions against each other."""
    if judge is not None:
        typer.echo(verdicts(judge, judged, "layers"))
        return
    end = time.perf_counter() + until
    machine = require_machine()
    peers, results = load_peers([PEER]).entrants, []
    for text in layer or ():
        if time.perf_counter() > end:
            typer.echo("time is up")
            break
        workload = ConvWorkload.parse(text)
        if bias or residual:
            workload = replace(workload, bias=True, activation="relu", residual=residual)
        own = [peer for peer in peers if peer.family == workload.family]
        rows = sweep(machine, workload, CONFIGS[configs](workload), own, rounds=rounds, most=most, turn=turn)
        name = f"{workload.label} {workload.kind}"
        typer.echo("\n" + table(name, rows, show))
        results.append({"case": name, "turn": turn, "kernels": KERNELS, "rows": [asdict(row) for row in rows]})
        if json_file is not None:
            json_file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
