"""The sweep of configs, on a simulated machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from benchmarks import groups_sweep, model, sweep, sweep_configs
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.suites import select
from tilekit.bench.workload import MatmulWorkload
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.targets import SM_90A
from tilekit.tuning.suite import tunable

WORKLOAD = MatmulWorkload(16, 256, 512)


def test_small_m_configs_hold_m() -> None:
    """Every config is swapped and its columns just hold M; most are legal, among them shares, clusters and k-groups."""
    for m, columns in ((1, 8), (8, 8), (9, 16), (64, 64), (100, 104)):
        workload = MatmulWorkload(m, 4096, 4096)
        found = [c for c in sweep_configs.small_m(workload) if c.legal(SM_90A, workload.spec)]
        assert len(found) > 50
        assert {(c.swap_ab, c.tile[1]) for c in found} == {(True, columns)}
        assert {c.split_k for c in found} == {1, 2, 3, 4, 6}
        assert {c.k_group for c in found} >= {1, 2}


def test_streamed_configs_stream() -> None:
    """All of them do, in clusters and without, and are legal."""
    found = list(sweep_configs.streamed(WORKLOAD))
    assert {config.stream_k for config in found} == {2, 8}
    assert {config.cluster for config in found} == {(1, 1), (2, 1), (1, 2)}
    assert all(config.legal(SM_90A, WORKLOAD.spec) for config in found)


@pytest.mark.parametrize("m", [1, 16, 64, 128])
def test_overlaps_differ_in_prefetch_alone(m: int) -> None:
    """All are the picker's choice but for the blocks brought into L2, from none to as many as there may be."""
    workload = MatmulWorkload(m, 28672, 4096)
    found = list(sweep_configs.overlaps(workload))
    assert {config.changed(prefetch=0) for config in found} == {sweep_configs.choice(workload).changed(prefetch=0)}
    assert {config.prefetch for config in found} >= {0, 2, 12}
    assert all(config.legal(SM_90A, workload.spec) for config in found)


def test_rounds_are_shuffled_and_the_median_counts(machine: SimulatedMachine) -> None:
    """Each round measures every contestant once more, in orders that differ; time's end is heeded."""
    passes = {name: machine.capture(lambda us=us: machine.spend(us * 1e-6)) for name, us in (("a", 20), ("b", 10))}
    times = sweep.shuffled_rounds(machine, passes, rounds=6, seconds=60)
    assert times == {"a": pytest.approx(20e-6), "b": pytest.approx(10e-6)}
    order = [replay for replay, _ in machine.slices[4::2]]
    rounds = [order[i : i + 2] for i in range(0, 12, 2)]
    assert all(set(each) == set(passes.values()) for each in rounds)
    assert rounds[1:] != rounds[:-1]
    machine.slices.clear()
    sweep.shuffled_rounds(machine, passes, rounds=6, seconds=0)
    assert len(machine.slices) == 8  # one round


