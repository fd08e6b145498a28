"""Both chips' matmuls are right, bit for bit, under every schedule; of Blackwell's sweep a sample runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.matmul import launches_sm_90a
from tests.matmul.launches_sm_100a import CASES, SHARED
from tests.matmul.matmul_launch import LaunchCase, computes
from tests.matmul.matmul_launch_data import inputs_of, kinds_of
from tests.matmul.sweep import Run, runs_of
from tilekit.dtypes import BF16

RUNS = {case: list(runs_of(case)) for case in CASES}


def sample() -> list[Run]:
    """For each kernel a launch of the whole problem, and for each third one of the short one; all seeds in turn."""
    chosen = []
    for index, (case, runs) in enumerate(RUNS.items()):
        kind = ("integers", *kinds_of(case.spec)[1:])[index % len(kinds_of(case.spec))]
        whole = [r for r in runs if r.problem == case.problem and r.kind == kind]
        chosen.append(whole[index % len(whole)])
        if index % 3 == 0:
            chosen.append(next(r for r in runs if r.problem == case.short and r.seed == index % 20))
    return chosen


SAMPLE = sample()

LAUNCHES = {"sm_90a": launches_sm_90a.runs(), "sm_100a": SAMPLE}
"""What runs with the tests, by chip."""

TABLES: dict[str, tuple[LaunchCase, ...]] = {"sm_90a": launches_sm_90a.CASES, "sm_100a": CASES}
"""The kernels, by chip."""


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("run", [run for runs in LAUNCHES.values() for run in runs], ids=str)
def test_exact(run: Run) -> None:
    """A launch is exact, its report is clean, and nothing around the output changes."""
    case = run.case
    inputs = case.inputs(run.problem, run.kind, run.seed)
    outcome = case.run(inputs, schedule=run.schedule, seed=run.seed, clusters=run.clusters)
    assert not outcome.wrong
    assert outcome.report.clean, str(outcome.report)
    assert not outcome.report.remarks, str(outcome.report)
    assert (outcome.report.schedule, outcome.report.seed, outcome.report.check) == (run.schedule, run.seed, "full")
    assert not case.config.claims_tiles or outcome.started <= outcome.tiles


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_ring_wraps(case: LaunchCase) -> None:
    """Problems end inside tiles and blocks; a cluster that has the device for itself goes round every ring."""
    assert not case.config.problems(case.target, case.spec)
    rows, columns = case.span
    block = case.config.k_block(case.spec.a_dtype)
    for problem in (case.problem, case.short):
        assert problem.m % rows
        assert problem.n % columns
        assert problem.k % block
    assert case.short.k < block
    tiles = case.tiles[0] * case.tiles[1] * max((b or 1) for b in case.batches)
    stages = case.config.resolved_stages(case.target, case.spec)
    assert tiles > case.config.accumulator_stages
    assert tiles > case.config.clc_stages
    assert tiles * case.k_blocks > stages
    if case in SHARED:
        assert case.k_blocks >= case.config.split_k


KNOBS: dict[str, dict[str, tuple[Any, ...]]] = {
    "sm_90a": {
        "consumers": (1, 2, 3),
        "schedule": ("cooperative", "pingpong"),
        "tile": ((16, 48), (64, 16), (64, 64), (128, 24), (128, 48), (128, 64), (128, 128), (192, 64)),
        "cluster": ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1)),
        "k_group": (1, 2),
        "stages": (None, 1, 2, 3),
        "in_flight": (0, 1),
        "output_buffers": (1, 2),
        "split_k": (1, 2),
        "cluster_k": (1, 2, 4, 8),
        "stream_k": (0, 8),
        "swap_ab": (False, True),
    },
    "sm_100a": {
        "cta_group": (1, 2),
        "tile": tuple(
            (rows, columns)
            for rows, widths in (
                (64, (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 224, 256)),
                (128, (16, 32, 48, 64, 80, 96, 112, 128, 208, 240, 256)),
            )
            for columns in widths
        ),
        "cluster": ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (2, 4)),
        "k_group": (1, 2, 4),
        "stages": (None, 1, 2, 3, 4, 5, 6, 7, 8),
        "accumulator_stages": (1, 2, 3, 4),
        "clc_stages": (0, 2, 3, 4),
        "output_buffers": (1, 2, 3, 4),
        "raster_order": ("m", "n"),
        "raster_group": (None, 1, 2, 3),
        "load_order": (False, True),
        "split_k": (1, 2, 3, 4),
        "swap_ab": (False, True),
    },
}
"""By chip, the values of its knobs."""

OPERANDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "sm_90a": {
        "a": ("bf16", "e4m3"),
        "out": ("bf16", "f32", "e4m3"),
        "majors": ("kk", "kmn", "mnmn"),
        "scale": (None, "pointer"),
        "activation": (None, "relu", "gelu"),
    },
    "sm_100a": {
        "a": ("bf16", "f16", "e4m3", "e5m2", "f32"),
        "out": ("bf16", "f16", "f32", "e4m3", "e5m2"),
        "majors": ("kk", "kmn", "mnk", "mnmn"),
        "scale": (None, "value", "pointer"),
        "activation": (None, "relu", "gelu", "silu"),
    },
}
"""By chip, the values of what a spec says beside what every chip's have."""


