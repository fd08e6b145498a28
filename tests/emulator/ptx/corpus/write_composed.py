"""Run every composed kernel of the examples, the pages and the tests, and write their table into the corpus's page.

    python -m tests.emulator.ptx.corpus.write_composed

Each is launched by its own file, which compares the results; the emulator must find nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tilekit.compose import ComposedKernel
from tilekit.dtypes import BF16
from tilekit.kernels.plan import EmulatedPlan
from tilekit.tiles.operand import OperandTile

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "emulator-corpus.md"
BEGIN, END = "<!-- written by tests/emulator/ptx/corpus/write_composed.py -->\n", "<!-- end of composed kernels -->\n"


@dataclass(frozen=True)
class Row:
    """A kernel's last launch."""

    kernel: str
    file: str
    target: str
    report: Any

    def __str__(self) -> str:
        what, report = f"{self.kernel} | [{self.file}](../{self.file}) | {self.target}", self.report
        return f"| {what} | {report.steps:,} | {report.seconds * 1e3:,.0f} |"


def main() -> None:
    """Replace what stands between the marks."""
    rows = sorted([*of_files(), *of_tests()], key=lambda row: (row.file, row.kernel, row.target))
    assert all(row.report.clean for row in rows), [str(row.report) for row in rows if not row.report.clean]
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    table = "| kernel | composed in | target | warp instructions | ms |\n|---|---|---|---:|---:|\n"
    lines = "".join(f"{row}\n" for row in rows)
    PAGE.write_text(f"{before}{BEGIN}\n{len(rows)} kernels.\n\n{table}{lines}\n{END}{rest.split(END)[1]}", "utf-8")


def of_files() -> Iterator[Row]:
    """Those that examples and pages compose and launch."""
    launched: dict[tuple[str, str], Any] = {}
    run = EmulatedPlan.emulate

    def noted(plan: EmulatedPlan, **how: Any) -> Any:
        report, kernel = run(plan, **how), plan._kernel
        if isinstance(kernel, ComposedKernel):
            launched[kernel.name, kernel.target.name] = report
        return report

    with mock.patch.object(EmulatedPlan, "emulate", noted), contextlib.redirect_stdout(io.StringIO()):
        for file in sources():
            launched.clear()
            execute(file)
            for (kernel, target), report in launched.items():
                yield Row(kernel, str(file.relative_to(ROOT)), target, report)


def sources() -> list[Path]:
    """Examples and pages that compose a kernel."""
    files = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("*.md")]
    return sorted(file for file in files if "@tk.kernel" in file.read_text("utf-8") or file.name == "portable.py")


def execute(file: Path) -> None:
    """Run an example, or a page's Python as tests/docs/test_pages.py does."""
    if file.suffix == ".py":
        runpy.run_path(str(file), run_name="__main__")
        return
    sys.path.insert(0, str(ROOT / "tests" / "docs"))
    from pages import blocks

    os.chdir(ROOT)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(file, "python"):
        quoted = block.text.startswith(("@tk.kernel", "# tilekit/", "# examples/"))
        for_gpu = re.search(r"^import (torch|cupy)$", block.text, re.MULTILINE)
        if ">>>" not in block.text and not quoted and not for_gpu:
            exec(compile(block.text, str(file), "exec"), namespace)


def of_tests() -> Iterator[Row]:
    """The matmuls that tests put together by hand: wgmma of one to three warpgroups, and tcgen05."""
    from tests.composed import Composed, ComposedBlackwell, integers

    for name, make in {
        **{f"wgmma_{groups}_warpgroups": (Composed, {"warpgroups": groups}) for groups in (1, 2, 3)},
        "tcgen05": (ComposedBlackwell, {}),
    }.items():
        kind, how = make
        rows = 64 * how.get("warpgroups", 2)
        made = kind(OperandTile("a", BF16, rows, "k"), OperandTile("b", BF16, 64, "k"), **how)
        a, b = integers(200, 136, 1), integers(96, 136, 2)
        d, report = made.run(a, b, 200, 96, 136)
        np.testing.assert_array_equal(d, a.astype("f4") @ b.astype("f4").T)
        yield Row(name, "tests/composed.py", made.w.target.name, report)


if __name__ == "__main__":
    main()
