"""Many matmul configs against each other, the picker's candidates or not, and how well the model ranks them.

    python -m benchmarks.sweep --configs small_m                          # M of 16, 32 and 64 over eight weights
    python -m benchmarks.sweep --shape 16x8192x8192 --shape 64x7168x2048 --rounds 9 --json sweep.json
    python -m benchmarks.sweep --configs sums                             # shares of K, in a workspace and in clusters
    python -m benchmarks.sweep --configs streamed --shape 2048x2112x7168         # stream-K
    python -m benchmarks.sweep --configs overlaps                         # the picker's choice, as launches meet
    python -m benchmarks.sweep --configs candidates --shape 2048x2048x2048 --seconds 120
    python -m benchmarks.sweep --configs everything --suite prefill-small,fp8 --sample 20 --until 300
    python -m benchmarks.sweep --configs spread --suite random --seed 11 --sample 60    # to fit the model to
    python -m benchmarks.sweep --configs spread --suite random --seed 31 --behind 1     # cases that are behind cuBLAS
    python -m benchmarks.sweep --configs contenders --suite random --seed 5 --rounds 4 --turn 0.025    # for trees
    python -m benchmarks.sweep --again sweep.json --most 8 --turn 0.1     # the quickest of an earlier one, for longer
    python -m benchmarks.sweep --configs rasters --shape 4096x4096x4096 --shape 2048x8192x8192
    python -m benchmarks.sweep --configs rings --case '936x2304x2048 bf16→bf16 mn/mn'    # a stage more, 2x2 clusters

Operands are rotated through three times the L2 cache, so that each launch finds its own in DRAM. A contestant is one
CUDA graph, a pass over all operand sets; every round goes over the contestants in an order of its own, each with a
lead-in, and the median round counts. Results are checked on poisoned outputs before anything is timed. Printed for each
shape: the quickest, with the place that the model gives each of them, and the picker's choice.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Annotated, Any, cast

import typer

import tilekit
from benchmarks.sweep_configs import FAMILIES, choice, shape_of
from tilekit.bench.machine import Machine, require_machine
from tilekit.bench.suites import select
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import as_dtype
from tilekit.errors import TilekitError
from tilekit.kernels.dispatch import offer
from tilekit.kernels.family import Selection
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.picker import estimates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import Precision
from tilekit.kernels.registry import families
from tilekit.targets import SM_90A
from tilekit.tiles.operand import Major

SHAPES = tuple(
    f"{m}x{weights}"
    for m, weights in product(
        (16, 32, 64),
        ("4096x4096", "8192x8192", "57344x8192", "8192x28672", "2112x7168", "24576x1536", "7168x2048", "7168x16384"),
    )
)

LIBRARY = "cuBLAS"
GEMV = "gemv"
KERNELS = 3
"""Generation of Hopper's kernels, which is kept with their times: of the second, MN-major tiles are trimmed, and of the
third, the descriptors of a lone consumer are in uniform registers. Times without a number are of the first."""

CLOCK = 1.98e9
"""Hertz that the model's clocks are told at: the SMs', while power permits."""

SLICE_SECONDS = 0.008
"""A contestant's turn in a round; its lead-in is half as long."""

COMPILERS = 12

Replay = Callable[[], None]


def model_clocks(configs: Iterable[MatmulConfig], workload: MatmulWorkload) -> dict[MatmulConfig, float]:
    """The model's time of a launch with each on the whole chip."""
    each, shape = list(configs), shape_of(workload)
    found = estimates(each, workload.spec, SM_90A, **shape, sms=SM_90A.multiprocessors) if each else []
    return {config: one.total for config, one in zip(each, found, strict=True)}


