"""How the command line speaks: options for arguments, rows that fit, no GPU in one line, what is shown meanwhile."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from tilekit.cli import progress, tables
from tilekit.cli.words import in_options
from tilekit.runtime import driver
from tilekit.runtime.emulated import watched


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("activation='foo': choose one", "--activation foo: choose one"),
        ("m: given 0; legal: 1", "--m: given 0; legal: 1"),
        ("  - stages=99: 2 to 4 fit; nearest: stages=4", "  - --stages 99: 2 to 4 fit; nearest: --stages 4"),
        ("nearest: tile=(128, 104)", "nearest: --tile 128x104"),
        ("a_major: given 'q'", "--a-major: given 'q'"),
        ("groups=3 with 64 channels", "--groups 3 with 64 channels"),
        ("a has K=384 columns; split_k=2; x.m=3", "a has K=384 columns; split_k=2; x.m=3"),
        ("TILEKIT_EMULATOR_LIMIT=7 and --dtype tf32", "TILEKIT_EMULATOR_LIMIT=7 and --dtype tf32"),
    ],
)
def test_arguments_become_options(said: str, meant: str) -> None:
    """What has an option of its name is called by it, and nothing else changes."""
    assert in_options(said) == meant


def test_too_long_is_said_without_python(invoke: Any) -> None:
    """The way out is a variable of the environment, not a context manager."""
    result = invoke("run", "matmul", "--device", "emulator", "--m", 100000, "--n", 100000, "--k", 1000)
    assert result.exit_code == 2
    assert "TILEKIT_EMULATOR_LIMIT=" in result.output
    assert "with tilekit" not in result.output


def test_rows_fit_and_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have 80 columns where there is no terminal, and no line ends in spaces."""
    monkeypatch.setenv("COLUMNS", "80")
    tables.print_facts("title", {"short": "one", "long": "word " * 40})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    row = tables.wrapped("name", "word " * 40, 10).splitlines()
    assert len(row) > 2
    assert all(len(line) <= 80 for line in row)


def test_doctor_fits(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines fit 80 columns but for words, such as paths, that are longer themselves."""
    monkeypatch.setenv("COLUMNS", "80")
    for line in invoke("doctor").output.splitlines():
        assert len(line) <= 80 or len(line.split()[-1]) > 40, line


@pytest.mark.parametrize("what", ["ranking", "explain", "resources"])
def test_what_is_dumped_fits(invoke: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Rankings and descriptions have 80 columns too, and lose nothing."""
    wide = invoke("dump", "matmul", "--what", what, *(("--top", 4) if what == "ranking" else ())).output
    monkeypatch.setenv("COLUMNS", "80")
    narrow = invoke("dump", "matmul", "--what", what, *(("--top", 4) if what == "ranking" else ())).output
    assert all(len(line) <= 80 for line in narrow.splitlines())
    assert narrow.split() == wide.split()


def test_no_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver there is one short reason, with the bindings installed or not."""
    driver.bindings.cache_clear()
    why = driver.why_unavailable()
    if why is None:
        pytest.skip("there is a GPU")
    assert why == "no NVIDIA driver on this machine"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal that keeps what is drawn, and no patience."""
    drawn = io.StringIO()
    monkeypatch.setattr(
        progress, "_terminal", lambda as_json: None if as_json else Console(file=drawn, force_terminal=True)
    )
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    return drawn


def test_waiting_says_what_is_done(terminal: io.StringIO) -> None:
    """What takes long is named; what is quick, and JSON, draw nothing."""
    with progress.waiting("assembling", as_json=False):
        time.sleep(0.3)
    assert "assembling" in terminal.getvalue()
    terminal.truncate(0)
    with progress.waiting("assembling", as_json=True):
        time.sleep(0.05)
    assert not terminal.getvalue()


def test_launches_inside_report_how_far_they_are(terminal: io.StringIO) -> None:
    """A launch through tilekit.matmul moves the bar that was opened around it."""
    import numpy as np

    import tilekit

    a = np.ones((512, 256), np.float16)
    seen = []
    with watched(lambda done, total, seconds: seen.append((done, total))):
        tilekit.matmul(a, a.T)
    assert seen
    assert all(0 <= done <= total for done, total in seen)
    seen.clear()
    tilekit.matmul(a, a.T)
    assert not seen


def test_a_bar_is_drawn_where_it_takes_long(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar appears once the patience is at its end, and not before."""
    with progress.progress_bar("CTAs", as_json=False) as advance:
        assert advance is not None
        advance(1, 4, 0.0)
        time.sleep(0.3)
    assert "CTAs" in terminal.getvalue()
    terminal.truncate(0)
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with progress.progress_bar("CTAs", as_json=False) as advance:
        assert advance is not None
        advance(1, 4, 0.0)
    assert not terminal.getvalue()
