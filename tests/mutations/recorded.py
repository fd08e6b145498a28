"""A sweep that is written down: a line a mutation in a file of results, and a table of docs/mutations.md."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.generated import with_tables

from .judge import NOT_CAUGHT, WRONG_RESULT
from .sweep import PAGE

Row = tuple[str, ...]
"""What became of a mutation: launch and family first, its name and what caught it last."""


@dataclass(frozen=True)
class RecordedSweep:
    """The mutations of some launches, and what is known of them.

    Attributes
    ----------
    name
        Of its table in the page; with it ends the name of its module, and that of its file of results.
    title
        Of the results.
    about
        What the table says of a launch, by its name, and over that column.
    judged
        The rows of a launch.
    why_unnoticed
        Why nothing notices a mutation, by its launch and name; None where something must.
    """

    name: str
    title: str
    launches: Callable[[], Iterable[str]]
    about: tuple[str, Callable[[str], str]]
    judged: Callable[[str], list[Row]]
    why_unnoticed: Callable[[str, str], str | None]

    @property
    def results(self) -> Path:
        """The file of results."""
        return Path(__file__).with_name(f"results_{self.name}.md")

    def rows(self) -> list[Row]:
        """The verdicts that are written down."""
        lines = self.results.read_text("utf-8").split("|---|---|---|---|\n")[1].splitlines()
        cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
        return [(launch, family, name.strip("`"), caught) for launch, family, name, caught in cells]

    def table(self) -> Iterator[str]:
        """How many mutations of each launch were noticed, and why the others were not."""
        heading, about = self.about
        yield f"| launch | {heading} | mutations | reported | wrong result | unnoticed |"
        yield "|---|---|--:|--:|--:|--:|"
        rows = self.rows()
        for launch in self.launches():
            count = Counter(row[-1] for row in rows if row[0] == launch)
            reported = count.total() - count[NOT_CAUGHT] - count[WRONG_RESULT]
            numbers = f"{count.total()} | {reported} | {count[WRONG_RESULT]} | {count[NOT_CAUGHT]}"
            yield f"| {launch} | {about(launch)} | {numbers} |"
        yield ""
        yield "| unnoticed, harmless | mutations |"
        yield "|---|--:|"
        quiet = [row for row in rows if row[-1] == NOT_CAUGHT]
        for why, number in Counter(self.why_unnoticed(row[0], row[-2]) for row in quiet).most_common():
            yield f"| {why} | {number} |"

    def page(self) -> str:
        """The page with this table."""
        return with_tables(PAGE.read_text("utf-8"), {self.name: self.table()})

    def unexplained(self) -> list[Row]:
        """What nothing noticed, and what has no explanation."""
        quiet = (row for row in self.rows() if row[-1] == NOT_CAUGHT)
        return [row for row in quiet if self.why_unnoticed(row[0], row[-2]) is None]

    def main(self, *words: str) -> None:
        """Judge, write results and page; with `--page` the page alone, from the results that are there."""
        if "--page" not in words:
            head = (
                f"# {self.title}\n\nWritten by `python -m tests.mutations.sweep_{self.name}`; "
                "[docs/mutations.md](../../docs/mutations.md) says what it means.\n\n"
                "| launch | family | mutation | caught by |\n|---|---|---|---|\n"
            )
            with ProcessPoolExecutor() as pool:
                rows = [row for found in pool.map(self.judged, self.launches()) for row in found]
            lines = (f"| {launch} | {family} | `{name}` | {caught} |\n" for launch, family, name, caught in rows)
            self.results.write_text(head + "".join(lines), "utf-8")
        PAGE.write_text(self.page(), "utf-8")
        if self.unexplained():
            sys.exit(f"not explained in tests/mutations/{self.name}.py:\n" + "\n".join(map(str, self.unexplained())))
