"""tilekit's matmul against its peers, on the GPU of this machine.

    python -m benchmarks.matmul --suite squares --seconds 120 --json squares.json --markdown squares.md

Run from the repository's root. The method is written in benchmarks/README.md.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cases import SUITES
from tilekit.bench import matmul, report
from tilekit.bench.host import measure_host
from tilekit.bench.machine import TorchMachine, require_machine
from tilekit.bench.workload import MatmulWorkload
from tilekit.cli import common
from tilekit.errors import ArgumentError


def main(
    suite: Annotated[list[str] | None, typer.Option(help=f"A list of shapes: {', '.join(SUITES)}; repeatable.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="MxNxK", help="A shape; repeatable.")] = None,
    dtype: common.Dtype = "bf16",
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    peers: Annotated[str, typer.Option(help="library, triton, or both with a comma.")] = "library,triton",
    seconds: Annotated[float, typer.Option(help="Time for all cases together.")] = 120.0,
    host: Annotated[bool, typer.Option("--host", help="Also measure what a call costs the CPU.")] = False,
    seed: Annotated[int, typer.Option(help="Of the operands.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for everything that was measured.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="File for the table.")] = None,
) -> None:
    """Time tilekit's matmul and its peers against each other."""
    with common.presented():
        shapes = list(shape or ())
        for name in suite or (() if shape else ("smoke",)):
            if name not in SUITES:
                raise ArgumentError.of("--suite", name, legal=", ".join(SUITES))
            shapes += SUITES[name]
        like = common.workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, False, None)
        workloads = [MatmulWorkload.parse(text, like) for text in dict.fromkeys(shapes)]
        machine = require_machine()
        entrants = [matmul.tilekit_entrant()]
        for name in peers.split(","):
            if name == "library":
                entrants.append(matmul.library_entrant(machine))
            elif name == "triton":
                if isinstance(machine, TorchMachine) and importlib.util.find_spec("triton") is not None:
                    from benchmarks.peers import triton_matmul

                    entrants.append(matmul.Entrant("Triton", triton_matmul.launch))
            else:
                raise ArgumentError.of("--peers", name, legal="library, triton")
        about = report.facts(machine)
        cases = matmul.run(workloads, entrants, machine, seconds=seconds, seed=seed, progress=_progress)
        times = measure_host(machine) if host else None
    table = report.to_markdown(cases, about)
    if times is not None:
        table += f"\n{report.host_markdown(times)}"
    typer.echo(f"\n{table}")
    if json_file is not None:
        json_file.write_text(report.to_json(cases, about, times) + "\n")
    if markdown_file is not None:
        markdown_file.write_text(table)
    raise typer.Exit(common.WRONG if any(case.results[0].failure for case in cases) else common.OK)


def _progress(case: matmul.Case) -> None:
    words = [
        f"{result.name} {result.failure or f'{result.us:.2f} us'}{f' ({result.ratio:.3f})' if result.ratio else ''}"
        for result in case.results
    ]
    typer.echo(f"{case.label} {case.kind}: {', '.join(words)}; {case.sets} sets, {case.seconds:.1f} s", err=True)


if __name__ == "__main__":
    typer.run(main)
