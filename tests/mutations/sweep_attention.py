"""Judge some of the mutations of attention: `python -m tests.mutations.sweep_attention`.

Writes `results_attention.md`, a line a mutation, and the table of docs/mutations.md that counts them. It takes ten
minutes on a core; with `--page` only the table is written, from the results that are there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.generated import with_tables

from .attention import attention_cases, tried, why_unnoticed
from .judge import NOT_CAUGHT, WRONG_RESULT, judge
from .mutation import mutations
from .sweep import PAGE

RESULTS = Path(__file__).with_name("results_attention.md")
HEAD = """\
# Mutations of attention

Written by `python -m tests.mutations.sweep_attention`; [docs/mutations.md](../../docs/mutations.md) says what it means.

| launch | of | family | mutation | caught by |
|---|--:|---|---|---|
"""


def rows_of(name: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Launch, how many mutations it has in all, family, name and verdict of each that is tried."""
    case = attention_cases()[name]
    every = str(len(mutations(case.text)))
    for mutation in tried(case):
        yield name, every, mutation.family, mutation.name, judge(case, mutation).caught


def results() -> list[tuple[str, str, str, str, str]]:
    """The verdicts that are written down."""
    lines = RESULTS.read_text("utf-8").split("|---|--:|---|---|---|\n")[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(name, every, family, mutation.strip("`"), caught) for name, every, family, mutation, caught in rows]


def table() -> Iterator[str]:
    """How many mutations of each launch were noticed, and why the others were not."""
    yield "| launch | call | mutations | tried | reported | wrong result | unnoticed |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    rows = results()
    for name, case in attention_cases().items():
        own = [row for row in rows if row[0] == name]
        count = Counter(caught for *_, caught in own)
        quiet = count[NOT_CAUGHT], count[WRONG_RESULT]
        numbers = f"{count.total()} | {count.total() - sum(quiet)} | {quiet[1]} | {quiet[0]}"
        yield f"| {name} | {case.words} | {own[0][1]} | {numbers} |"
    yield ""
    yield "| unnoticed, harmless | mutations |"
    yield "|---|--:|"
    reasons = Counter(why_unnoticed(launch, mutation) for launch, *_, mutation, caught in rows if caught == NOT_CAUGHT)
    for why, number in reasons.most_common():
        yield f"| {why} | {number} |"


def main(*words: str) -> None:
    """Run the sweep."""
    if "--page" not in words:
        lines = []
        for name in attention_cases():
            for row in rows_of(name):
                launch, every, family, mutation, caught = row
                lines.append(f"| {launch} | {every} | {family} | `{mutation}` | {caught} |\n")
                print(lines[-1], end="", flush=True)
        RESULTS.write_text(HEAD + "".join(lines), "utf-8")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), {"attention": table()}), "utf-8")
    unexplained = [row for row in results() if row[4] == NOT_CAUGHT and why_unnoticed(row[0], row[3]) is None]
    if unexplained:
        sys.exit("not explained in tests/mutations/attention.py:\n" + "\n".join(map(str, unexplained)))


if __name__ == "__main__":
    main(*sys.argv[1:])
