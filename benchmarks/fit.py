"""Fit the constants of the picker's model of Hopper to measured times, and judge it on cases it has not seen.

    python -m benchmarks.fit sweeps.json --rounds 6                  # prints the constants that changed
    python -m benchmarks.fit sweeps.json --folds 5                   # cross-validation over the cases

Hill climbing, one constant at a time. What is made small is what the model's choice would lose: of each case, the time
that configs take beyond the quickest, weighted with how the model likes them, and a little of how far its times are
from those measured. A case is in one fold whole, so a fold's cases are shapes that the fit has not seen.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.sweep import config_of, workload_of
from tilekit.bench.workload import MatmulWorkload
from tilekit.kernels.matmul.estimates import Array, Grids
from tilekit.kernels.matmul.sm_90a import model as hopper_model
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

CONSTANTS = (
    "L2_BYTES_PER_CLOCK", "CROWDING", "LAUNCH_CLOCKS", "EARLY_CLOCKS", "CLUSTER_CLOCKS", "STORE_BYTES_PER_CLOCK",
    "LAST_STORE_BYTES_PER_CLOCK", "CLUSTER_COST", "EIGHT_COST", "THIRD_COST", "LARGE_COST", "LONE_COST",
    "FILL_PART",
    "DRAM_BYTES_PER_CLOCK", "LAST_WAVE", "IDLE_COST", "SLICE_CLOCKS", "OUTSIDE_CLOCKS", "ASKED_CLOCKS",
    "RAGGED_CLOCKS", "COLD_COST", "LATENCY_CLOCKS", "SHARE_CLOCKS", "SHARE_BYTES_PER_CLOCK",
    "EXCHANGE_CLOCKS", "EXCHANGE_BYTES_PER_CLOCK", "POWER_SHARE", "POWER_CLOCKS", "OVERLAP", "HELD", "MIXTURE",
    "SHARED_PART", "DRAINED_COST", "COUPLED_COST", "OFF_SECTOR_COST", "FETCH_ENERGY", "DRAM_ENERGY", "EIGHT_BIT_ENERGY",
    "TURN_OVERLAP",
)  # fmt: skip
"""Those that are fitted; the others are facts, or nothing that is swept depends on them."""

STEPS = (1.3, 1.1, 1.03, 1.01)
"""Factors by which a constant is tried larger and smaller, coarse ones first."""

CLOCK = 1.98e9
LIKING = 0.03
"""How much less time, as a part, makes the model like a config e times as much."""

ACCURACY = 0.15
"""Weight of the times' own errors beside what choices lose."""


@dataclass(frozen=True)
class Times:
    """What was measured of a case, ready to be modelled.

    Attributes
    ----------
    case
        Its name.
    workload, configs, grids
        What the model takes.
    log_times
        Logarithms of clocks, of each config.
    weight
        Of the case.
    """

    case: str
    workload: MatmulWorkload
    configs: hopper_model.HopperConfigs
    grids: Grids
    log_times: Array
    weight: float = 1.0

    @classmethod
    def of(cls, case: dict[str, Any], weight: float = 1.0) -> Times | None:
        """Those of a sweep's case; None if nothing of it can be built any more."""
        workload = workload_of(case["case"])
        found = [(config_of(row["fields"]), row["microseconds"]) for row in case["rows"] if row["fields"] is not None]
        found = [(config, us) for config, us in found if config.legal(SM_90A, workload.spec)]
        if not found:
            return None
        configs = hopper_model.collect([config for config, _ in found], workload.spec)
        if case.get("kernels", 1) < 2:
            configs = of_whole_chunks(configs, workload.spec)
        resident = np.maximum(hopper_model.resident(configs, SM_90A.multiprocessors), 1)
        shape = {"m": workload.m, "n": workload.n, "k": workload.k, "batches": workload.batch or 1}
        grids = Grids.of(configs, workload.spec, **shape, resident=resident)
        clocks = np.array([us for _, us in found]) * 1e-6 * CLOCK
        return cls(case["case"], workload, configs, grids, np.log(clocks), weight)

    def modelled(self) -> Array:
        """Logarithms of the model's clocks."""
        block = hopper_model.BlockClocks.of(self.configs, self.workload.spec, self.grids)
        logs: Array = np.log(hopper_model.modelled(self.configs, self.workload.spec, self.grids, block)[1])
        return logs

    def cost(self) -> float:
        """What the model's liking loses, and its errors."""
        model, beyond = self.modelled(), self.log_times - self.log_times.min()
        liked = np.exp((model.min() - model) / LIKING)
        lost = float((liked * beyond).sum() / liked.sum())
        near = np.exp(-beyond / 0.2)
        errors = model - self.log_times
        centred = errors - (near * errors).sum() / near.sum()
        if len(errors) == 1:  # one of a benchmark: the model's favourite, whose time it may flatter
            return ACCURACY * abs(float(errors[0]))
        wrong = float((near * np.abs(centred)).sum() / near.sum()) + 0.2 * abs(
            float((near * errors).sum() / near.sum())
        )
        return lost + ACCURACY * wrong

    def loss(self) -> float:
        """How many times as long as the quickest the model's choice takes."""
        return math.exp(float(self.log_times[int(self.modelled().argmin())] - self.log_times.min()))


