"""``tilekit bench``: kernels against the array library's own and other peers, on this GPU; reports of such runs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tilekit.cli import common, families, kernels, numbers, options, own_bench, own_kernel, workloads
from tilekit.cli.progress import waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilekit.bench.contest import Pace
    from tilekit.bench.matmul import Case
    from tilekit.bench.record import Record
    from tilekit.bench.workload import Workload
    from tilekit.cli.workloads import Described

_SHAPES = ("512x512x512", "4096x4096x4096", "64x4096x4096", "4096x14336x4096")
_HEADS = ("4x4096 h16 d128", "4x4096 h16 d128 causal", "4x1x16384 h32/8 d128")
_LAYERS = ("32x56x56x64 64x3x3 p1", "32x14x14x256 256x3x3 p1", "2x64x64x320 320x3x3 p1")
_GROUPS = ("G8 4096x7168x2048", "G32 64x4096x7168", "700,90,1300,410,33,1563x2048x7168")
_SECONDS: Final = 60.0
_REPORT: Final = "report"


def bench(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL|report",
            help="The kernel family whose shapes are timed (`tilekit list` shows them), or `report` to make tables and "
            "a plot of earlier runs' FILEs; or FILE.py:NAME, a composed kernel of yours.",
        ),
    ] = "matmul",
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Of `report`: what `--json-file` wrote.")
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Time a fixed list of cases instead of shapes, of whatever families: squares-large, squares-small, "
            "decode, prefill-small, prefill, odd, fp8, grouped, blockwise, block-scaled, conv2d, conv2d-fused, "
            "conv2d-gradients, attention, attention-decode, or all; several with commas. Or random, or "
            "conv2d-random: cases drawn by --seed.",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the suites, the same N cases each time; of what is drawn, N cases."),
    ] = None,
    part: Annotated[str | None, typer.Option(metavar="I/N", help="Of the suites' cases, part I of N.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="SHAPE",
            help="MxNxK or BxMxNxK; of conv2d 'NxHxWxC KxRxS s2 p1', with d and g too; of attention '4x4096x8192 "
            "h32/8 d128 causal w128,0 c30'; of groups of rows 'G8 4096x7168x2048', or the rows of each; repeat for "
            f"more. Default: {', '.join(_SHAPES)}; of conv2d {', '.join(_LAYERS)}; of attention {', '.join(_HEADS)}; "
            f"of groups {', '.join(_GROUPS)}.",
        ),
    ] = None,
    dtype: options.Dtype = None,
    out_dtype: options.OutDtype = None,
    a_major: options.AMajor = "k",
    b_major: options.BMajor = "k",
    accumulation: options.AccumulationMode = "fast",
    peers: Annotated[
        str | None,
        typer.Option(
            help="library (cuBLAS), a name in a checkout's benchmarks/peers or a .py file, or all; several with "
            "commas. Default: all for suites, convolutions and attention, library for other shapes."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help=f"Time for all cases. Shapes get more rounds the more there is (default {_SECONDS:g}); of suites the "
            "cases that do not fit are left out."
        ),
    ] = None,
    pace: Annotated[
        str | None, typer.Option(help="quick or thorough. Default: quick for suites, thorough for shapes.")
    ] = None,
    host: Annotated[bool, typer.Option("--host", help="Measure what a call costs the CPU instead.")] = False,
    seed: Annotated[int, typer.Option(help="Of the generated operands, and of the cases that are drawn.")] = 0,
    json_file: Annotated[Path | None, typer.Option(help="File for everything that was measured.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown-file", "--markdown", help="File for the tables.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="File for a roofline of all cases.")] = None,
    as_json: common.Json = False,
) -> None:
    """Time KERNEL and its peers in turn, on rotated buffers, under sustained load and in bursts.

    Tables are worst case first. Needs a GPU, and torch or CuPy; `report` needs neither. Exits with 1 if a result of
    tilekit's is wrong. benchmarks/README.md has the method.

    Example: `tilekit bench matmul --shape 4096x4096x4096 --shape 16x4096x14336 --seconds 30`.

    Example: `tilekit bench attention --shape '4x4096 h16 d128 causal'`.

    Example: `tilekit bench --suite all --part 1/2 --json-file one.json`.

    Example: `tilekit bench mine.py:kernel --shape 4096x4096x4096`.

    Example: `tilekit bench report one.json two.json --markdown suite.md --plot suite.svg`.
    """
    names = [name for text in suite or () for name in text.split(",")]
    if own_kernel.names_file(kernel):
        with common.presented(as_json):
            others: dict[str, Any] = {
                "--dtype": dtype,
                "--out-dtype": out_dtype,
                "--a-major": a_major != "k" and a_major,
                "--b-major": b_major != "k" and b_major,
                "--suite": suite,
                "--sample": sample,
                "--part": part,
                "--peers": peers,
                "--host": host,
                "FILE": files,
                "--accumulation": accumulation != "fast" and accumulation,
                "--markdown": markdown_file,
                "--plot": plot,
            }
            own_kernel.refuse_options(kernel, others)
            speed = _pace(pace or "thorough")
        how: dict[str, Any] = {
            "seconds": seconds or _SECONDS,
            "pace": speed,
            "seed": seed,
            "json_file": json_file,
            "as_json": as_json,
        }
        return own_bench.bench(kernel, shape or (), **how)
    with common.presented(as_json):
        if plot is not None and plot.suffix != ".svg":
            nearest = str(plot.with_suffix(".svg")) if plot.name else "suite.svg"
            common.refuse("--plot", str(plot), "a file that ends in .svg", nearest)
        if kernel == _REPORT:
            record = _read(files or [])
        else:
            family = families.product_family(kernel)
            if files:
                given = str(files[0])
                is_shape = re.fullmatch(r"\d+(x\d+){2,3}", given)
                common.refuse("FILE", given, "files after `report` only", f"--shape {given}" if is_shape else None)
            if names:
                _refuse_beside_suites(shape or (), host, accumulation)
            elif sample is not None or part is not None:
                common.refuse("--part" if sample is None else "--sample", part or sample, "with --suite only")
            speed = _pace(pace or ("quick" if names else "thorough"))
            layers, heads = families.takes_images(family), families.attends(family)
            wanted = (peers or ("all" if names or layers or heads else "library")).split(",")
            if names:
                record = _run_suites(names, sample, part, wanted, seconds, speed, seed, json_file)
            else:
                like = workloads.like_of(family, dtype, out_dtype, a_major, b_major, accumulation)
                usual = _LAYERS if layers else _HEADS if heads else _GROUPS if family.grouped else _SHAPES
                shapes = [kernels.problem_of(family, text, like) for text in shape or usual]
                with waiting("measuring", as_json):
                    record = _run_shapes(shapes, like, wanted, seconds or _SECONDS, speed, seed, host)
    with common.presented(as_json):
        _show(record, json_file, markdown_file, plot, as_json)
    failed = kernel != _REPORT and any(case.results[0].failure is not None for case in record.cases)
    raise typer.Exit(common.WRONG if failed else common.OK)


def _refuse_beside_suites(shapes: Sequence[str], host: bool, accumulation: str) -> None:
    """Refuse what the cases of suites have of their own."""
    if shapes:
        common.refuse("--shape", shapes[0], "--suite or --shape, not both")
    if host:
        common.refuse("--host", host, "without --suite")
    if accumulation != "fast":
        common.refuse("--accumulation", accumulation, "without --suite: its cases have their own", "fast")


def _read(files: Sequence[Path]) -> Record:
    from tilekit.bench.record import Record, merged

    if not files:
        common.refuse("FILE", "nothing", "the JSON files of one or more runs, after `report`")
    return merged([Record.read(file) for file in files])


def _run_suites(
    names: Sequence[str],
    sample: int | None,
    part: str | None,
    peers: Sequence[str],
    seconds: float | None,
    pace: Pace,
    seed: int,
    json_file: Path | None,
) -> Record:
    from tilekit.bench.machine import require_machine
    from tilekit.bench.record import Record, facts
    from tilekit.bench.session import gather, measure_suite
    from tilekit.bench.suites import DRAWN, select

    chosen = select(names, sample, numbers.part_of(part), seed)
    machine = require_machine()
    record = Record({**facts(machine), "pace": pace.name})
    if {case.suite for case in chosen} <= DRAWN.keys():
        record.about["seed"] = str(seed)
    entrants = gather(machine, peers, record)

    def progress(case: Case) -> None:
        words = [
            f"{result.name} {result.failure or f'{result.us:.2f} us'}{f' ({result.ratio:.3f})' if result.ratio else ''}"
            for result in case.results
        ]
        at = f"{len(record.cases)}/{len(chosen)} {case.suite} {case.label}"
        typer.echo(f"{at}: {', '.join(words)}; {case.seconds:.1f} s", err=True)
        if json_file is not None:
            record.write(json_file)  # a machine that is taken away leaves what was measured so far

    box = math.inf if seconds is None else seconds
    measure_suite(chosen, entrants, machine, record, box_seconds=box, pace=pace, seed=seed, progress=progress)
    return record


def _run_shapes(
    workloads: Sequence[Workload],
    like: Described,
    peers: Sequence[str],
    seconds: float,
    pace: Pace,
    seed: int,
    host: bool,
) -> Record:
    from tilekit.bench import matmul
    from tilekit.bench.host import measure_host
    from tilekit.bench.machine import require_machine
    from tilekit.bench.record import Record, facts
    from tilekit.bench.session import gather, require_kernels

    like.spec  # noqa: B018  refuses types that no kernel takes
    machine = require_machine()
    require_kernels(machine, like.family)
    machine.accumulation = like.accumulation
    record = Record(facts(machine))
    if host:
        record.host = measure_host(machine)
    else:
        record.about["pace"] = pace.name
        entrants = [entrant for entrant in gather(machine, peers, record) if entrant.family == like.family]
        record.cases = matmul.run(workloads, entrants, machine, seconds=seconds, seed=seed, pace=pace)
    return record


def _show(record: Record, json_file: Path | None, markdown_file: Path | None, plot: Path | None, as_json: bool) -> None:
    from tilekit.bench.report import to_markdown
    from tilekit.bench.roofline import roofline_svg

    tables = to_markdown(record)
    if json_file is not None:
        record.write(json_file)
    if markdown_file is not None:
        markdown_file.write_text(tables, "utf-8")
    if plot is not None:
        plot.write_text(roofline_svg(record), "utf-8")
    typer.echo(record.to_json() if as_json else tables)


def _pace(name: str) -> Pace:
    from tilekit.bench.contest import QUICK, THOROUGH

    paces = {pace.name: pace for pace in (QUICK, THOROUGH)}
    if name not in paces:
        common.refuse("--pace", name, " or ".join(paces), QUICK.name)
    return paces[name]
