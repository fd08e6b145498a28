"""How far the picker's model of Hopper is from what was measured.

    python -m benchmarks.model                           # all of an H200's times in results/
    python -m benchmarks.model sweep.json --show 20      # of `python -m benchmarks.sweep --json sweep.json`

Of each case, the config that the model likes best among those that were measured, and how much longer it took than the
quickest of them. Cases whose configs had short turns ran at one clock, whatever a config's power; their order is
another one where power limits (NOTES.md). Printed worst first; a summary for each length of turn; and a table of
classes, of the cases with `FEWEST` configs or more: by rows, layout and type. Its second line is what measuring the
best six by the model, as tuning at a first call does, would leave.

The trees that correct the model have seen these times; `python -m benchmarks.learn` judges them on shapes that they
have not seen.

How much of a loss is luck: the quickest of many is one that was measured too quick. Noise as it was seen between two
measurements of one config (`noise`), drawn anew on top of the times, adds as much to the losses as they hold of it; the
last line says how much.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.fit import CLOCK, Times
from tilekit.bench.workload import MatmulWorkload
from tilekit.kernels.matmul.estimates import Array
from tilekit.kernels.matmul.sm_90a import model as hopper_model
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

TIMES = Path(__file__).parent / "results" / "h200-2026-11-21-sweeps.json.gz"
"""Sweeps of an H200, in the form of `benchmarks.sweep`: config's fields and microseconds."""

ALL_TIMES = sorted(path for path in TIMES.parent.glob("h200-*-sweeps*.json.gz") if "conv2d" not in path.name)
"""Every file of them."""

FEWEST = 8
"""Configs of a case that counts in the table of classes: the quickest of fewer says little."""

FIRST = 6
"""Of the model's ranking, as many as tuning at a first call measures."""

DRAWS = 100


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
    class_name
        Rows, layout and type, as the table of classes has them.
    of_first
        How many times as long the quickest of the model's first `FIRST` takes.
    lucky
        Losses of the model's first where noise is added to all times, of `DRAWS` draws.
    """

    case: str
    turn: float
    configs: int
    chosen: MatmulConfig
    chosen_us: float
    modelled_us: float
    quickest: MatmulConfig
    quickest_us: float
    class_name: str
    of_first: float
    lucky: tuple[float, ...]

    @property
    def loss(self) -> float:
        """How many times as long the model's first takes."""
        return self.chosen_us / self.quickest_us


def judged(case: dict[str, Any]) -> Judged | None:
    """Judge a case; None if nothing of it can be built any more."""
    times = Times.of(case)
    if times is None:
        return None
    clocks = hopper_model.estimates(times.configs, times.workload.spec, times.grids).total
    us, each, liked = np.exp(times.log_times) / CLOCK * 1e6, times.configs.each, np.argsort(clocks, kind="stable")
    first, best = liked[0], us.argmin()
    return Judged(
        case=case["case"],
        turn=case["turn"],
        configs=len(us),
        chosen=each[first],
        chosen_us=float(us[first]),
        modelled_us=float(clocks[first]) / CLOCK * 1e6,
        quickest=each[best],
        quickest_us=float(us[best]),
        class_name=_class_name(times.workload),
        of_first=float(us[liked[:FIRST]].min() / us[best]),
        lucky=tuple(_lucky(us[liked])),
    )


def noise(us: Array) -> Array:
    """Standard deviation of a config's time from one measurement to another: 0.5 % of it up to 15 us, 3 % from 50."""
    deviation: Array = np.interp(us, (15, 50), (0.005, 0.03))
    return deviation


def _lucky(us: Array) -> Array:
    """Losses of the first of these times, where noise is added to all."""
    drawn = us * (1 + noise(us) * np.random.default_rng(len(us)).standard_normal((DRAWS, len(us))))
    losses: Array = drawn[:, 0] / drawn.min(axis=1)
    return losses


def _class_name(workload: MatmulWorkload) -> str:
    rows = next((f"M up to {most}" for most in (8, 64, 768) if workload.m <= most), "larger")
    return f"{rows}, {workload.a_major}/{workload.b_major}, {8 if workload.bits == 8 else 16} bits"


def classes(verdicts: Sequence[Judged]) -> str:
    """Losses by class: mean, percentiles, and how many are more than 10 %."""
    by_name: dict[str, list[Judged]] = {"all": list(verdicts)}
    for verdict in sorted(verdicts, key=lambda verdict: verdict.class_name):
        by_name.setdefault(verdict.class_name, []).append(verdict)
    lines = [f"{'':28}{'cases':>6}{'mean':>8}{'90 %':>8}{'99 %':>8}{'worst':>8}{'over 1.1':>10}"]
    lines += [f"{name:<28}{_row([v.loss for v in of])}" for name, of in by_name.items()]
    lines.insert(2, f"{f'all, quickest of first {FIRST}':<28}{_row([v.of_first for v in verdicts])}")
    seen, drawn = _mean([v.loss for v in verdicts]), _mean([loss for v in verdicts for loss in v.lucky])
    over = sum(loss > 1.1 for v in verdicts for loss in v.lucky) / DRAWS
    lines.append(f"with noise drawn anew: mean {drawn:.4f} ({drawn / seen - 1:+.2%}), {over:.0f} over 1.1")
    return "\n".join(lines)


def _mean(losses: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, losses)) / len(losses))


def _row(losses: Sequence[float]) -> str:
    each = sorted(losses)
    marks = (each[int(part * len(each))] for part in (0.9, 0.99))
    over = sum(loss > 1.1 for loss in each)
    return f"{len(each):>6}{_mean(each):>8.4f}" + "".join(f"{x:>8.3f}" for x in marks) + f"{each[-1]:>8.3f}{over:>10}"


def summary(verdicts: Sequence[Judged]) -> str:
    """Geometric mean and largest of the losses, for each length of turn."""
    lines = []
    for turn in sorted({verdict.turn for verdict in verdicts}):
        losses = [verdict.loss for verdict in verdicts if verdict.turn == turn]
        said = f"{_mean(losses):.4f} in the geometric mean, {max(losses):.3f} at worst"
        lines.append(f"{turn * 1e3:5.0f} ms a turn: {len(losses):>3} cases, {said}")
    return "\n".join(lines)


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Sweeps' JSON, or gzipped.")] = None,
    show: Annotated[int, typer.Option(help="Cases to print.")] = 12,
    least: Annotated[float, typer.Option(help="Seconds of a turn at least.")] = 0.0,
) -> None:
    """Compare the model's choices with measured times."""
    verdicts = []
    for path in files or ALL_TIMES:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        verdicts += [verdict for case in json.loads(text) if case["turn"] >= least and (verdict := judged(case))]
    verdicts.sort(key=lambda verdict: -verdict.loss)
    for v in verdicts[:show]:
        typer.echo(f"{v.loss:.3f}  {v.case}, {v.configs} configs, {v.turn * 1e3:.0f} ms a turn")
        typer.echo(f"    {v.chosen_us:9.2f} us, modelled {v.modelled_us:9.2f}: {v.chosen}")
        if v.loss > 1:
            typer.echo(f"    {v.quickest_us:9.2f} us: {v.quickest}")
    typer.echo(summary(verdicts))
    many = [verdict for verdict in verdicts if verdict.configs >= FEWEST]
    if many:
        typer.echo(classes(many))


if __name__ == "__main__":
    typer.run(main)