def test_a_sweep_ranks_by_time_and_by_model(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickest comes first, places are the model's, the picker's choice is there, and wrong kernels are not."""

    def compiled(spec: tilekit.MatmulSpec, config: MatmulConfig) -> Any:
        def bind(a: Any, b: Any, out: Any) -> Any:
            def plan() -> None:
                machine.spend(1e-6 * config.split_k)
                out[...] = np.zeros_like(out) if config.k_group == 2 else (a.astype(np.float32) @ b.astype(np.float32))

            return plan

        return SimpleNamespace(bind=bind)

    monkeypatch.setattr(sweep, "_compiled", compiled)
    rows = sweep.sweep(machine, WORKLOAD, sweep_configs.small_m(WORKLOAD), rounds=1, seconds=0, most=30)
    assert rows == sorted(rows, key=lambda row: row.microseconds)
    library = next(row for row in rows if row.config == sweep.LIBRARY)
    rows.remove(library)
    assert library.model_place is None
    assert rows[0].microseconds == pytest.approx(1.0)
    assert len(rows) > 5
    assert len({row.model_place for row in rows}) == len(rows)
    by_place = sorted(rows, key=lambda row: row.model_place or 0)
    assert by_place == sorted(by_place, key=lambda row: row.model_microseconds or 0)
    assert sum(row.picked for row in rows) <= 1  # it may be one of the wrong ones
    assert all(" x 2 stages" not in row.config for row in rows)
    again = [sweep.config_of(json.loads(json.dumps(row.fields))) for row in rows]
    assert [str(config) for config in again] == [row.config for row in rows]
    text = sweep.table("16x256x512", rows, 2)
    assert ("of the best's time" in text) == any(row.picked for row in rows)


def test_rasters_differ_in_the_walk_only() -> None:
    """The picker's choice, its tiles in other orders; each is legal."""
    workload = MatmulWorkload(4096, 4096, 4096)
    found = [config for config in sweep_configs.rasters(workload) if config.legal(SM_90A, workload.spec)]
    assert len(found) == 18
    assert len({config.changed(raster_order="m", raster_group=None) for config in found}) == 1


@pytest.mark.parametrize("suite", ["prefill-small", "fp8"])
def test_everything_holds_what_only_tuning_tries(suite: str) -> None:
    """Consumers in turn and the picker's candidates are both there."""
    workload = tunable(select([suite], 1))[0][1]
    found = {config for config in sweep_configs.everything(workload) if config.legal(SM_90A, workload.spec)}
    assert found > set(sweep_configs.picked_from(workload))
    assert any(config.pingpong for config in found)


def test_a_file_of_a_sweep_is_read_again(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--again` measures the quickest of an earlier sweep, and the picker's choice, and nothing else."""
    quick = MatmulConfig(tile=(64, 48), cluster=(1, 1), consumers=1, k_group=2)
    slow = MatmulConfig(tile=(64, 64), cluster=(1, 2), consumers=1, schedule="pingpong")
    rows = [{"fields": None}, {"fields": sweep.fields_of(quick)}, {"fields": sweep.fields_of(slow)}]
    earlier, later = tmp_path / "earlier.json", tmp_path / "later.json"
    earlier.write_text(json.dumps([{"case": "16x256x512 bf16→bf16 k/k", "turn": 0.008, "rows": rows}]))
    tried: list[MatmulConfig] = []

    def compiled(spec: tilekit.MatmulSpec, config: MatmulConfig) -> Any:
        tried.append(config)
        return SimpleNamespace(bind=lambda a, b, out: lambda: machine.matmul(a, b, out))

    monkeypatch.setattr(sweep, "_compiled", compiled)
    monkeypatch.setattr(sweep, "require_machine", lambda: machine)
    sweep.main(again=earlier, most=1, rounds=1, seconds=0, json_file=later)
    assert set(tried) == {quick, sweep_configs.choice(WORKLOAD)}
    (case,) = json.loads(later.read_text())
    assert case["case"] == "16x256x512 bf16→bf16 k/k"
    assert {row["config"] for row in case["rows"]} == {sweep.LIBRARY, *map(str, tried)}


def test_the_model_is_judged(tmp_path: Path) -> None:
    """The model's first is compared with the quickest; what is no longer legal does not count."""
    wide, narrow = MatmulConfig(), MatmulConfig(tile=(64, 16), cluster=(1, 1), consumers=1)
    illegal = MatmulConfig(tile=(64, 256), consumers=2)
    times = ((None, 1.0), (wide, 210.0), (narrow, 700.0), (illegal, 1.0))
    rows = [{"fields": c and sweep.fields_of(c), "microseconds": us} for c, us in times]
    verdict = model.judged({"case": "4096x4096x4096 bf16→bf16 k/k", "turn": 0.1, "rows": rows})
    assert verdict is not None
    assert (verdict.chosen, verdict.quickest, verdict.configs, verdict.loss) == (wide, wide, 2, 1.0)
    rows[1]["microseconds"] = 1400.0
    worse = model.judged({"case": "4096x4096x4096 bf16→bf16 k/k", "turn": 0.1, "rows": rows})
    assert worse is not None
    assert (worse.chosen, worse.quickest, worse.loss) == (wide, narrow, pytest.approx(2.0, rel=1e-12))
    assert "2 cases, 1.4142 in the geometric mean, 2.000 at worst" in model.summary([verdict, worse])


def test_the_shipped_times_are_those_the_model_was_fitted_to() -> None:
    """Of the sustained ones, with turns of 40 ms and more, the model's choices lose 2 % at most on average."""
    cases = [case for case in json.loads(gzip.decompress(model.TIMES.read_bytes())) if case["turn"] >= 0.04]
    losses = [verdict.loss for case in cases if (verdict := model.judged(case)) is not None]
    assert len(losses) == len(cases) > 60
    assert np.exp(np.mean(np.log(losses))) < 1.02


def test_a_spread_holds_what_the_model_would_not_choose() -> None:
    """The model's best are in it with other stages, and so is every kind of tile and cluster."""
    workload = MatmulWorkload(300, 5120, 5120)
    found = [config for config in dict.fromkeys(sweep_configs.spread(workload)) if config.legal(SM_90A, workload.spec)]
    assert sweep_configs.choice(workload) in found
    assert {config.cluster for config in found} >= {(1, 1), (2, 1), (1, 2), (4, 1), (1, 4), (4, 2), (2, 4)}
    assert {config.tile[0] for config in found} >= {64, 128, 192, 256}
    assert {config.k_group for config in found} >= {1, 2}


def test_rings_come_with_one_buffer_and_with_two() -> None:
    """So that the stage is all that differs; and clusters of two by two are there."""
    tried = list(sweep_configs.rings(sweep.workload_of("936x2304x2048 bf16→bf16 mn/mn")))
    pairs = [(c, two) for c in tried if c.output_buffers == 1 and (two := c.changed(output_buffers=2)) in tried]
    spec = MatmulWorkload(64, 64, 64, a_major="mn", b_major="mn").spec
    for one, two in pairs:
        assert one.resolved_stages(SM_90A, spec) > two.resolved_stages(SM_90A, spec)
    assert len({str(config) for config in tried}) == len(set(tried))
    assert len(pairs) >= 8
    assert any(c.cluster == (2, 2) for c in tried)


def test_contenders_are_near_the_first_and_of_several_kinds() -> None:
    """The picker's choice comes first, others are legal and within 15 % of it by the model; rows of a gemv get six."""
    workload = sweep.workload_of("530x664x10752 bf16→bf16 k/k")
    tried = list(dict.fromkeys(sweep_configs.contenders(workload)))
    times = sweep.model_clocks(tried, workload)
    assert tried[0] == sweep_configs.choice(workload)
    assert all(config.legal(SM_90A, workload.spec) for config in tried)
    assert max(times.values()) <= 1.16 * times[tried[0]]
    assert len({(c.swap_ab, c.cluster, c.split_k) for c in tried}) >= 5
    assert len(tried) <= 14
    assert len(list(sweep_configs.contenders(sweep.workload_of("4x4096x4096 bf16→bf16 k/k")))) == 6


def test_a_case_is_read_by_its_name() -> None:
    """Shape, types, majors and padding come back from what a sweep writes."""
    for case in select(["random"], 80, seed=3):
        workload = case.workload
        if isinstance(workload, MatmulWorkload) and not workload.fused:
            assert sweep.workload_of(f"{workload.label} {workload.kind}") == workload
    odd = MatmulWorkload(1000, 1000, 1000, padded=False)
    assert sweep.workload_of(f"{odd.label} {odd.kind}") == odd


def test_choices_for_groups_are_judged() -> None:
    """Of each kept set of groups the model's first was timed; it is hardly slower than the best on average."""
    files = Path(groups_sweep.__file__).parent.glob("results/h200-*-groups*.json.gz")
    cases = [case for file in files for case in json.loads(gzip.decompress(file.read_bytes()))]
    for kind, count, most in (("bf16→bf16", 155, 1.04), ("blocks", 33, 1.025)):
        chosen = [groups_sweep.judged(case) for case in cases if kind in case["case"]]
        losses = [verdict[0] for verdict in chosen if verdict]
        assert len(losses) == count
        assert min(losses) >= 1
        assert np.exp(np.log(losses).mean()) < most
