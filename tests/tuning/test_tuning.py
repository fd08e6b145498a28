"""Tuning without a GPU: a candidate that hangs or crashes is recorded, the table survives whatever is in it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import F32
from tilekit.epilogue import row_sum
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, DriverError
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.targets import SM_90A
from tilekit.tuning import lookup, tuner
from tilekit.tuning.table import Measurement, Problem, TunedTable, config_of

CONFIGS = [MatmulConfig(tile=(128, n), stages=3) for n in (64, 96, 128, 160)]
SPEC = MatmulSpec()
SHAPE = {"m": 256, "n": 512, "k": 128, "batches": 1}
PROBLEM = Problem.of(SPEC, **SHAPE)

FAKE = """
import json, sys, time
request = json.load(sys.stdin)
for index, config in enumerate(request["configs"]):
    n = config["tile"][1]
    if n == 96: time.sleep(60)
    if n == 128: sys.exit(7)
    print("noise from a library")
    answer = {"index": index, "seconds": n * 1e-6} if n < 160 else {"index": index, "failure": "no"}
    print(json.dumps(answer), flush=True)
"""


def _fake(_command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_candidates_that_hang_crash_or_fail_do_not_stop_the_others() -> None:
    """Each is recorded with what happened to it, and a new process goes on with the next one."""
    workload = MatmulWorkload(256, 512, 128)
    found = tuner.measure(workload, SM_90A, CONFIGS, patience=0.5, start=_fake)
    assert [m.config for m in found] == CONFIGS
    assert found[0].seconds == pytest.approx(64e-6)
    assert "stopped" in found[1].failure
    assert "code 7" in found[2].failure
    assert (found[3].seconds, found[3].failure) == (None, "no")


def test_the_table_is_read_again(tmp_path: Path) -> None:
    """The quickest of a problem is found by another process's table, tiles and clusters as tuples again."""
    TunedTable("NVIDIA H200", SM_90A, tmp_path).add(
        PROBLEM, [Measurement(CONFIGS[0], 3e-6), Measurement(CONFIGS[1], 2e-6), Measurement(CONFIGS[2], None, "hung")]
    )
    again = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    assert again.best(PROBLEM) == CONFIGS[1]
    assert again.best(Problem.of(SPEC, **{**SHAPE, "m": 257})) is None
    assert again.path.name == "nvidia-h200.jsonl"
    assert Problem.of(MatmulSpec(functions=ElementwiseSpec(bias=F32, activation="gelu")), **SHAPE) == PROBLEM


def test_the_quickest_that_a_call_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals are of upright tiles: of what was measured they take the quickest of these, and other calls any."""
    monkeypatch.setattr(lookup, "table_of", lambda device, target: table)
    table = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    swapped, upright, slower = (
        replace(CONFIGS[0], tile=(128, 64), swap_ab=swap, raster_group=group)
        for swap, group in ((True, None), (False, None), (False, 4))
    )
    times = {swapped: 1e-6, slower: 3e-6, upright: 2e-6}
    table.add(PROBLEM, [Measurement(config, seconds) for config, seconds in times.items()])
    shape = {name: SHAPE[name] for name in ("m", "n", "k", "batches")}
    assert lookup.tuned_config(SPEC, SM_90A, "NVIDIA H200", **shape) == swapped
    a, b = (np.empty(extents, ml_dtypes.bfloat16) for extents in ((SHAPE["m"], SHAPE["k"]), (SHAPE["n"], SHAPE["k"])))
    summed = tilekit.kernel_for(a, b.T, epilogue=tilekit.epilogue(lambda x: (x, row_sum(x)))(), target="sm_90a").spec
    assert lookup.tuned_config(summed, SM_90A, "NVIDIA H200", **shape) == upright


def test_a_config_measured_again(tmp_path: Path) -> None:
    """What is measured last counts for its config, slower or not; of two that are as quick, the later one."""
    table = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    first, second, third = CONFIGS[:3]
    table.add(PROBLEM, [Measurement(first, 1e-6), Measurement(second, 2e-6)])
    assert table.best(PROBLEM) == first
    table.add(PROBLEM, [Measurement(first, 3e-6), Measurement(second, 2e-6)])
    assert table.best(PROBLEM) == second
    table.add(PROBLEM, [Measurement(third, 2e-6)])
    assert table.best(PROBLEM) == third
    table.add(PROBLEM, [Measurement(first, 2.5e-6)])
    assert table.best(PROBLEM) == third
    assert TunedTable("NVIDIA H200", SM_90A, tmp_path).best(PROBLEM) == third


def test_the_first_candidate_of_a_process_has_three_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process starts before its first answer: only that one is waited for longer, in each process."""
    given: list[float] = []
    wait = tuner._Answers.next

    def note(self: Any, config: Any, patience: float) -> Measurement:
        given.append(patience)
        return wait(self, config, patience)

    monkeypatch.setattr(tuner._Answers, "next", note)
    tuner.measure(MatmulWorkload(256, 512, 128), SM_90A, CONFIGS, patience=0.5, start=_fake)
    # 64 answers and 96 hangs in the first process; 128 ends the second one, and 160 is the third one's.
    assert given == [1.5, 0.5, 1.5, 1.5]


