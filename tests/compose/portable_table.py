"""Run every portable kernel under twenty seeds and write what ran into docs/portable.md.

``python -m tests.compose.portable_table`` takes minutes; ``--seeds 2`` is a quick look and writes nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import tilekit.compose as tk
from tests.compose.portable_cases import ANYWHERE, BODIES, TARGETS, every_choice

PAGE = Path(__file__).parents[2] / "docs" / "portable.md"
BEGIN, END = "<!-- portable -->", "<!-- /portable -->"
SEEDS = 20
Ran = Mapping[tuple[str, tk.PortableChoice], int]


def table(ran: Ran) -> str:
    """A row for each target, instruction and loader, a column for each strategy: launches that were exact and clean."""
    syncs = sorted({choice.sync.__name__ for _, choice in every_choice()})
    rows = [f"| target | op | loader | {' | '.join(syncs)} |", "|---" * (3 + len(syncs)) + "|"]
    for target in TARGETS:
        choices = {(c.op.__name__, c.load.__name__, c.sync.__name__): c for c in tk.portable_choices(target)}
        for op, load in dict.fromkeys((op, load) for op, load, _ in choices):
            cells = []
            for sync in syncs:
                choice = choices.get((op, load, sync))
                cells.append("-" if choice is None else f"{ran.get((target, choice), 0)}")
            rows.append(f"| {target} | `{op}` | `{load}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def shape_of(text: str) -> str:
    """A table without the numbers of launches."""
    return re.sub(r"\| \d+ (?=\|)", "| n ", re.sub(r"\| \d+ (?=\|)", "| n ", text))


def launches(choice: tk.PortableChoice) -> int:
    """Launches of a seed: two of each case, of which coded places have two."""
    return 2 * (1 + 2 + (choice.load in ANYWHERE))


def main() -> None:
    """Run, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_args().seeds
    ran: dict[tuple[str, tk.PortableChoice], int] = {}
    for target, choice in every_choice():
        for seed in range(seeds):
            for body in BODIES:
                body(target, choice, seed)
        ran[target, choice] = seeds * launches(choice)
        print(f"{target} {choice}: {ran[target, choice]} launches exact and clean", flush=True)
    if seeds < SEEDS:
        print(table(ran))
        return
    page = PAGE.read_text("utf-8")
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(ran)}\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