def of_whole_chunks(configs: hopper_model.HopperConfigs, spec: MatmulSpec) -> hopper_model.HopperConfigs:
    """The configs as they were before tiles were trimmed."""
    along_n = np.where(configs.swapped, spec.a_major == "mn", spec.b_major == "mn")
    whole = -(-configs.tile_n // configs.chunk_n) * configs.chunk_n
    loaded = np.where(along_n, whole, configs.tile_n)
    return replace(configs, trimmed=np.zeros_like(configs.trimmed), loaded_n=loaded)


def cost(cases: Sequence[Times]) -> float:
    """Of all cases, those with large losses a bit more."""
    each = np.array([case.cost() for case in cases])
    weights = np.array([case.weight for case in cases])
    return float((weights * (each + 1.5 * each**2)).sum() / weights.sum())


def climb(cases: Sequence[Times], rounds: int) -> dict[str, float]:
    """Change the model's constants in place until no step helps; return those that changed."""
    first = {name: getattr(hopper_model, name) for name in CONSTANTS}
    best = cost(cases)
    for number in range(rounds):
        before, step = best, STEPS[min(number, len(STEPS) - 1)]
        for name in CONSTANTS:
            for factor in (step, 1 / step):
                while True:
                    value = getattr(hopper_model, name)
                    setattr(hopper_model, name, value * factor)
                    now = cost(cases)
                    if now >= best - 1e-6:
                        setattr(hopper_model, name, value)
                        break
                    best = now
        typer.echo(f"round {number + 1}: {best:.5f}", err=True)
        if best > before - 1e-5 and number >= len(STEPS):
            break
    return {name: getattr(hopper_model, name) for name in CONSTANTS if getattr(hopper_model, name) != first[name]}


@contextmanager
def kept() -> Iterator[None]:
    """Put the model's constants back."""
    first = {name: getattr(hopper_model, name) for name in CONSTANTS}
    try:
        yield
    finally:
        for name, value in first.items():
            setattr(hopper_model, name, value)


def losses(cases: Sequence[Times]) -> str:
    """Geometric mean, 90th percentile, 99th and largest of what the model's choices lose."""
    each = sorted(case.loss() for case in cases)
    mean = math.exp(sum(map(math.log, each)) / len(each))
    return (
        f"{len(each)} cases: {mean:.4f} in the geometric mean, {each[int(0.9 * len(each))]:.3f} at the 90th "
        f"percentile, {each[-1]:.3f} at worst"
    )


def read(files: Sequence[Path], least: float) -> list[Times]:
    """The cases of sweeps' files with turns of `least` seconds at least."""
    found = []
    for path in files:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found += [each for case in json.loads(data) if case["turn"] >= least and (each := Times.of(case)) is not None]
    return found


def main(
    files: Annotated[list[Path], typer.Argument(help="Sweeps' JSON, or gzipped.")],
    rounds: Annotated[int, typer.Option(help="Over all constants, at most.")] = 6,
    folds: Annotated[int, typer.Option(help="Parts of the cases, each judged by a fit to the others.")] = 0,
    least: Annotated[float, typer.Option(help="Seconds of a turn at least.")] = 0.0,
) -> None:
    """Fit the model, or cross-validate it."""
    cases = read(files, least)
    typer.echo(f"as it is: {losses(cases)}")
    if folds:
        unseen: list[Times] = []
        lost: list[float] = []
        for fold in range(folds):
            with kept():
                climb([case for i, case in enumerate(cases) if i % folds != fold], rounds)
                unseen += cases[fold::folds]
                lost += [case.loss() for case in cases[fold::folds]]
        mean = math.exp(sum(map(math.log, lost)) / len(lost))
        typer.echo(f"unseen: {mean:.4f} in the geometric mean, {max(lost):.3f} at worst")
        return
    for name, value in climb(cases, rounds).items():
        typer.echo(f"{name} = {value:.4g}")
    typer.echo(f"fitted: {losses(cases)}")


if __name__ == "__main__":
    typer.run(main)