@dataclass(frozen=True)
class Row:
    """What came out for one config, or for the array library's product.

    Attributes
    ----------
    config
        In words.
    fields
        Those of the config that are not their defaults; None for the library.
    microseconds, gigabytes_per_second
        The median round's, operands and result counted once.
    model_microseconds, model_place
        The model's time at `CLOCK`, and its place among all legal ones, from 1 on; None for the library.
    picked
        Whether the picker takes it.
    """

    config: str
    fields: dict[str, Any] | None
    microseconds: float
    gigabytes_per_second: float
    model_microseconds: float | None = None
    model_place: int | None = None
    picked: bool = False


def fields_of(config: MatmulConfig) -> dict[str, Any]:
    """The fields that are not their defaults: enough to build it again."""
    return {field.name: value for field in fields(config) if (value := getattr(config, field.name)) != field.default}


def config_of(values: Mapping[str, Any]) -> MatmulConfig:
    """The config with these fields, as JSON has them."""
    return MatmulConfig(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def sweep(
    machine: Machine,
    workload: MatmulWorkload,
    configs: Iterable[MatmulConfig],
    *,
    rounds: int,
    seconds: float,
    most: int,
    turn: float = SLICE_SECONDS,
    behind: float = math.inf,
    changes: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Measure the legal ones of configs, and the picker's, on one shape, quickest first.

    Parameters
    ----------
    machine, workload, configs
        Where, what, and how.
    rounds, seconds
        Rounds, and after how many seconds no other begins.
    most
        Configs at most: those that the model likes best, and the picker's.
    turn
        Seconds that a config is measured in a round.
    behind
        Ratio to the library from which on the picker's choice is the only one that is measured.
    changes
        Fields that every config has, the picker's too.
    """
    spec = workload.spec
    picked = choice(workload).changed(**changes or {})
    if behind < math.inf:
        first = sweep(machine, workload, (), rounds=rounds, seconds=seconds, most=1, turn=turn, changes=changes)
        times = {row.config: row.microseconds for row in first}
        ours = times.get(GEMV, times[str(picked)])
        if times[LIBRARY] >= behind * ours:
            return first
    found = {config for each in configs if (config := each.changed(**changes or {})).legal(SM_90A, spec)} | {picked}
    modelled = model_clocks(found, workload)
    ranked = sorted(found, key=lambda config: modelled[config])
    chosen = [*ranked[:most], *([picked] if picked not in ranked[:most] else [])]

    seeds = count()
    sets = max(2, -(-3 * machine.l2_bytes // workload.bytes))
    operands = [workload.operand_set(machine, seeds) for _ in range(sets)]
    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = list(pool.map(lambda config: _compiled(spec, config), chosen))
    passes: dict[Any, Replay] = {}
    for config, kernel in zip(chosen, kernels, strict=True):
        if isinstance(kernel, TilekitError):
            typer.echo(f"  {config}: {kernel}", err=True)
            continue
        plans = [kernel.bind(*arrays) for arrays in operands]
        wrong = _error(machine, workload, operands, plans)
        if wrong is not None:
            typer.echo(f"  {config}: {wrong}", err=True)
            continue
        passes[config] = machine.capture(_one_pass(plans))
    gemv = _gemv(workload)
    if gemv is not None:
        plans = [gemv.bind(*arrays) for arrays in operands]
        if _error(machine, workload, operands, plans) is None:
            passes[GEMV] = machine.capture(_one_pass(plans))
    passes[LIBRARY] = machine.capture(_one_pass([partial(machine.matmul, *arrays) for arrays in operands]))
    rows = []
    for config, each in shuffled_rounds(machine, passes, rounds=rounds, seconds=seconds, turn=turn).items():
        seconds_each = each / sets
        known = None if config in (LIBRARY, GEMV) else fields_of(config)
        row = Row(str(config), known, seconds_each * 1e6, workload.bytes / seconds_each / 1e9)
        if known is not None:
            place, modelled_us = 1 + ranked.index(config), modelled[config] / CLOCK * 1e6
            row = replace(row, model_microseconds=modelled_us, model_place=place, picked=config == picked)
        rows.append(row)
    return sorted(rows, key=lambda row: row.microseconds)


def shuffled_rounds(
    machine: Machine, passes: Mapping[Any, Replay], *, rounds: int, seconds: float, turn: float = SLICE_SECONDS
) -> dict[Any, float]:
    """Median seconds of a pass of each contestant, over rounds that each have an order of their own."""
    until = time.perf_counter() + seconds
    single = {}
    for name, replay in passes.items():
        machine.time(replay, 1)
        single[name] = max(machine.time(replay, 1), 1e-7)
    taken: dict[Any, list[float]] = {name: [] for name in passes}
    for number in range(rounds):
        order = list(passes)
        Random(number).shuffle(order)
        for name in order:
            machine.time(passes[name], max(1, round(turn / 2 / single[name])))
            repeats = max(1, round(turn / single[name]))
            taken[name].append(machine.time(passes[name], repeats) / repeats)
        if time.perf_counter() > until:
            break
    return {name: statistics.median(times) for name, times in taken.items()}


def _one_pass(plans: Sequence[Callable[[], Any]]) -> Replay:
    def work() -> None:
        for plan in plans:
            plan()

    return work


def _gemv(workload: MatmulWorkload) -> Any:
    """The gemv that few rows get instead of a matmul; None where they get none."""
    a, b, out = workload.views
    arguments = MatmulArguments.parse(
        a, b, out=out, precision=workload.precision, accumulation=workload.accumulation, memory=False
    )
    answer = offer(families()[GEMV], arguments)
    return answer.kernel if isinstance(answer, Selection) else None


def _compiled(spec: tilekit.MatmulSpec, config: MatmulConfig) -> Any:
    try:
        kernel = tilekit.compile(spec, config=config)
        kernel.assembled  # noqa: B018  by ptxas, in the pool's threads
    except TilekitError as error:
        return error
    return kernel


def _error(machine: Machine, workload: MatmulWorkload, operands: list[Any], plans: list[Any]) -> str | None:
    a, b, out = operands[-1]
    machine.poison(out)
    plans[-1]()
    machine.synchronize()
    if machine.any_nan(out):
        return "elements that were never written"
    far = machine.distance(out, machine.product(a, b))
    return None if far <= workload.error_limit else f"relative error {far:.2e}"


def main(
    shape: Annotated[list[str] | None, typer.Option(metavar="MxNxK", help="Repeatable.")] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="As a sweep's file calls it, such as '8x1568x9608 f16→f16 mn/mn'. Repeatable."),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME", help="The matmuls of suites of `tilekit bench`, with commas.")
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Of the suites, the same so many cases each time.")] = None,
    seed: Annotated[int, typer.Option(help="Of the cases of the suite `random`.")] = 0,
    until: Annotated[float, typer.Option(help="Seconds after which no further case is begun.")] = math.inf,
    again: Annotated[
        Path | None, typer.Option(help="The quickest of each case of an earlier sweep's JSON file, --most of them.")
    ] = None,
    turn: Annotated[float, typer.Option(help="Seconds of a config in a round, after half as many.")] = SLICE_SECONDS,
    configs: Annotated[str, typer.Option(help=f"Which: {' or '.join(FAMILIES)}.")] = "small_m",
    rounds: Annotated[int, typer.Option(help="Rounds over all configs.")] = 5,
    seconds: Annotated[float, typer.Option(help="A shape: no round begins after that.")] = 20,
    most: Annotated[int, typer.Option(help="Configs a shape: those that the model likes best.")] = 80,
    behind: Annotated[
        float, typer.Option(help="Ratio to the library from which on a shape gets no config but the picker's.")
    ] = math.inf,
    promotion: Annotated[
        str | None, typer.Option(help="Of every config: none, 64B, 128B or 256B, which L2 fetches where a load misses.")
    ] = None,
    show: Annotated[int, typer.Option(help="Rows to print a shape.")] = 6,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Time many configs of the matmul against each other."""
    if configs not in FAMILIES:
        raise typer.BadParameter(f"{configs!r}: {' or '.join(FAMILIES)}", param_hint="--configs")
    end = time.perf_counter() + until
    workloads = [MatmulWorkload.parse(text) for text in shape or (SHAPES if not (suite or again or case) else ())]
    workloads += [workload_of(name) for name in case or ()]
    earlier = {case["case"]: case["rows"] for case in json.loads(again.read_text())} if again is not None else {}
    if again is not None:
        workloads = [workload_of(name) for name in earlier]
    if suite is not None:
        chosen = (case.workload for case in select(suite.split(","), sample, seed=seed))
        workloads += [each for each in chosen if isinstance(each, MatmulWorkload) and not each.fused]
    changes = {} if promotion is None else {"l2_promotion": None if promotion == "none" else promotion}
    machine = require_machine()
    results = []
    for workload in workloads:
        if time.perf_counter() > end:
            typer.echo("\ntime is up")
            break
        name = f"{workload.label} {workload.kind}"
        tried = FAMILIES[configs](workload)
        if name in earlier:
            known = [config_of(row["fields"]) for row in earlier[name] if row["fields"] is not None]
            tried = iter(known[:most])
        limit = most + 1 if name in earlier else most  # the picker's choice is among them
        how: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "most": limit, "turn": turn, "behind": behind}
        rows = sweep(machine, workload, tried, **how, changes=changes)
        typer.echo("\n" + table(name, rows, show))
        results.append({"case": name, "turn": turn, "kernels": KERNELS, "rows": [asdict(row) for row in rows]})
        if json_file is not None:
            json_file.write_text(json.dumps(results, indent=1) + "\n")


def verdicts(file: Path, judged: Callable[[dict[str, Any]], tuple[float, str, MatmulConfig] | None], what: str) -> str:
    """What choices lose in a sweep's file: of each case that is `judged`, worst first, and the geometric mean."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    found = sorted(filter(None, map(judged, json.loads(text))), key=lambda verdict: -verdict[0])
    mean = math.exp(math.fsum(math.log(loss) for loss, _, _ in found) / len(found))
    lines = [f"{loss:.3f}  {case}: {config}" for loss, case, config in found]
    return "\n".join([*lines, f"{len(found)} {what}, {mean:.4f} in the geometric mean"])


def workload_of(name: str) -> MatmulWorkload:
    """The workload that a sweep's file calls so: its shape, types, majors and padding; no functions are swept."""
    label, types, majors, *rest = name.split()
    operands, out = types.split("→")
    a, _, b = operands.partition("·")
    precision: Precision | None = "tf32" if operands == "tf32" else None
    a_dtype, b_dtype = (as_dtype("f32" if precision else each) for each in (a, b or a))
    a_major, b_major = (cast("Major", major) for major in majors.split("/"))
    like = MatmulWorkload(
        *(1, 1, 1, None, a_dtype, b_dtype, as_dtype(out), a_major, b_major),
        precision=precision,
        accumulation="promoted" if "promoted" in rest else "fast",
        padded="contiguous" not in rest,
    )
    return MatmulWorkload.parse(label, like)


def table(name: str, rows: Sequence[Row], show: int) -> str:
    """The first rows, the library's and the picker's, and how far the latter is from the best."""
    ours = [row for row in rows if row.model_place is not None]
    lines = [f"{name}: {len(ours)} configs"]
    for place, row in enumerate(rows):
        if place < show or row.picked or row.model_place is None:
            model = f"model {row.model_place:>3}" if row.model_place is not None else " " * 9
            lines.append(
                f"  {place + 1:>3} {row.microseconds:9.2f} us {row.gigabytes_per_second:6.0f} GB/s"
                f"  {model}  {row.config}{'  (picked)' if row.picked else ''}"
            )
    lines += [
        f"  the picker's takes {row.microseconds / ours[0].microseconds:.3f} of the best's time"
        for row in ours
        if row.picked
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
