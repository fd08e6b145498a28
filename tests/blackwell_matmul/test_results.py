"""The Blackwell matmul is right, bit for bit, whatever its configuration: a sample of the sweep runs with the tests."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tilekit.dtypes import BF16
from tilekit.emulator.ptx.execution.scheduler import Machine
from tilekit.kernels.plan import EmulatedPlan
from tilekit.targets import SM_100A

from .case import Case
from .configs import CASES, SHARED, computes, pairs, single
from .inputs import inputs_of, kinds_of
from .sweep import Run, runs_of

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


@pytest.mark.parametrize("run", SAMPLE, ids=str)
def test_exact(run: Run) -> None:
    """A launch is exact, its report is clean, and nothing around the output changes."""
    case = run.case
    inputs = case.inputs(run.problem, run.kind, run.seed)
    outcome = case.run(inputs, schedule=run.schedule, seed=run.seed, clusters=run.clusters)
    assert not outcome.wrong
    assert outcome.report.clean, str(outcome.report)
    assert not outcome.report.remarks, str(outcome.report)
    assert not case.config.claims_tiles or outcome.started <= outcome.tiles


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_ring_wraps(case: Case) -> None:
    """Problems end inside tiles and blocks; a cluster that has the device for itself goes round every ring."""
    assert not case.config.problems(SM_100A, case.spec)
    rows, columns = case.span
    block = case.config.k_block(case.spec.a_dtype)
    for problem in (case.problem, case.short):
        assert problem.m % rows
        assert problem.n % columns
        assert problem.k % block
    assert case.short.k < block
    tiles = case.tiles[0] * case.tiles[1] * max((b or 1) for b in case.batches)
    stages = case.config.resolved_stages(SM_100A, case.spec)
    assert tiles > case.config.accumulator_stages
    assert tiles > case.config.clc_stages
    assert tiles * case.k_blocks > stages
    if case in SHARED:
        assert case.k_blocks >= case.config.split_k


@pytest.mark.parametrize("clusters", [1, 2])
def test_tiles_are_claimed(monkeypatch: pytest.MonkeyPatch, clusters: int) -> None:
    """With claims, clusters take over at least two tiles each; without, the grid is as small as the device."""
    claimed: list[object] = []
    cancel = Machine.cancel_waiting

    def counted(machine: Machine) -> tuple[int, int, int] | None:
        claimed.append(cancel(machine))
        return claimed[-1]  # type: ignore[return-value]

    monkeypatch.setattr(Machine, "cancel_waiting", counted)
    for config in (single(128, 208, stages=3), pairs(128, 128, (2, 1), stages=4)):
        case = Case(config, tiles=(4, 2), k_blocks=1)
        claimed.clear()
        outcome = case.run(case.inputs(case.problem, "integers", 0), clusters=clusters)
        assert outcome.started == clusters
        assert outcome.tiles == 8
        assert len([c for c in claimed if c is not None]) == 8 - clusters >= 2 * clusters
        assert claimed.count(None) == clusters, "each asks until it is refused, and no more"
    static = Case(pairs(128, 64, clc_stages=0), tiles=(4, 2), k_blocks=1)
    claimed.clear()
    outcome = static.run(static.inputs(static.problem, "integers", 0), clusters=clusters)
    assert (outcome.started, outcome.tiles, claimed) == (clusters, 8, [])


def test_bound_plans_use_the_whole_device() -> None:
    """`bind` launches as many clusters of a static schedule as the emulated device has room for."""
    case = Case(pairs(128, 64, clc_stages=0), tiles=(3, 2), k_blocks=1)
    inputs = case.inputs(case.problem, "integers", 0)
    a = np.zeros((case.problem.m, 64), inputs.a.dtype)[:, : case.problem.k]
    b = np.zeros((case.problem.n, 64), inputs.b.dtype)[:, : case.problem.k]
    a[...], b[...] = inputs.a, inputs.b.T
    for multiprocessors, clusters in ((2, 1), (5, 2), (12, 6), (None, 6)):
        plan = case.kernel.bind(a, b.T, multiprocessors=multiprocessors)
        assert isinstance(plan, EmulatedPlan)
        assert np.array_equal(plan().astype(np.float32), inputs.expected.astype(np.float32))
        assert plan.report.grid == (2 * clusters, 1, 1)


def test_every_knob_is_turned() -> None:
    """The kernels have every value of every knob, and there are enough of them."""
    configs = [case.config for case in CASES]
    specs = [case.spec for case in CASES]
    assert len({str(case) for case in CASES}) == len(CASES) >= 60
    for drawn, values in (
        ([c.cta_group for c in configs], (1, 2)),
        ([c.tile[0] for c in configs], (64, 128)),
        ([c.tile[1] for c in configs], (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 208, 224, 240, 256)),
        ([c.cluster for c in configs], ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (2, 4))),
        ([c.k_group for c in configs], (1, 2, 4)),
        ([c.stages for c in configs], (None, 1, 2, 3, 4, 5, 6, 7, 8)),
        ([c.accumulator_stages for c in configs], (1, 2, 3, 4)),
        ([c.clc_stages for c in configs], (0, 2, 3, 4)),
        ([c.output_buffers for c in configs], (1, 2, 3, 4)),
        ([c.raster_order for c in configs], ("m", "n")),
        ([c.raster_group for c in configs], (None, 1, 2, 3)),
        ([c.load_order for c in configs], (False, True)),
        ([c.split_k for c in configs], (1, 2, 3, 4)),
        ([c.swap_ab for c in configs], (False, True)),
        ([s.a_dtype.name for s in specs], ("bf16", "f16", "e4m3", "e5m2", "f32")),
        ([s.out_dtype.name for s in specs], ("bf16", "f16", "f32", "e4m3", "e5m2")),
        ([s.a_major + s.b_major for s in specs], ("kk", "kmn", "mnk", "mnmn")),
        ([s.store for s in specs], ("tma", "direct")),
        ([s.batched for s in specs], (False, True)),
        ([s.functions.residual is not None for s in specs], (False, True)),
        ([s.functions.bias is not None for s in specs], (False, True)),
        ([s.functions.scale for s in specs], (None, "value", "pointer")),
        ([s.functions.activation for s in specs], (None, "relu", "gelu", "silu")),
    ):
        counts = Counter(drawn)
        assert not [value for value in values if not counts[value]], counts
    paired = [(c.cta_group, c.tile[0]) for c in configs]
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
            for kind in ("coded a", "coded b")
        )
        for lines in (by_row, by_row.T, by_column, by_column.T):
            assert len({line.tobytes() for line in lines}) == len(lines)
    residual = inputs_of(computes(residual=BF16), 120, 96, 130, (None, None), "coded residual", 3).expected
    for lines in (residual, residual.T):
        assert len({line.tobytes() for line in lines}) == len(lines)
