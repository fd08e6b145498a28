"""``tilekit bench``: a kernel against the array library's own, on this GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common

_SHAPES = ("512x512x512", "4096x4096x4096", "64x4096x4096", "4096x14336x4096")


def bench(
    kernel: common.Kernel = "matmul",
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="MxNxK", help=f"A shape, also BxMxNxK; repeat for more. Default: {', '.join(_SHAPES)}."),
    ] = None,
    dtype: common.Dtype = "bf16",
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    seconds: Annotated[float, typer.Option(help="Time for all shapes together.")] = 60.0,
    host: Annotated[bool, typer.Option("--host", help="Measure what a call costs the CPU instead.")] = False,
    seed: Annotated[int, typer.Option(help="Of the generated operands.")] = 0,
    json_file: Annotated[Path | None, typer.Option(help="File for everything that was measured.")] = None,
    markdown_file: Annotated[Path | None, typer.Option(help="File for the table.")] = None,
    as_json: common.Json = False,
) -> None:
    """Time KERNEL and cuBLAS against each other: interleaved, on rotated buffers, under sustained load and in bursts.

    The table is worst case first. Needs a GPU, and torch or CuPy. The repository's `python -m benchmarks.matmul` has
    the longer lists of shapes and more peers. Exits with 1 if a result of tilekit's is wrong.

    Example: `tilekit bench matmul --shape 4096x4096x4096 --shape 16x4096x14336 --seconds 30`.
    """
    with common.presented(as_json):
        from tilekit.bench import matmul, report
        from tilekit.bench.host import measure_host
        from tilekit.bench.machine import require_machine
        from tilekit.bench.workload import MatmulWorkload

        common.require_family(kernel)
        like = common.workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, False, None)
        workloads = [MatmulWorkload.parse(text, like) for text in shape or _SHAPES]
        common.spec_of(like)
        machine = require_machine()
        about = report.facts(machine)
        if host:
            times = measure_host(machine)
            table, whole, failed = report.host_markdown(times), report.to_json([], about, times), False
        else:
            entrants = [matmul.tilekit_entrant(), matmul.library_entrant(machine)]
            cases = matmul.run(workloads, entrants, machine, seconds=seconds, seed=seed)
            table, whole = report.to_markdown(cases, about), report.to_json(cases, about)
            failed = any(case.results[0].failure is not None for case in cases)
    if json_file is not None:
        json_file.write_text(whole + "\n")
    if markdown_file is not None:
        markdown_file.write_text(table)
    typer.echo(whole if as_json else table)
    raise typer.Exit(common.WRONG if failed else common.OK)
