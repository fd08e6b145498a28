"""What a worker measures, and what tuning makes of it, on a simulated machine: single shapes and whole suites."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilekit
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.suites import SUITES, select
from tilekit.bench.workload import MatmulWorkload
from tilekit.cli.app import app
from tilekit.kernels.gemv.picker import MOST_TOKENS
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import candidates, pick, ranked, variants
from tilekit.kernels.matmul.sm_90a.candidates import (
    CANDIDATES,
    SMALL_TILE,
    TUNING_CANDIDATES,
    tuning_candidates,
)
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.targets import SM_90A
from tilekit.tuning import suite, tuner, worker
from tilekit.tuning.table import Measurement, TunedTable

WORKLOAD = MatmulWorkload(96, 80, 64)
CONFIGS = [MatmulConfig(tile=(64, n), cluster=(1, 1), consumers=1) for n in (64, 96, 128, 160)]


def compiled(machine: SimulatedMachine, microseconds: Callable[[MatmulConfig], float]) -> Any:
    """A stand-in for `tilekit.compile`: computes right but for tiles of 96 columns, and refuses those of 160."""

    def compile_(spec: Any, target: str, config: MatmulConfig) -> Any:
        if config.tile[1] == 160:
            raise MemoryError("does not fit")

        def bind(a: Any, b: Any, out: Any) -> Callable[[], None]:
            def plan() -> None:
                machine.spend(microseconds(config) * 1e-6)
                out[...] = a.astype(np.float32) @ b.astype(np.float32) + (config.tile[1] == 96)

            return plan

        return SimpleNamespace(bind=bind, assembled=None)

    return compile_


def test_a_worker_checks_results_and_times_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong and refused candidates are told with their reason; the others are timed again, in orders that differ."""
    machine = SimulatedMachine()
    monkeypatch.setattr(worker, "OPERAND_BYTES", 1)
    monkeypatch.setattr(tilekit, "compile", compiled(machine, lambda config: config.tile[1]))
    request = json.loads(json.dumps(tuner.request(WORKLOAD, SM_90A, [*CONFIGS, *CONFIGS[:1], *CONFIGS[2:3]])))
    found = list(worker.answers(machine, request))
    first, again = found[:6], found[6:]
    assert [answer["index"] for answer in first] == list(range(6))
    assert "wrong result" in first[1]["failure"]
    assert "does not fit" in first[3]["failure"]
    rounds = [again[i : i + 4] for i in range(0, len(again), 4)]
    assert len(rounds) == worker.ROUNDS
    orders = [[answer["index"] for answer in each] for each in rounds]
    assert all(sorted(order) == [0, 2, 4, 5] for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    for answer in (*again, first[0], first[2]):
        assert answer["seconds"] == pytest.approx({0: 64e-6, 2: 128e-6, 4: 64e-6, 5: 128e-6}[answer["index"]])


TALKATIVE = """
import json, sys
request = json.load(sys.stdin)
for index, seconds in ((0, 5), (1, 2), (1, 9), (0, 1), (0, 2), (1, 3)):
    print(json.dumps({"index": index, "seconds": seconds}), flush=True)
"""


def test_the_median_of_all_times_counts() -> None:
    """A process that goes on about candidates after it has answered for each is listened to."""

    def start(_command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", TALKATIVE], stdin=pipe, stdout=pipe, text=True)

    shown: list[Measurement] = []
    found = tuner.measure(WORKLOAD, SM_90A, CONFIGS[:2], patience=20, progress=shown.append, start=start)
    assert [m.seconds for m in shown] == [5, 2]
    assert [m.seconds for m in found] == [2, 3]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TunedTable:
    """A GPU where widths cost their columns, turns save a tenth, prefetched blocks 1 %; measured in this process."""

    def microseconds(config: KernelConfig) -> float:
        assert isinstance(config, MatmulConfig)
        return config.tile[1] * (0.9 if config.pingpong else 1.0) * (1 - config.prefetch / 100)

    def measure(workload: Any, chip: Any, configs: list[KernelConfig], **_: Any) -> list[Measurement]:
        return [Measurement(config, microseconds(config) * 1e-6) for config in configs]

    device = SimpleNamespace(name="Simulated GPU", sms=132, compute_capability=(9, 0))
    table = TunedTable(device.name, SM_90A, tmp_path)
    monkeypatch.setattr(driver, "why_unavailable", lambda: None)
    monkeypatch.setattr(driver, "devices", lambda: [device])
    monkeypatch.setattr(tuner, "measure", measure)
    monkeypatch.setattr(tuner, "table_of", lambda _device, _chip: table)
    return table


def test_tuning_tries_what_the_picker_leaves_alone(simulated: TunedTable) -> None:
    """The picker chooses among what was timed; tuning measures half as many others, and says how they compare."""
    spec, shape = WORKLOAD.spec, {"m": 2048, "n": 2048, "k": 512}
    fresh = [e.config for e in ranked(spec, SM_90A, **shape, tuning=True)]
    assert not set(fresh) & set(candidates(spec, SM_90A))
    assert not set(CANDIDATES) & set(TUNING_CANDIDATES)
    assert {c.tile for c in TUNING_CANDIDATES if c.pingpong} >= {(64, n) for n in range(64, 257, 64)}
    result = tuner.tune_workload(MatmulWorkload(2048, 2048, 512), candidates=7)
    measured = {m.config for m in result.measurements}
    assert len(result.measurements) == len(measured) >= 7 + 4 + 4
    assert set(fresh[:4]) < set(result.tuning_candidates) < measured
    quickest = result.best.config
    assert isinstance(quickest, MatmulConfig)
    assert quickest.prefetch == 4
    assert set(result.tuning_candidates) - set(fresh) == set(variants(quickest.changed(prefetch=2), spec, SM_90A))
    assert result.picked == pick(spec, SM_90A, **shape)
    times = {m.config: m.seconds for m in result.measurements}
    best = min(times[c] for c in times if c not in result.tuning_candidates)
    assert result.tuning_gain == pytest.approx(best / min(times[c] for c in result.tuning_candidates))
    assert result.gain == pytest.approx(times[result.picked] / min(times.values()))
    assert str(result).count("(the model picks it)") == 1
    assert str(result).count("(only tuning tries it)") == len(result.tuning_candidates)
    kept = simulated.best(result.problem)
    assert kept is not None
    assert times[kept] == result.best.seconds


def test_every_spare_config_is_legal_somewhere() -> None:
    """No tile that tuning may try is refused for the plain bf16 product."""
    found: list[Any] = [e.config for e in ranked(WORKLOAD.spec, SM_90A, m=9, n=9, k=9, tuning=True)]
    bases = {(c.tile, c.schedule) for c in TUNING_CANDIDATES}
    plain = [c for c in found if c.cluster_k == 1 and c.output_buffers == 2 and c.cluster != (2, 2)]
    assert {(c.tile, c.schedule) for c in plain} == bases
    whole = [c for c in CANDIDATES if not (c.m_below_atom or c.pingpong)]
    small = {c.tile for c in whole if c.tile[0] * c.tile[1] <= SMALL_TILE}
    for layers in (2, 4, 8):
        known = {c.tile for c in candidates(WORKLOAD.spec, SM_90A) if c.cluster_k == layers}
        tried = {c.tile for c in found if c.cluster_k == layers} | known
        assert {tile for tile in small if tile[1] % (8 * layers) == 0} <= tried <= small


@pytest.mark.parametrize("major", ["k", "mn"])
def test_tuning_tries_deeper_rings(major: Any) -> None:
    """Stores have one buffer where that makes room for a stage, as those picked from have in short rings alone."""
    spec = MatmulSpec(a_major=major, b_major=major)
    found = tuning_candidates(spec, SM_90A)
    deeper = [c for c in found if c.output_buffers == 1 and not c.stream_k]
    assert {(128, 192), (128, 136)} <= {c.tile for c in deeper}
    assert {(192, 96), (192, 176)} <= {c.tile for c in candidates(spec, SM_90A) if c.output_buffers == 1}
    for c in deeper:
        assert c.resolved_stages(SM_90A, spec) > replace(c, output_buffers=2).resolved_stages(SM_90A, spec)
    assert not set(found) & set(candidates(spec, SM_90A))


@pytest.mark.usefixtures("simulated")
def test_a_suite_is_tuned_and_summed_up() -> None:
    """Each case is a line of a table; suites end with means, wins of what only tuning tries, and what is left out."""
    every = select(["squares-small", "decode", "grouped"])
    assert len(suite.tunable([*every, *select(["random"], 60)])) < len(every) + 60  # not what is fused
    cases = [case for case in suite.tunable(every) if case[0] != "grouped" and case[1].m > MOST_TOKENS]
    assert len(suite.tunable(every)) == len(every) > len(cases)
    seen: list[suite.TunedCase] = []
    done = suite.tune_suite(cases[:5], candidates=6, progress=seen.append)
    assert seen == done
    assert [case.workload for case in done] == [workload for _, workload in cases[:5]]
    for case in done:
        assert str(case).count("|") == suite.HEAD.splitlines()[0].count("|")
        assert case.workload.label in str(case)
    text = suite.summary(done, 2)
    gains = [case.result.gain for case in done if case.suite == "decode"]
    assert f"{np.exp(np.mean(np.log(gains))):.3f} of the quickest's time, {max(gains):.3f} at worst" in text
    assert "what only tuning tries wins" in text
    winners = [line for line in text.splitlines() if line.startswith("    ")]
    assert len(winners) == sum((case.result.tuning_gain or 0) > 1 for case in done) > 0
    fresh = {str(config) for case in done for config in case.result.tuning_candidates}
    assert all(line.split(maxsplit=2)[2] in fresh for line in winners)
    gains = [case.result.gain for case in done]
    assert f"all: 5 case(s), the model's choice takes {np.exp(np.mean(np.log(gains))):.3f} of" in text
    assert text.endswith("2 case(s) left out, time was up")
    assert suite.tune_suite(cases[:5], candidates=6, seconds=-1) == []


def test_a_suite_in_which_nothing_runs(simulated: TunedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every candidate fails, table and summary say so."""
    monkeypatch.setattr(tuner, "measure", lambda w, c, configs, **_: [Measurement(x, None, "lost") for x in configs])
    done = suite.tune_suite([("odd", WORKLOAD)], candidates=2)
    assert "no candidate ran: lost" in str(done[0])
    assert suite.summary(done) == "odd: no candidate ran"


@pytest.mark.usefixtures("simulated")
def test_the_command() -> None:
    """`tilekit tune --suite` prints a table and a summary, or JSON with every time."""
    words = ["tune", "matmul", "--suite", "squares-small", "--sample", "2", "--candidates", "4"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert made.output.startswith("| case |")
    assert "squares-small: 2 case(s), the model's choice takes" in made.output
    made = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(made.output)
    assert found["left_out"] == 0
    assert all(len(case["measured"]) >= 6 + 4 for case in found["cases"])
    assert {case["suite"] for case in found["cases"]} == {"squares-small"} <= set(SUITES)
    assert sum(row["picked"] for row in found["cases"][0]["measured"]) == 1
    made = CliRunner().invoke(app, ["tune", "matmul", "--shape", "256x256x256", "--candidates", "2", "--json"])
    rows = json.loads(made.output)[0]["measured"]
    assert [row["spare"] for row in rows].count(False) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--shape"),
        (["--shape", "64x64x64", "--suite", "odd"], "one of --shape and --suite"),
        (["--shape", "64x64x64", "--sample", "3"], "with --suite only"),
        (["--suite", "od"], "nearest legal: 'odd'"),
        (["--suite", "odd", "--part", "5"], "I/N"),
    ],
)
def test_wrong_options(words: list[str], says: str) -> None:
    """Options that do not go together, or name nothing, are refused with what is legal."""
    made = CliRunner().invoke(app, ["tune", "matmul", *words])
    assert made.exit_code != 0
    assert says in made.output.replace("\n", " ")
