"""What is shown while something takes long: a bar where progress is known, else what is being done and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Shown

    from tilekit.emulator.core.schedules import Progress

__all__ = ["progress_bar", "waiting"]

PATIENCE: Final = 1.5
"""Seconds before anything is shown."""


def _terminal(as_json: bool) -> Console | None:
    """Return the console of stderr, where it is a terminal on which something may be drawn."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal and not as_json else None


@contextmanager
def progress_bar(unit: str, as_json: bool) -> Iterator[Progress | None]:
    """Draw a bar with an estimate on the terminal, once a run turns out to be long; None where there is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _terminal(as_json)
    if console is None:
        yield None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TextColumn("about"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(unit, total=None)

    def advance(done: int, total: int, seconds: float) -> None:
        bar.update(task, completed=done, total=total)

    with _shown_late(bar):  # also where the first of them is not reached: a kernel is traced and assembled before
        yield advance


@contextmanager
def waiting(what: str, as_json: bool) -> Iterator[None]:
    """Say on the terminal what is being done and since when, once it turns out to be long."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = _terminal(as_json)
    if console is None:
        yield
        return
    shown = Progress(SpinnerColumn(), TextColumn(what), TimeElapsedColumn(), console=console, transient=True)
    shown.add_task(what, total=None)
    with _shown_late(shown):
        yield


@contextmanager
def _shown_late(shown: Shown) -> Iterator[None]:
    """Show it once `PATIENCE` is at its end, until this is left."""
    late = threading.Timer(PATIENCE, shown.start)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
        late.join()
        shown.stop()
