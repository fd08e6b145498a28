"""Whatever is given for whatever option of whatever command: a message and an exit code, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from tilekit.cli.app import app

ODD = ("", "-1", "0", "7", "nan", "inf", "1e400", "99999999999", "9" * 40, "9" * 5000,
       f"{'9' * 5000}x1x1", "x", "0x0", "64x64", "3,3,3,3",
       "k", "@/nowhere", "f32[9999999999999]=zeros", "map:0", "\x01", "--", "=", "/")  # fmt: skip
"""Texts that few options take, and some that would ask for more than there is."""

LEGAL: dict[str, list[str]] = {
    "run": ["run", "matmul"],
    "dump": ["dump", "matmul"],
    "trace": ["trace", "matmul"],
    "emulate": ["emulate", "examples/double.ptx", "--block", "64", "--shared", "288", "--arg",
                "f32[192]=range", "--arg", "f32[192]=zeros", "--arg", "i32:6"],
    "lint": ["lint", "examples/double.ptx"],
    "disassemble": ["disassemble", "examples/store.s"],
    "cycles": ["cycles", "examples/mfma_loop.s"],
    "bench": ["bench", "matmul"],
    "tune": ["tune", "matmul"],
    "cache": ["cache"],
    "doctor": ["doctor"],
    "list": ["list"],
}  # fmt: skip


def options() -> Iterator[Any]:
    """Every option, and every argument, of every command."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    assert set(group.commands) == set(LEGAL)  # type: ignore[attr-defined]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for parameter in command.params:
            option = max(parameter.opts, key=len)
            flag = getattr(parameter, "is_flag", False)
            if option != "--help" and not flag:
                yield pytest.param(name, option if option.startswith("--") else "", id=f"{name}{option}")


@pytest.fixture(autouse=True)
def nothing_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No emulation of a matmul, no file in the wrong place."""
    monkeypatch.setenv("TILEKIT_EMULATOR_LIMIT", "1e-9")
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "examples").symlink_to(Path("examples").absolute())
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(one_in=3)
@pytest.mark.slow
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.breadth)])
@pytest.mark.parametrize(("command", "option"), tuple(options()))
def test_odd_options_end_in_a_message(invoke: Any, command: str, option: str, every: int) -> None:
    """For each option odd texts, other ones for the next: the exit code says how it ends, and an error has a text."""
    for text in ODD[len(command + option) % every :: every]:
        if option == "--explore" and text.isdecimal() and int(text[:18]) > 100:
            continue  # so many launches, as asked
        words = [*LEGAL[command], option, text] if option else [command, text]
        result = invoke(*words)
        where = f"{words}: {result.exception!r}"
        assert result.exception is None or isinstance(result.exception, SystemExit), where
        assert result.exit_code in (0, 1, 2, 3), where
        if result.exit_code:
            assert result.output.strip(), where


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("target", ["/dev/full", "closed", "a pipe whose reader has gone"])
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["--help"], ["lint", "examples/double.ptx"]], ids=str)
def test_an_output_that_cannot_be_written(words: list[str], target: str, tmp_path: Path) -> None:
    """A full disk, a closed stdout and a pipe without a reader end the command, and print no traceback."""
    command = [sys.executable, "-m", "tilekit", *words]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    if target == "closed":
        ended = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, env=environment)
    elif target == "/dev/full":
        if not Path(target).exists():
            pytest.skip("this system has no /dev/full")
        with Path(target).open("w") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment)
        os.close(writing)
    said = ended.stderr.decode()
    assert "Traceback" not in said
    assert ended.returncode in (0, 1)
    assert ("the output cannot be written" in said) == (target == "/dev/full"), said


def test_a_defect_is_said_in_a_message(tmp_path: Path) -> None:
    """What no one raised on purpose ends in a message that names a file with the traceback."""
    script = "import tilekit.cli.listing as l, tilekit.cli.app as a; l.tables.print_facts = lambda *x: 1 // 0; a.main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "list"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 1
    assert "error [TK-CLI-012]" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert "Traceback" not in ended.stderr
    (kept,) = tmp_path.glob("tilekit-defect-*.txt")
    assert str(kept) in ended.stderr
    assert "Traceback" in kept.read_text()
