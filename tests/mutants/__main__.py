"""``python -m tests.mutants``: plant mistakes in the framework at random, and see whether its tests notice.

``map`` finds out which tests run which lines (once, and again for test files that change; a quarter of an hour on one
core), ``run`` tries mistakes drawn with a seed, ``again`` tries those that went unnoticed with every test that may
reach them, ``table`` prints what is known. Everything is kept in ``.mutants/``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from .known import judged
from .mutators import Mutant, mutants, sample
from .reach import ROOT, SOURCES, Reach, record
from .trial import Copy, Verdict, affordable, reaching

TRIALS = ROOT / ".mutants" / "trials.jsonl"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map", help="record which tests run which lines (needs Python 3.12)")
    mapping.add_argument("files", nargs="*", type=Path, help="test files (default: all)")
    trying = commands.add_parser("run", help="try mistakes drawn at random")
    trying.add_argument("--seed", type=int, required=True)
    trying.add_argument("--count", type=int, default=50)
    again = commands.add_parser("again", help="try unnoticed, unjudged mistakes with all tests that may reach them")
    for command, seconds, most in ((trying, 30.0, 60), (again, 300.0, 2000)):
        command.add_argument("--under", default=SOURCES, help="folder or file of the framework")
        command.add_argument("--seconds", type=float, default=seconds, help="processor time of a mistake's tests")
        command.add_argument("--most", type=int, default=most, help="number of a mistake's tests")
    commands.add_parser("table", help="print what came of all trials")
    given = parser.parse_args()
    if given.command == "map":
        record([file.resolve() for file in given.files] or sorted((ROOT / "tests").rglob("test_*.py")))
    elif given.command == "run":
        texts = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in (ROOT / SOURCES).rglob("*.py")}
        chosen = {file: text for file, text in texts.items() if file.startswith(given.under)}
        try_each(sample(chosen, given.count, given.seed), given.seconds, given.most)
    elif given.command == "again":
        left = [mutant for mutant, verdict in tried() if not verdict.caught and not judged(mutant)]
        try_each([mutant for mutant in left if mutant.file.startswith(given.under)], given.seconds, given.most)
    else:
        print(table(tried()))


def try_each(chosen: list[Mutant], seconds: float, most: int) -> None:
    """Try mistakes one by one, print what comes of each, and keep it."""
    reach = Reach()
    if stale := sorted({mutant.file for mutant in chosen if reach.stale(mutant.file)}):
        sys.exit(f"these changed since the map was made (`python -m tests.mutants map`): {', '.join(stale)}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for number, mutant in enumerate(chosen, 1):
            tests = affordable(reaching(mutant, reach), seconds=seconds, most=most)
            verdict = Verdict(False, "", 0, 0.0)
            if tests:
                with copy.broken(mutant):
                    verdict = copy.run(tests)
            TRIALS.parent.mkdir(exist_ok=True)
            with TRIALS.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps({"mutant": asdict(mutant), "verdict": asdict(verdict)}) + "\n")
            outcome = f"caught by {verdict.by}" if verdict.caught else f"NOT CAUGHT by {verdict.tests} tests"
            print(f"{number}/{len(chosen)} {mutant}\n    {outcome}, {verdict.seconds:.0f} s", flush=True)
    print(table((mutant, verdict) for mutant, verdict in tried() if mutant in chosen))


def tried() -> list[tuple[Mutant, Verdict]]:
    """Every mistake that was tried, and that the present text still has room for, with its latest verdict."""
    latest: dict[Mutant, Verdict] = {}
    if TRIALS.exists():
        for line in TRIALS.read_text("utf-8").splitlines():
            row = json.loads(line)
            latest[Mutant(**row["mutant"])] = Verdict(**row["verdict"])
    present = {file: set(mutants(file, (ROOT / file).read_text("utf-8"))) for file in {m.file for m in latest}}
    return [(mutant, verdict) for mutant, verdict in latest.items() if mutant in present[mutant.file]]


def table(rows: Iterable[tuple[Mutant, Verdict]]) -> str:
    """Counts by folder, then the mistakes that went unnoticed: those to look at, and those that are judged."""
    counts: dict[str, Counter[str]] = {}
    open_, known = [], []
    for mutant, verdict in rows:
        judgement = None if verdict.caught else judged(mutant)
        outcome = "caught" if verdict.caught else judgement.kind if judgement else "not caught"
        for folder in (_folder(mutant.file), "all"):
            counts.setdefault(folder, Counter())[outcome] += 1
        if judgement:
            known.append(f"{mutant}\n    {judgement.kind}: {judgement.why}")
        elif not verdict.caught:
            open_.append(f"{mutant}\n    {verdict.tests} tests")
    columns = ("caught", "not caught", "equivalent", "speed", "message")
    lines = ["| folder | mistakes | " + " | ".join(columns) + " | caught of those that matter |", "|---" * 8 + "|"]
    for folder in sorted(counts, key=lambda name: (name == "all", name)):
        count = counts[folder]
        matter = count["caught"] + count["not caught"]
        share = f"{100 * count['caught'] / matter:.0f} %" if matter else ""
        cells = [str(count[column] or "") for column in columns]
        lines.append(f"| {folder} | {count.total()} | " + " | ".join(cells) + f" | {share} |")
    for title, entries in (("Not caught", open_), ("Judged", known)):
        if entries:
            lines += ["", f"{title}:", *entries]
    return "\n".join(lines)


def _folder(file: str) -> str:
    """`tilekit/emulator/ops` and the like: the first folder below the package, and the emulator's own."""
    parts = file.split("/")[:-1]
    return "/".join(parts[1:3] if parts[1:2] == ["emulator"] else parts[1:2]) or "tilekit"


if __name__ == "__main__":
    main()
