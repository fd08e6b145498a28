"""What a terminal shows while a command takes long: nothing at first, and never in a pipe."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tilekit.cli import app, progress
from tilekit.emulator.ptx.lint import lint as linting

PATIENT = 0.1


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is drawn on a terminal that is shown things early."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "_terminal", lambda as_json: None if as_json else console)
    monkeypatch.setattr(progress, "PATIENCE", PATIENT)
    return screen


def test_a_bar_from_before_the_first_of_them(shown: io.StringIO) -> None:
    """A kernel is traced and assembled before its first cluster is done: the bar is there by then, then it counts."""
    with progress.progress_bar("clusters", False) as advance:
        assert advance is not None
        time.sleep(4 * PATIENT)
        early = shown.getvalue()
        advance(3, 7, 1.0)
        time.sleep(3 * PATIENT)
    assert "clusters" in early
    assert "3/7" in shown.getvalue()


def test_what_is_quick_shows_nothing(shown: io.StringIO) -> None:
    """Neither a bar nor a word, and JSON never has one."""
    with progress.progress_bar("clusters", False) as advance, progress.waiting("assembling", False):
        assert advance is not None
        advance(1, 2, 0.01)
    with progress.progress_bar("clusters", True) as advance:
        assert advance is None
    assert shown.getvalue() == ""


def test_a_long_check_of_a_file_is_shown(shown: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tilekit lint` says what it is doing once it takes long; its own lines are what they were."""
    file = tmp_path / "long.ptx"
    file.write_text(Path("examples/double.ptx").read_text("utf-8"), "utf-8")
    lint = linting.lint

    def slow(*arguments: object) -> object:
        time.sleep(4 * PATIENT)
        return lint(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(linting, "lint", slow)
    result = CliRunner().invoke(app.app, ["lint", str(file)])
    assert result.output == f"{file}: nothing found\n"
    assert "checking long.ptx" in shown.getvalue()
