"""How far fused residuals are from what their bytes allow: `python -m benchmarks.residual_floors fused.json`.

The file is of `tilekit bench --suite conv2d-fused --peers cudnn --json-file fused.json`. A layer with a residual cannot
be quicker than without one, nor than all its bytes take at the rate of a layer that does nothing but read and write:
the larger of the two is its floor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tilekit.bench.entrants import OURS

BYTES_PER_SECOND = 3.62e12
"""Of 32x56x56x64 images 256 1x1 filters, which read 13 MB and write 51 in 17.8 us (H200)."""


def floors(cases: list[dict[str, Any]]) -> Iterator[tuple[float, str, float, float, float]]:
    """Of each layer with a residual: time over floor, its label, and time, plain time and floor in microseconds."""
    for case in cases:
        if "+residual" not in case["kind"]:
            continue
        times = {result["name"]: result["us"] for result in case["results"]}
        ours, plain = times[OURS], next(us for name, us in times.items() if name.startswith(f"{OURS},"))
        floor = max(plain, case["bytes"] / BYTES_PER_SECOND * 1e6)
        yield ours / floor, case["label"], ours, plain, floor


def main(file: Annotated[Path, typer.Argument(help="Of `tilekit bench --suite conv2d-fused --json-file`.")]) -> None:
    """Print a table, the nearest to its floor first."""
    typer.echo("| layer | us | plain us | floor us | of the floor | of the plain one |\n|---|--:|--:|--:|--:|--:|")
    for ratio, label, ours, plain, floor in sorted(floors(json.loads(file.read_text("utf-8"))["cases"])):
        typer.echo(f"| {label} | {ours:.2f} | {plain:.2f} | {floor:.2f} | {ratio:.3f} | {ours / plain:.3f} |")


if __name__ == "__main__":
    typer.run(main)
