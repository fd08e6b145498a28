"""Judge mutations of block-scaled products: `python -m tests.mutations.sweep_scaled`.

Writes `results_scaled.md`, a line a mutation, and the table of docs/mutations.md that counts them. It takes five
minutes on a core; with `--page` only the table is written, from the results that are there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.generated import with_tables

from .judge import NOT_CAUGHT, WRONG_RESULT, judge
from .scaled import scaled_cases, scaled_mutations, why_unnoticed
from .sweep import PAGE

RESULTS = Path(__file__).with_name("results_scaled.md")
HEAD = """\
# Mutations of block-scaled products

Written by `python -m tests.mutations.sweep_scaled`; [docs/mutations.md](../../docs/mutations.md) says what it means.

| launch | family | mutation | caught by |
|---|---|---|---|
"""


def results() -> list[tuple[str, str, str, str]]:
    """Launch, family, name and verdict of each, as they are written down."""
    lines = RESULTS.read_text("utf-8").split("|---|---|---|---|\n")[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(name, family, mutation.strip("`"), caught) for name, family, mutation, caught in rows]


def table() -> Iterator[str]:
    """How many mutations of each launch were noticed, and why the others were not."""
    yield "| launch | product | mutations | reported | wrong result | unnoticed |"
    yield "|---|---|--:|--:|--:|--:|"
    rows = results()
    for name, case in scaled_cases().items():
        count = Counter(caught for launch, _, _, caught in rows if launch == name)
        quiet = count[NOT_CAUGHT], count[WRONG_RESULT]
        shape = f"{'x'.join(map(str, case.shape))} of {case.kind}"
        numbers = f"{count.total()} | {count.total() - sum(quiet)} | {quiet[1]} | {quiet[0]}"
        yield f"| {name} | {shape} | {numbers} |"
    yield ""
    yield "| unnoticed, harmless | mutations |"
    yield "|---|--:|"
    reasons = Counter(why_unnoticed(launch, mutation) for launch, _, mutation, caught in rows if caught == NOT_CAUGHT)
    for why, number in reasons.most_common():
        yield f"| {why} | {number} |"


def main(*words: str) -> None:
    """Run the sweep."""
    if "--page" not in words:
        lines = []
        for name, case in scaled_cases().items():
            for mutation in scaled_mutations(case):
                caught = judge(case, mutation).caught
                lines.append(f"| {name} | {mutation.family} | `{mutation.name}` | {caught} |\n")
                print(lines[-1], end="", flush=True)
        RESULTS.write_text(HEAD + "".join(lines), "utf-8")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), {"scaled": table()}), "utf-8")
    unexplained = [row for row in results() if row[3] == NOT_CAUGHT and why_unnoticed(row[0], row[2]) is None]
    if unexplained:
        sys.exit("not explained in tests/mutations/scaled.py:\n" + "\n".join(map(str, unexplained)))


if __name__ == "__main__":
    main(*sys.argv[1:])
