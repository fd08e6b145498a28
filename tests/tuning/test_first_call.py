"""Tuning at the first call, with processes that only pretend to measure: what is kept, and what goes wrong."""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilekit.dtypes import F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.picker import pick, ranked
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.settings import Settings, settings
from tilekit.targets import SM_90A
from tilekit.tuning import first_call, lookup, tuner
from tilekit.tuning.table import Measurement, Problem, TunedTable

DEVICE = "NVIDIA H200"
SPEC = MatmulSpec()
SHAPE = {"m": 256, "n": 512, "k": 128, "batches": 1}
THIRD = """
import json, sys
for index, _ in enumerate(json.load(sys.stdin)["configs"]):
    print(json.dumps({"index": index, "seconds": 1e-6 if index == 2 else 2e-6}), flush=True)
"""
"""The third is the quickest."""


class Started:
    """Counts the processes that are started, and starts `program` in their place."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, _command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", self.program]
        self.processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True))
        return self.processes[-1]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Started]:
    """Start a program in the place of processes that measure, with an empty table and nothing timed yet."""
    monkeypatch.setattr(first_call, "_timed", set())
    table = TunedTable(DEVICE, SM_90A, tmp_path / "tuned")
    for module in (first_call, lookup):
        monkeypatch.setattr(module, "table_of", lambda _device, _target: table)

    def started(program: str) -> Started:
        found = Started(program)
        monkeypatch.setattr(tuner, "_start", found)
        return found

    return started


def _ask(spec: MatmulSpec = SPEC, **changes: int) -> Any:
    with settings.override(tuning="first call"):
        return first_call.tuned_or_timed(spec, SM_90A, DEVICE, **(SHAPE | changes))


def _third() -> Any:
    return [e.config for e in ranked(SPEC, SM_90A, **SHAPE)][2]


def test_the_quickest_is_kept_and_nothing_is_timed_twice(start: Callable[[str], Started], tmp_path: Path) -> None:
    """The second call, one with a bias, and another process's table have it without a process that measures."""
    started = start(THIRD)
    assert _ask() == _third() != pick(SPEC, SM_90A, m=256, n=512, k=128)
    assert _ask() == _third()
    assert _ask(MatmulSpec(functions=ElementwiseSpec(bias=F32))) == _third()
    assert len(started.processes) == 1
    assert TunedTable(DEVICE, SM_90A, tmp_path / "tuned").best(Problem.of(SPEC, **SHAPE)) == _third()


def test_it_is_off_by_default(start: Callable[[str], Started]) -> None:
    """Nothing is started, and the model picks."""
    started = start(THIRD)
    assert settings.tuning == "off"
    assert first_call.tuned_or_timed(SPEC, SM_90A, DEVICE, **SHAPE) is None
    assert not started.processes


def test_the_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each door."""
    for value in ("first_call", "on", 1, None, ["first call"]):
        with pytest.raises(ArgumentError, match="'off' or 'first call'"):
            settings.tuning = value  # type: ignore[assignment]
    monkeypatch.setenv("TILEKIT_TUNING", "first call")
    assert Settings().tuning == "first call"
    monkeypatch.setenv("TILEKIT_TUNING", "yes")
    with pytest.raises(ArgumentError, match="TILEKIT_TUNING"):
        _ = Settings().tuning


def test_a_failure_warns_once_and_leaves_the_choice_to_the_model(start: Callable[[str], Started]) -> None:
    """Processes that end at once: as many as candidates, and no more at the next call."""
    started = start("import sys; sys.exit(3)")
    with pytest.warns(RuntimeWarning, match=r"256x512x128 .* was not tuned at its first call \(.*code 3"):
        assert _ask() is None
    assert len(started.processes) == first_call.CANDIDATES
    assert _ask() is None
    assert len(started.processes) == first_call.CANDIDATES


def test_processes_that_cannot_be_started(start: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a warning too."""
    start(THIRD)

    def refuse(_command: list[str]) -> subprocess.Popen[str]:
        raise OSError("no more processes")

    monkeypatch.setattr(tuner, "_start", refuse)
    with pytest.warns(RuntimeWarning, match="no more processes"):
        assert _ask() is None


