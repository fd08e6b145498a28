"""``tilekit tune``: measure configs on this machine's GPU and use the quickest from now on."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common

if TYPE_CHECKING:
    from tilekit.tuning.table import Measurement


def tune(
    kernel: common.Kernel,
    shape: Annotated[
        list[str], typer.Option("--shape", help="MxNxK, or BxMxNxK for batches; may be given more than once.")
    ],
    dtype: common.Dtype = "bf16",
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    accumulation: common.AccumulationMode = "fast",
    candidates: Annotated[int, typer.Option(min=1, help="How many of the model's ranking are measured.")] = 12,
    as_json: common.Json = False,
) -> None:
    """Measure the best candidates for KERNEL at each shape, a process apart, and keep the times.

    Times are kept in one file a device, in the cache folder; `tilekit.matmul` takes the quickest from then on. Without
    tuning it takes what the model picks, which `tilekit dump matmul --what ranking` shows.

    Examples: `tilekit tune matmul --shape 4096x4096x4096`;
    `tilekit tune matmul --shape 64x8192x8192 --shape 128x8192x8192 --candidates 30`.
    """
    from rich.console import Console

    console = Console(stderr=True)
    results = []
    with common.presented(as_json):
        from tilekit.bench.workload import MatmulWorkload
        from tilekit.tuning.tuner import tune_workload

        common.require_family(kernel)
        like = common.workload_of(
            (1, 1, 1), None, dtype, out_dtype, a_major, b_major, contiguous=True, accumulation=accumulation
        )
        for text in shape:
            workload = MatmulWorkload.parse(text, like)
            with console.status(f"{text}: starting") as status:

                def show(measurement: Measurement, text: str = text, status: Any = status) -> None:
                    status.update(f"{text}: {measurement.config}")

                result = tune_workload(workload, candidates=candidates, progress=show)
            if as_json:
                rows = [
                    {"config": str(m.config), "seconds": m.seconds, "failure": m.failure} for m in result.measurements
                ]
                results.append({**asdict(result.problem), "gain": result.gain, "file": result.path, "measured": rows})
            else:
                typer.secho(text, bold=True)
                typer.echo(str(result))
    if as_json:
        typer.echo(json.dumps(results))