def test_a_table_damaged_in_any_way(tmp_path: Path) -> None:
    """Whatever stands in the file, what can be read counts, and reading raises nothing."""
    chance = random.Random(11)
    whole = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    whole.add(PROBLEM, [Measurement(CONFIGS[0], 3e-6), Measurement(CONFIGS[1], 2e-6), Measurement(CONFIGS[2], None)])
    lines = whole.path.read_bytes().splitlines()
    odd: list[Any] = [
        None,
        7,
        -1,
        1.5,
        float("nan"),
        float("inf"),
        "x",
        [],
        [1],
        {},
        {"a": 1},
        True,
        "9" * 5000,
        [[64]],
    ]
    texts = [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null\n7\n[]\n{}",
        bytes(1000),
        b'{"version":1e999}',
        b"\n".join(lines[::-1]),
    ]
    for _ in range(150):
        values = json.loads(chance.choice(lines))
        target = values["config"] if chance.random() < 0.4 else values
        target[chance.choice(list(target))] = chance.choice(odd)
        texts.append(json.dumps(values).encode())
    for _ in range(150):
        damaged = bytearray(chance.choice(lines))
        for _ in range(chance.choice((1, 2, 9))):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.choice((0, 1, 5))] = bytes(
                chance.randrange(256) for _ in range(chance.choice((0, 1)))
            )
        texts.append(bytes(damaged))
    for text in texts:
        whole.path.write_bytes(text + b"\n" + lines[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = TunedTable("NVIDIA H200", SM_90A, tmp_path).best(PROBLEM)
        assert isinstance(found, MatmulConfig), text[:300]
        found.problems("sm_90a")


def test_lines_of_another_device_or_version_are_passed_over(tmp_path: Path) -> None:
    """They, and what is no line at all, are counted and ignored."""
    table = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    table.add(PROBLEM, [Measurement(CONFIGS[0], 3e-6)])
    line = json.loads(table.path.read_text())
    others = [{**line, "version": "0.0.1", "seconds": 1e-9}, {**line, "device": "NVIDIA H100", "seconds": 1e-9}]
    bad = ["{", "[]", json.dumps({**line, "config": {"tile": [1, 2], "nonsense": 3}})]
    with table.path.open("a") as file:
        file.write("\n".join([*map(json.dumps, others), *bad]) + "\n")
    with pytest.warns(RuntimeWarning, match=r"5 line\(s\) of another device, or of a tilekit that is not"):
        again = TunedTable("NVIDIA H200", SM_90A, tmp_path)
    assert again.passed_over == 5
    assert again.best(PROBLEM) == CONFIGS[0]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A warning says so, and the measurements count in this process."""
    (tmp_path / "file").write_text("")
    table = TunedTable("NVIDIA H200", SM_90A, tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        table.add(PROBLEM, [Measurement(CONFIGS[0], 3e-6)])
    assert table.best(PROBLEM) == CONFIGS[0]


def test_a_config_that_this_spec_cannot_have_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tuned without a bias is taken with one only where it can be built."""
    table = TunedTable("x", SM_90A, tmp_path)
    wide = MatmulConfig(tile=(256, 192), cluster=(1, 2), in_flight=0)
    table.add(PROBLEM, [Measurement(wide, 3e-6)])
    monkeypatch.setattr(lookup, "table_of", lambda _device, _target: table)
    assert lookup.tuned_config(SPEC, SM_90A, "x", **SHAPE) == wide
    assert lookup.tuned_config(MatmulSpec(functions=ElementwiseSpec(bias=F32)), SM_90A, "x", **SHAPE) is None


def test_configs_survive_json() -> None:
    """Every field comes back as it was."""
    config = MatmulConfig(tile=(192, 128), cluster=(1, 2), consumers=3, prefetch=3, raster_order="n", raster_group=4)
    fields: Any = {name: getattr(config, name) for name in config.__dataclass_fields__}
    assert config_of("matmul", json.loads(json.dumps(fields)), SM_90A) == config
    rows = GemvConfig(groups=2, warps=4, prefetch=0)
    assert config_of("gemv", json.loads(json.dumps(asdict(rows))), SM_90A) == rows
    with pytest.raises(ArgumentError, match="family"):
        config_of("sums", {}, SM_90A)


def test_wrong_arguments() -> None:
    """No candidates, and no GPU, are named."""
    with pytest.raises(ArgumentError, match="candidates"):
        tilekit.tune(64, 64, 64, candidates=0)
    if driver.why_unavailable() is not None:
        with pytest.raises(DriverError, match="tuning needs a GPU"):
            tilekit.tune(64, 64, 64)


@pytest.mark.gpu
def test_tuning_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real candidates, measured in a process apart; the quickest is what matmul takes."""
    if driver.why_unavailable() or driver.devices()[0].compute_capability != (9, 0):
        pytest.skip("needs a GPU of capability 9.0")
    table = TunedTable(driver.devices()[0].name, SM_90A, tmp_path)
    for module in (tuner, lookup):
        monkeypatch.setattr(module, "table_of", lambda _device, _target: table)
    result = tilekit.tune(512, 1024, 512, candidates=4)
    assert len(result.measurements) > 4 + 2  # those of the model, half as many that it leaves alone, and variants
    assert all(m.seconds is not None for m in result.measurements), str(result)
    assert result.gain >= 1
    assert (
        lookup.tuned_config(SPEC, SM_90A, driver.devices()[0].name, m=512, n=1024, k=512, batches=1)
        == result.best.config
    )