def test_an_interrupt_ends_the_process_and_keeps_nothing(
    start: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The interrupt is the caller's; no line is written, no process is left."""
    started = start("import sys, time; sys.stdin.read(); time.sleep(60)")

    def interrupted(self: Any, config: Any, patience: float) -> Measurement:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner._Answers, "next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ask()
    assert [process.poll() is not None for process in started.processes] == [True]
    assert not (tmp_path / "tuned").exists()


def test_what_was_interrupted_is_timed_at_the_next_call(
    start: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt is no failure of the problem's: the same process may try again."""
    started = start(THIRD)
    following = tuner._Answers.next

    def interrupted(self: Any, config: Any, patience: float) -> Measurement:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner._Answers, "next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ask()
    monkeypatch.setattr(tuner._Answers, "next", following)
    assert _ask() == _third()
    assert len(started.processes) == 2


def test_two_threads_time_a_problem_once(start: Callable[[str], Started]) -> None:
    """The second waits for the first one's times."""
    started = start(THIRD)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(_ask())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [_third()] * 4
    assert len(started.processes) == 1


def test_a_folder_that_cannot_be_written(
    start: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The times last as long as the process, and a warning says so."""
    start(THIRD)
    (tmp_path / "file").write_text("")
    table = TunedTable(DEVICE, SM_90A, tmp_path / "file")
    for module in (first_call, lookup):
        monkeypatch.setattr(module, "table_of", lambda _device, _target: table)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert _ask() == _third()
    assert _ask() == _third()


def test_a_full_disk(start: Callable[[str], Started], tmp_path: Path) -> None:
    """Of a write that the system cuts short a warning tells, as of one that it refuses; what is there stays whole."""
    start(THIRD)
    _add(tmp_path / "tuned", range(8, 16, 8))
    path = TunedTable(DEVICE, SM_90A, tmp_path / "tuned").path
    whole = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, limits[1]))
    try:
        with pytest.warns(RuntimeWarning, match="cannot be written"):
            assert _ask() == _third()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _ask() == _third()
    assert path.read_bytes().startswith(whole)
    with pytest.warns(RuntimeWarning, match=r"1 line\(s\)"):
        _add(tmp_path / "tuned", range(16, 24, 8))
    with pytest.warns(RuntimeWarning, match=r"1 line\(s\)"):
        assert len(TunedTable(DEVICE, SM_90A, tmp_path / "tuned")) == 2


def test_another_cache_folder_has_another_table(tmp_path: Path) -> None:
    """What was found in one folder is not taken, nor kept, where the settings name another."""
    with settings.override(cache_dir=tmp_path / "one"):
        first = lookup.table_of(DEVICE, SM_90A)
        assert lookup.table_of(DEVICE, SM_90A) is first
    with settings.override(cache_dir=tmp_path / "other"):
        assert lookup.table_of(DEVICE, SM_90A).path.is_relative_to(tmp_path / "other")
    assert first.path.is_relative_to(tmp_path / "one")


def test_what_no_workload_is_like_is_left_to_the_model(start: Callable[[str], Started]) -> None:
    """Groups, operands that threads copy by 8 bytes, and an empty product."""
    started = start(THIRD)
    assert _ask(MatmulSpec(groups="ends")) is None
    assert _ask(MatmulSpec(a_load=8)) is None
    assert _ask(m=0) is None
    assert not started.processes


def test_batches_and_arrays_without_padding_are_timed(start: Callable[[str], Started]) -> None:
    """As the benchmark's workloads have them."""
    started = start(THIRD)
    assert _ask(MatmulSpec(batched=True), batches=3) is not None
    assert _ask(MatmulSpec(a_dtype="f32", b_dtype="f32", out_dtype="f32", precision="tf32")) is not None
    assert _ask(MatmulSpec(a_major="mn", b_major="mn")) is not None
    assert len(started.processes) == 3


def _add(folder: Path, widths: range) -> None:
    table = TunedTable(DEVICE, SM_90A, folder)
    for n in widths:
        problem = Problem.of(SPEC, **(SHAPE | {"n": n}))
        table.add(problem, [Measurement(MatmulConfig(tile=(128, w)), 1e-6 * w) for w in range(64, 256, 8)])


def test_two_processes_that_write_at_once_leave_whole_lines(tmp_path: Path) -> None:
    """Every line of both is read again."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add, args=(tmp_path, range(first, 4000, 200))) for first in (8, 16, 24)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(TunedTable(DEVICE, SM_90A, tmp_path)) == 3 * 20


def test_an_empty_line_is_nothing(tmp_path: Path) -> None:
    """A process that appends while another's line is half there begins a new one; nothing is lost or warned of."""
    _add(tmp_path, range(8, 16, 8))
    path = TunedTable(DEVICE, SM_90A, tmp_path).path
    path.write_bytes(b"\n" + path.read_bytes() + b"\n\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(TunedTable(DEVICE, SM_90A, tmp_path)) == 1


def test_a_broken_last_line_costs_no_other(tmp_path: Path) -> None:
    """What is added behind it begins on a line of its own."""
    _add(tmp_path, range(8, 16, 8))
    path = TunedTable(DEVICE, SM_90A, tmp_path).path
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole.splitlines()[0]) // 2])
    with pytest.warns(RuntimeWarning, match=r"1 line\(s\)"):
        _add(tmp_path, range(16, 24, 8))
    with pytest.warns(RuntimeWarning, match=r"1 line\(s\)"):
        assert len(TunedTable(DEVICE, SM_90A, tmp_path)) == 2
    assert json.loads(path.read_text().splitlines()[-1])["n"] == 16
