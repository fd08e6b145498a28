"""A composed kernel that the command line names: ``mine.py:kernel``."""

from __future__ import annotations

import difflib
import json
import runpy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tilekit.cli import common, tables

if TYPE_CHECKING:
    from tilekit.compose.kernel import ComposedKernel

SEEDS = 3
"""Interleavings that a kernel is run under."""


def names_file(kernel: str) -> bool:
    """Whether what stands for KERNEL is a file and a name in it."""
    return ".py:" in kernel or kernel.endswith(".py")


def load(kernel: str) -> ComposedKernel:
    """Run the file and return the kernel that it makes under the name.

    Raises
    ------
    ArgumentError
        ``TK-CLI-013`` for a file that cannot be read or that fails, with its line; for a name that it has not, and for
        one that is no composed kernel.
    """
    from tilekit.compose.kernel import ComposedKernel
    from tilekit.errors import ArgumentError, TilekitError

    file, _, name = kernel.rpartition(".py:")
    path = Path(f"{file}.py" if name and file else kernel)
    try:
        made = runpy.run_path(str(path))
    except TilekitError:
        raise
    except Exception as error:
        line, frame = "", error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == str(path):
                line = f":{frame.tb_lineno}"
            frame = frame.tb_next
        if isinstance(error, SyntaxError):
            line = f":{error.lineno}"
        raise ArgumentError(f"{path}{line}: {type(error).__name__}: {error}", code="TK-CLI-013") from None
    kernels = {key: value for key, value in made.items() if isinstance(value, ComposedKernel)}
    if not file or name not in kernels:
        what = f"{name} there is {made[name]!r}, no kernel" if file and name in made else f"it has no {name or 'name'}"
        near = difflib.get_close_matches(name, kernels, 1, 0.0)
        raise ArgumentError(
            f"KERNEL {kernel}: {what}; kernels in {path}: {', '.join(kernels) or 'none (@tk.kernel makes one)'}"
            + (f"; nearest: {path}:{near[0]}" if near else ""),
            code="TK-CLI-013",
        )
    return kernels[name]


def run(kernel: str, extents: Mapping[str, int], *, seed: int, as_json: bool) -> None:
    """Run a kernel of a file on the emulator, under several interleavings, and say what was found."""
    with common.presented(as_json):
        found = load(kernel)
        letters = {letter for one in found.operands for letter in one.shape}
        given = {letter: extent for letter, extent in extents.items() if letter in letters}
        start = time.perf_counter()
        reports = found.check(seeds=range(seed, seed + SEEDS), **given)
        seconds = time.perf_counter() - start
    clean = all(report.clean for report in reports)
    facts: dict[str, Any] = {
        "kernel": found.name,
        "device": f"emulator of {found.target.name}",
        "operands": ", ".join(f"{one.name} ({', '.join(one.shape)})" for one in found.operands),
        "extents": ", ".join(f"{letter}={given.get(letter, 64)}" for letter in sorted(letters)),
        "interleavings": SEEDS,
        "time": f"{seconds:.2f} s",
        "result": "nothing found, and the same results each time" if clean else "findings",
    }
    if as_json:
        typer.echo(json.dumps({**facts, "clean": clean}))
    else:
        tables.print_facts(kernel, facts)
        for report in reports:
            if not report.clean:
                typer.echo(str(report))
    raise typer.Exit(common.OK if clean else common.WRONG)
