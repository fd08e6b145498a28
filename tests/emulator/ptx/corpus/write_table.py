"""Run the corpus and write its table into ``docs/emulator-corpus.md``, below the text that stands there."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

from corpus_case import CASES, compare, emulate, header

HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "docs" / "emulator-corpus.md"
MARK = "<!-- written by tests/emulator/ptx/corpus/write_table.py -->\n"


def main() -> None:
    """Replace what follows the mark."""
    rows, counts = [], Counter[str]()
    for case in sorted(CASES, key=str):
        report, launch = emulate(case)
        compare(launch, report.printed)
        assert report.clean, str(report)
        producer = header(case.path.read_text())["producer"].split(",")[0].replace(" release", "")
        counts[f"{producer}, {case.target}"] += 1
        name = case.name.split("/")[1]
        worst = max((max(e.rtol, e.atol) for e in launch.expect.values()), default=0.0)
        result = "exact" if worst == 0 else f"within {worst:.0e}"
        rows.append(
            f"| {name} | {producer} | {case.target} | {report.steps:,} | {report.seconds * 1e3:,.0f} | {result} |"
        )
    head = PAGE.read_text().split(MARK)[0]
    summary = "; ".join(f"{what}: {count}" for what, count in sorted(counts.items()))
    table = "| kernel | producer | target | warp instructions | ms | result |\n|---|---|---|---:|---:|---|\n"
    PAGE.write_text(f"{head}{MARK}\n{len(rows)} kernels ({summary}).\n\n{table}" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    for source in sorted(HERE.glob("cases_*.py")):
        importlib.import_module(source.stem)
    main()
