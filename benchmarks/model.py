"""How far the picker's model of Hopper is from what was measured.

    python -m benchmarks.model                           # the H200's times that the model was fitted to
    python -m benchmarks.model sweep.json --show 20      # of `python -m benchmarks.sweep --json sweep.json`

Of each case, the config that the model likes best among those that were measured, and how much longer it took than the
quickest of them: which is itself a matter of luck by half a percent to one, where many take about as long. Cases whose
configs had short turns ran at one clock, whatever a config's power; their order is another one where power limits
(NOTES.md). Printed worst first; a summary for each length of turn.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.sweep import CLOCK, config_of, model_clocks, workload_of
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.targets import SM_90A

TIMES = Path(__file__).parent / "results" / "h200-2026-11-21-sweeps.json.gz"
"""Sweeps of an H200, in the form of `benchmarks.sweep`: config's fields and microseconds."""


@dataclass(frozen=True)
class Judged:
    """A case's verdict.

    Attributes
    ----------
    case, turn
        Its name, and the seconds that a config was measured in a round.
    configs
        How many were measured.
    chosen, quickest
        The model's first, and the one that took least.
    chosen_us, modelled_us, quickest_us
        Their microseconds, and what the model says of the first.
    """

    case: str
    turn: float
    configs: int
    chosen: MatmulConfig
    chosen_us: float
    modelled_us: float
    quickest: MatmulConfig
    quickest_us: float

    @property
    def loss(self) -> float:
        """How many times as long the model's first takes."""
        return self.chosen_us / self.quickest_us


def judged(case: dict[str, Any]) -> Judged | None:
    """Judge a case; None if nothing of it can be built any more."""
    workload = workload_of(case["case"])
    times = [(config_of(row["fields"]), row["microseconds"]) for row in case["rows"] if row["fields"] is not None]
    times = [(config, us) for config, us in times if config.legal(SM_90A, workload.spec)]
    if not times:
        return None
    clocks = {config: model_clocks(config, workload) for config, _ in times}
    chosen, chosen_us = min(times, key=lambda entry: clocks[entry[0]])
    quickest, quickest_us = min(times, key=lambda entry: entry[1])
    modelled = clocks[chosen] / CLOCK * 1e6
    return Judged(case["case"], case["turn"], len(times), chosen, chosen_us, modelled, quickest, quickest_us)


def summary(verdicts: Sequence[Judged]) -> str:
    """Geometric mean and largest of the losses, for each length of turn."""
    lines = []
    for turn in sorted({verdict.turn for verdict in verdicts}):
        losses = [verdict.loss for verdict in verdicts if verdict.turn == turn]
        mean = math.exp(sum(math.log(loss) for loss in losses) / len(losses))
        said = f"{mean:.4f} in the geometric mean, {max(losses):.3f} at worst"
        lines.append(f"{turn * 1e3:5.0f} ms a turn: {len(losses):>3} cases, {said}")
    return "\n".join(lines)


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Sweeps' JSON, or gzipped.")] = None,
    show: Annotated[int, typer.Option(help="Cases to print.")] = 12,
    least: Annotated[float, typer.Option(help="Seconds of a turn at least.")] = 0.0,
) -> None:
    """Compare the model's choices with measured times."""
    verdicts = []
    for path in files or [TIMES]:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        verdicts += [verdict for case in json.loads(text) if case["turn"] >= least and (verdict := judged(case))]
    verdicts.sort(key=lambda verdict: -verdict.loss)
    for v in verdicts[:show]:
        typer.echo(f"{v.loss:.3f}  {v.case}, {v.configs} configs, {v.turn * 1e3:.0f} ms a turn")
        typer.echo(f"    {v.chosen_us:9.2f} us, modelled {v.modelled_us:9.2f}: {v.chosen}")
        if v.loss > 1:
            typer.echo(f"    {v.quickest_us:9.2f} us: {v.quickest}")
    typer.echo(summary(verdicts))


if __name__ == "__main__":
    typer.run(main)
