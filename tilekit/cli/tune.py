"""``tilekit tune``: measure configs on this machine's GPU and use the quickest from now on."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common, families, kernels, numbers, options, own_kernel, workloads

if TYPE_CHECKING:
    from tilekit.kernels.family import Family
    from tilekit.targets import ChipName
    from tilekit.tuning.table import Measurement
    from tilekit.tuning.tuner import TuneResult
    from tilekit.tuning.workloads import Tunable


def tune(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel family; `tilekit list` shows them.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            help="MxNxK or BxMxNxK; of conv2d 'NxHxWxC KxRxS s2 p1'; of groups 'G8 4096x7168x2048', with the rows of "
            "all, or 700,90,1300x7168x2048; of attention '4x4096 h32/8 d128 causal'; may be repeated.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Tune what suites of `tilekit bench` compute instead; several with commas.",
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(metavar="N", help="Of the suites, the same N cases each time.")] = None,
    part: Annotated[str | None, typer.Option(metavar="I/N", help="Of the suites' cases, part I of N.")] = None,
    seconds: Annotated[
        float, typer.Option(help="Of suites: after that time no further case is begun.", show_default=False)
    ] = math.inf,
    dtype: options.Dtype = None,
    out_dtype: options.OutDtype = None,
    a_major: options.AMajor = "k",
    b_major: options.BMajor = "k",
    accumulation: options.AccumulationMode = "fast",
    candidates: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many of the model's ranking are measured, and half as many of those that the picker does not "
            "choose from.",
        ),
    ] = 12,
    target: Annotated[
        str | None, typer.Option(help="A chip whose kernels this GPU runs, such as sm_80; by default its own.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Measure the best candidates for KERNEL at each shape, a process apart, and keep the times.

    Times are kept in one file a device, in the cache folder; calls take the quickest from then on. Without
    tuning they take what the model picks, which `tilekit dump matmul --what ranking` shows. Of suites, a table says how
    far the model's choices are from the quickest.

    Examples: `tilekit tune matmul --shape 4096x4096x4096`;
    `tilekit tune matmul --shape 64x8192x8192 --shape 128x8192x8192 --candidates 30`;
    `tilekit tune grouped_matmul --shape 'G8 4096x7168x2048'`; `tilekit tune matmul --target sm_80 --shape 512x512x512`;
    `tilekit tune matmul --suite squares-small,prefill --sample 30 --seconds 450`.
    """
    names = [name for text in suite or () for name in text.split(",")]
    with common.presented(as_json):
        own_kernel.refuse_file(
            kernel,
            "a composed kernel has no configs to choose from: its function says what it is",
            f"tilekit bench {kernel}, of each way to make it",
        )
        family, chip = families.tuned_family(kernel), families.chip_of(target)
        if bool(names) == bool(shape):
            words = "one of --shape and --suite; `tilekit tune --help` has a shape of each kernel"
            common.refuse("--shape", shape, words)
        if names:
            _suites(names, sample, part, seconds, candidates, chip, as_json)
            return
        if sample is not None or part is not None:
            common.refuse("--part" if sample is None else "--sample", part or sample, "with --suite only")
        like = workloads.like_of(family, dtype, out_dtype, a_major, b_major, accumulation)
        _shapes(family, shape or [], like, candidates, chip, as_json)


def _shapes(
    family: Family, shapes: list[str], like: Tunable, candidates: int, chip: ChipName | None, as_json: bool
) -> None:
    from rich.console import Console

    from tilekit.tuning.tuner import tune_workload

    console = Console(stderr=True)
    results = []
    for text in shapes:
        workload = kernels.problem_of(family, text, like)
        with console.status(f"{text}: starting") as status:

            def show(measurement: Measurement, text: str = text, status: Any = status) -> None:
                status.update(f"{text}: {measurement.config}")

            result = tune_workload(workload, candidates=candidates, target=chip, progress=show)
        results.append(_facts(result))
        if not as_json:
            typer.secho(text, bold=True)
            typer.echo(str(result))
    if as_json:
        typer.echo(json.dumps(results))


def _suites(
    names: list[str],
    sample: int | None,
    part: str | None,
    seconds: float,
    candidates: int,
    chip: ChipName | None,
    as_json: bool,
) -> None:
    from tilekit.bench.suites import select
    from tilekit.tuning.suite import HEAD, TunedCase, summary, tunable, tune_suite

    cases = tunable(select(names, sample, numbers.part_of(part)))
    shown: list[TunedCase] = []

    def show(case: TunedCase) -> None:
        if not as_json:
            typer.echo(str(case) if shown else f"{HEAD}\n{case}")
        shown.append(case)

    done = tune_suite(cases, candidates=candidates, target=chip, seconds=seconds, progress=show)
    left_out = len(cases) - len(done)
    if as_json:
        rows = [{"suite": case.suite, **_facts(case.result)} for case in done]
        typer.echo(json.dumps({"cases": rows, "left_out": left_out}))
    elif done or left_out:
        typer.echo("\n" + summary(done, left_out))


def _facts(result: TuneResult) -> dict[str, Any]:
    rows = [
        {
            "config": str(m.config),
            "seconds": m.seconds,
            "failure": m.failure,
            "picked": m.config == result.picked,
            "spare": m.config in result.tuning_candidates,
        }
        for m in result.measurements
    ]
    found = {"gain": result.gain, "tuning_gain": result.tuning_gain, "file": result.path, "measured": rows}
    return {**asdict(result.problem), **found}
