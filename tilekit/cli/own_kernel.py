"""Composed kernels that the command line names: ``mine.py:kernel``."""

from __future__ import annotations

import difflib
import json
import runpy
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tilekit.cli import common, tables

if TYPE_CHECKING:
    from tilekit.cli.options import CallOptions
    from tilekit.compose.kernel import ComposedKernel

SEEDS = 3
"""Interleavings that a kernel is run under."""

USUAL = 64
"""Elements along a letter of which nothing is said."""


OR_FILE = "or a kernel of yours, FILE.py:NAME"
"""What else stands for KERNEL, for errors."""


def names_file(kernel: str) -> bool:
    """Whether what stands for KERNEL is a file and a name in it."""
    return ".py:" in kernel or kernel.endswith(".py")


def near_file(kernel: str) -> str | None:
    """Return ``FILE.py:NAME`` for what lacks the ``.py`` alone: where there is such a file."""
    file, _, name = kernel.rpartition(":")
    return f"{file}.py:{name}" if file and name and Path(f"{file}.py").is_file() else None


def refuse_file(kernel: str, what: str, instead: str) -> None:
    """Refuse a kernel of a file where a command takes none.

    Raises
    ------
    ArgumentError
        ``TK-CLI-013`` with what does it instead.
    """
    from tilekit.errors import ArgumentError

    if names_file(kernel):
        raise ArgumentError(f"{kernel}: {what}. Nearest: {instead}", code="TK-CLI-013")


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

    file, _, name = kernel.removesuffix(":").rpartition(".py:")
    path = Path(f"{file}.py" if name and file else kernel.removesuffix(":"))
    if not path.is_file():
        beside = [one.name for one in path.parent.glob("*.py") if one.is_file()]
        near = difflib.get_close_matches(path.name, beside, 1)
        raise ArgumentError(
            f"KERNEL {kernel}: {f'{path} is a folder' if path.is_dir() else f'there is no file {path}'}"
            + (f"; nearest: {path.with_name(near[0])}{f':{name}' if name else ''}" if near else ""),
            code="TK-CLI-013",
        )
    try:
        with _beside(path):
            made = runpy.run_path(str(path))
    except TilekitError:
        raise
    except (Exception, SystemExit) as error:
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
        what = f"{name} there is {made[name]!r}, no kernel" if file and name in made else f"it has no {name}"
        if not file:
            name, what = "", "legal is FILE.py:NAME, and no name is given"
        near = difflib.get_close_matches(name, kernels, 1, 0.0) or list(kernels)[:1]
        raise ArgumentError(
            f"KERNEL {kernel}: {what}; kernels in {path}: {', '.join(kernels) or 'none (@tk.kernel makes one)'}"
            + (f"; nearest: {path}:{near[0]}" if near else ""),
            code="TK-CLI-013",
        )
    return kernels[name]


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Have a file find the modules in its folder first, as it does where Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # else the file has taken it out
            sys.path.remove(folder)


def extents_of(found: ComposedKernel, given: Mapping[str, int], usual: Mapping[str, int]) -> dict[str, int]:
    """Return an extent for each letter of a kernel's operands: what is given, else what is usual.

    Raises
    ------
    ArgumentError
        ``TK-CLI-013`` for an extent of a letter that no operand has.
    """
    from tilekit.errors import ArgumentError

    letters = sorted({letter for one in found.operands for letter in one.shape})
    for letter, extent in given.items():
        if letter not in letters:
            legal = f"extents of {', '.join(letters)}, which {found.name}'s operands have"
            option = f"--{letter}" if letter in "mnk" else f"--extent {letter}="
            raise ArgumentError.of(option, extent, legal=legal, code="TK-CLI-013")
    return {letter: given.get(letter, usual.get(letter, USUAL)) for letter in letters}


def refuse_options(kernel: str, given: Mapping[str, Any]) -> None:
    """Refuse options that are there for other things than a composed kernel, whose function has said all of this.

    Raises
    ------
    ArgumentError
        ``TK-CLI-013`` naming the first that is set.
    """
    from tilekit.errors import ArgumentError

    for option, value in given.items():
        if value:
            legal = f"not for a kernel of yours: {kernel} is one kernel, and its function says what it is"
            raise ArgumentError.of(option, value, legal=legal, code="TK-CLI-013")


def chosen(kernel: str, call: CallOptions, **others: Any) -> ComposedKernel:
    """Load a kernel, and refuse what is said of it that it says itself; `others` are options that have no use here."""
    found = load(kernel)
    given = {
        option: value for option, value in call.given.items() if (option, value) != ("--target", found.target.name)
    }
    refuse_options(kernel, {**given, **{f"--{name}": value for name, value in others.items()}})
    return found


def run(kernel: str, call: CallOptions, *, batch: int | None, device: str, seed: int, as_json: bool) -> None:
    """Run a kernel of a file on the emulator, under several interleavings, and say what was found."""
    from tilekit.errors import ArgumentError

    with common.presented(as_json):
        found = chosen(kernel, call, batch=batch)
        if device not in ("auto", "emulator"):
            legal = "emulator: a kernel of yours is checked there; `tilekit trace` and `bench` take it to a GPU"
            raise ArgumentError.of("--device", device, legal=legal, nearest="emulator", code="TK-CLI-013")
        extents = extents_of(found, call.extents, {})
        start = time.perf_counter()
        reports = found.check(seeds=range(seed, seed + SEEDS), **extents)
        seconds = time.perf_counter() - start
    clean = reports.clean
    facts: dict[str, Any] = {
        "kernel": found.name,
        "device": f"emulator of {found.target.name}",
        "operands": ", ".join(f"{one.name} ({', '.join(one.shape)})" for one in found.operands),
        "extents": spelled(extents),
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


def spelled(extents: Mapping[str, int]) -> str:
    """Return extents as words: ``k=64, m=200``."""
    return ", ".join(f"{letter}={extent}" for letter, extent in extents.items())
