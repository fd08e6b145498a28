"""Judge every mutation of the loaders of convolutions: `python -m tests.mutations.sweep_conv2d`.

Writes `results_conv2d.md`, a line a mutation, and the table of docs/mutations.md that counts them. It takes ten minutes
on two cores; with `--page` only the table is written, from the results that are there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.generated import with_tables

from .conv2d import conv_cases, conv_mutations, why_unnoticed
from .judge import NOT_CAUGHT, WRONG_RESULT, judge
from .sweep import PAGE

RESULTS = Path(__file__).with_name("results_conv2d.md")
HEAD = """\
# Every mutation of the loaders of convolutions

Written by `python -m tests.mutations.sweep_conv2d`; [docs/mutations.md](../../docs/mutations.md) says what it means.

| launch | family | mutation | caught by |
|---|---|---|---|
"""


def verdicts_of(name: str) -> list[tuple[str, str, str, str]]:
    """Launch, family, name and verdict of each of its mutations."""
    case = conv_cases()[name]
    return [(name, m.family, m.name, judge(case, m, change).caught) for m, change in conv_mutations(case)]


def results() -> list[tuple[str, str, str, str]]:
    """The verdicts that are written down."""
    lines = RESULTS.read_text("utf-8").split("|---|---|---|---|\n")[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(name, family, mutation.strip("`"), caught) for name, family, mutation, caught in rows]


def table() -> Iterator[str]:
    """How many mutations of each launch were noticed, and why the others were not."""
    yield "| launch | convolution | mutations | reported | wrong result | unnoticed |"
    yield "|---|---|---|---|---|---|"
    rows = results()
    for name, case in conv_cases().items():
        count = Counter(caught for launch, _, _, caught in rows if launch == name)
        quiet = count[NOT_CAUGHT], count[WRONG_RESULT]
        numbers = f"{count.total()} | {count.total() - sum(quiet)} | {quiet[1]} | {quiet[0]}"
        yield f"| {name} | {case.shape} | {numbers} |"
    yield ""
    yield "| unnoticed, harmless | mutations |"
    yield "|---|---|"
    reasons = Counter(why_unnoticed(name, mutation) for name, _, mutation, caught in rows if caught == NOT_CAUGHT)
    for why, count in reasons.most_common():
        yield f"| {why} | {count} |"


def main(*words: str) -> None:
    """Run the sweep."""
    if "--page" not in words:
        with ProcessPoolExecutor(3) as pool:
            rows = [row for found in pool.map(verdicts_of, conv_cases()) for row in found]
        lines = "".join(f"| {name} | {family} | `{mutation}` | {caught} |\n" for name, family, mutation, caught in rows)
        RESULTS.write_text(HEAD + lines, "utf-8")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), {"conv2d": table()}), "utf-8")
    unexplained = [row for row in results() if row[3] == NOT_CAUGHT and why_unnoticed(row[0], row[2]) is None]
    if unexplained:
        sys.exit("not explained in tests/mutations/conv2d.py:\n" + "\n".join(map(str, unexplained)))


if __name__ == "__main__":
    main(*sys.argv[1:])