@pytest.mark.parametrize("chip", TABLES)
def test_every_knob_is_turned(chip: str) -> None:
    """The kernels have every value of every knob, and there are enough of them."""
    cases = TABLES[chip]
    specs = [case.spec for case in cases]
    assert len({str(case) for case in cases}) == len(cases) >= (60 if chip == "sm_100a" else 20)
    drawn: dict[str, list[Any]] = {knob: [getattr(case.config, knob) for case in cases] for knob in KNOBS[chip]}
    drawn |= {
        "a": [s.a_dtype.name for s in specs],
        "out": [s.out_dtype.name for s in specs],
        "majors": [s.a_major + s.b_major for s in specs],
        "scale": [s.functions.scale for s in specs],
        "activation": [s.functions.activation for s in specs],
        "store": [s.store for s in specs],
        "batched": [s.batched for s in specs],
        "residual": [s.functions.residual is not None for s in specs],
        "bias": [s.functions.bias is not None for s in specs],
    }
    either = dict.fromkeys(("batched", "residual", "bias"), (False, True))
    for name, values in (KNOBS[chip] | OPERANDS[chip] | either | {"store": ("tma", "direct")}).items():
        counts = Counter(drawn[name])
        assert not [value for value in values if not counts[value]], (name, counts)


def test_every_layout_of_tensor_memory_is_drawn_often() -> None:
    """Pairs and single CTAs, of 64 rows and of 128, have ten kernels each."""
    paired = [(case.config.cta_group, case.config.tile[0]) for case in CASES]
    assert all(paired.count((group, rows)) >= 10 for group in (1, 2) for rows in (64, 128))


def test_twenty_seeds_of_everything() -> None:
    """The sweep runs each kernel under 20 seeds of every kind of schedule, with integers and with codes."""
    for case, runs in RUNS.items():
        assert len({(r.schedule, r.seed) for r in runs}) == 20
        assert {r.schedule for r in runs} == {"adversarial", "random", "fair"}
        assert {r.kind for r in runs} == set(kinds_of(case.spec))
        assert {r.clusters for r in runs} == {1, 2}
        assert {(r.kind, r.seed) for r in runs if r.kind == "integers"} == {("integers", seed) for seed in range(20)}
    assert {run.schedule for run in SAMPLE} == {"adversarial", "random", "fair"}
    assert {run.case for run in SAMPLE} == set(CASES)


def test_codes_tell_places_apart() -> None:
    """A wrong row, column or block of K changes a coded result: no two rows, and no two columns, of it are alike."""
    for spec in (computes(), computes("f16 f16 f16"), computes("e4m3 e5m2 bf16"), computes("bf16 bf16 f32")):
        by_row, by_column = (
            inputs_of(spec, 120, 96, 130, (None, None), kind, 3).expected.astype(np.float32)
            for kind in ("coded_a", "coded_b")
        )
        for lines in (by_row, by_row.T, by_column, by_column.T):
            assert len({line.tobytes() for line in lines}) == len(lines)
    residual = inputs_of(computes(residual=BF16), 120, 96, 130, (None, None), "coded_residual", 3).expected
    for lines in (residual, residual.T):
        assert len({line.tobytes() for line in lines}) == len(lines)
