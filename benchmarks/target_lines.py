"""How many lines each target adds to the portable kernel: `python -m benchmarks.target_lines`.

The kernel is traced with every choice that a target has, and each line of its text says which module emitted it. A
target adds the modules that emit for it and for none of those before it in the table, and its own description; blanks,
comments and docstrings do not count. Assemblers and dialects, which emit nothing by themselves, do not either.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import tilekit.compose as tk
from benchmarks.family_lines import ROOT, code_lines

PACKAGE = ROOT / "tilekit"
TARGETS = ("sm_90a", "sm_100a", "sm_80", "sm_86", "sm_89", "sm_120a", "gfx942", "gfx950")
"""In the order in which they are counted."""

DRIVER = "drivers/warp_specialized.py"

_ORIGIN = re.compile(r"//@ .*?(\S+\.py):\d+")


def home(kind: type) -> str:
    """The module of a component, below the package."""
    return Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()


COMPONENTS = {
    home(kind)
    for target in TARGETS
    for choice in tk.portable_choices(target)
    for kind in (choice.load, choice.sync, choice.op)
}
"""The modules of loaders, strategies and instructions."""


def emitting(target: str) -> set[str]:
    """The modules that emit a line of any portable kernel for a target, below the package.

    The module of a component counts where the target has that component, no matter what else uses a line of it.
    """
    found = {f"targets/{target}.py"}
    choices = tk.portable_choices(target)
    others = COMPONENTS - {home(kind) for choice in choices for kind in (choice.load, choice.sync, choice.op)}
    for choice in choices:
        text = tk.portable_matmul(target, load=choice.load, sync=choice.sync, op=choice.op).assembly
        found |= {name for name in _ORIGIN.findall(text) if (PACKAGE / name).is_file()}
    return found - others


def added() -> Iterator[tuple[str, dict[str, int]]]:
    """Of each target in turn, the modules that it adds, and their lines."""
    before: set[str] = set()
    for target in TARGETS:
        new = emitting(target) - before
        before |= new
        yield target, {name: _lines(PACKAGE / name) for name in sorted(new)}


def _lines(file: Path) -> int:
    return len(code_lines(file.read_text("utf-8")))


def main() -> None:
    """Print a table."""
    for target, modules in added():
        driver = f", {DRIVER} among them" if DRIVER in modules else ""
        print(f"{sum(modules.values()):5}  {target}: {len(modules)} modules{driver}")
        if DRIVER not in modules:
            for name, lines in modules.items():
                print(f"{lines:11}  {name}")


if __name__ == "__main__":
    main()
