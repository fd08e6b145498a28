"""Judge every mutation of every launch of tilekit's kernels: `python -m tests.mutations.sweep`.

Writes `results_tilekit.md`, and the tables of docs/mutations.md that are about them. With words, as in
`python -m tests.mutations.sweep cluster wait`, print the full reports on the mutations whose names have all of them
instead.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.generated import with_tables

from .judge import NOT_CAUGHT, ORDERS, WRONG_RESULT, Verdict, judge
from .known import ORDER, UNNOTICED, explanation
from .launches import argument_mutations, cases
from .mutation import mutations

PAGE = Path(__file__).parents[2] / "docs" / "mutations.md"
RESULTS = Path(__file__).with_name("results_tilekit.md")

HEAD = """\
# Every mutation of tilekit's kernels

Written by `python -m tests.mutations.sweep`; [docs/mutations.md](../../docs/mutations.md) says what it means. Mutations
of one kind at one place are one line, whatever the launch and however many instructions it has.
"""


def verdicts_of(name: str, words: tuple[str, ...] = ()) -> list[Verdict]:
    """The verdicts on all mutations of one launch, or on those whose name has all `words`."""
    case = cases()[name]
    changes = [(m, None) for m in mutations(case.text)] + list(argument_mutations(case))
    return [judge(case, m, change) for m, change in changes if all(w in f"{name} {m.family} {m.name}" for w in words)]


def excerpt(verdict: Verdict) -> str:
    """The one or two lines of a report that say most."""
    lines = [line.strip() for line in verdict.message.splitlines()]
    if not lines:
        return ""
    said = [lines[0]]
    if verdict.caught == "deadlock":
        own = itertools.takewhile(lambda line: not line.startswith("found "), lines)
        said = [line for line in own if line.startswith(("hint:", "cycle:"))][-1:] or said
    said += [line for line in lines if line.startswith("missing edge:")][:1]
    return " … ".join(said).replace("|", "\\|")


def launches(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What was launched, and how many mutations of it were noticed."""
    yield "| launch | kernel | problem | mutations | reported | wrong result | unnoticed |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in verdicts.items():
        case = cases()[name]
        count = Counter(v.caught if not v.reported else "reported" for v in found)
        shape = f"{case.m}x{case.n}x{case.k}, {case.spec.store} store"
        numbers = " | ".join(str(count[kind]) for kind in ("reported", WRONG_RESULT, NOT_CAUGHT))
        yield f"| {name} | {case.config} | {shape} | {len(found)} | {numbers} |"


def families(every: Iterable[Verdict], first: tuple[str, ...] = ORDER) -> Iterator[str]:
    """What caught the mutations of each family, those `first` above the others."""
    alike: dict[str, Counter[str]] = {}
    for verdict in every:
        alike.setdefault(verdict.mutation.family, Counter())[verdict.caught] += 1
    yield "| family | mutations | caught by |"
    yield "|---|---|---|"
    for family, count in sorted(alike.items(), key=lambda item: item[0] not in first):
        yield f"| {family} | {count.total()} | {', '.join(f'{kind} ({n})' for kind, n in count.most_common())} |"


def unnoticed(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What nothing noticed, and why."""
    yield "| mutation | launches | |"
    yield "|---|---|---|"
    for entry in sorted(UNNOTICED, key=lambda e: e.harmless):
        names = sorted({v.mutation.name for n in entry.launches for v in verdicts[n] if entry.covers(n, v.mutation)})
        shown = "<br>".join(f"`{name}`" for name in names[:3]) + (
            f"<br>and {len(names) - 3} like it" if names[3:] else ""
        )
        verdict = "harmless" if entry.harmless else "**a gap**"
        yield f"| {shown} | {', '.join(entry.launches)} | {verdict}: {entry.why} |"


def results(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """All of them."""
    yield HEAD.rstrip("\n")
    kinds: dict[str, dict[tuple[str, str, str], list[Verdict]]] = {}
    for found in verdicts.values():
        for v in found:
            m = v.mutation
            kinds.setdefault(m.family, {}).setdefault((m.site, m.instruction, m.change), []).append(v)
    for family, rows in sorted(kinds.items(), key=lambda item: item[0] not in ORDER):
        yield f"\n## {family}\n"
        yield "| where | instruction | change | caught by | in its words |"
        yield "|---|---|---|---|---|"
        for (site, instruction, change), alike in rows.items():
            count = Counter(v.caught for v in alike)
            caught = ", ".join(f"{kind} ({n})" if len(alike) > 1 else kind for kind, n in count.most_common())
            words = next((excerpt(v) for v in alike if v.reported), "")
            yield f"| {site} | `{instruction}` | {change} | {caught} | {words} |"


def write(verdicts: dict[str, list[Verdict]]) -> list[str]:
    """Write results and page; returns what is not as `known` has it."""
    RESULTS.write_text("\n".join(results(verdicts)) + "\n", "utf-8")
    every = [v for found in verdicts.values() for v in found]
    tables = {
        "schedules": [", ".join(f"{schedule} {seed}" for schedule, seed in ORDERS)],
        "tilekit": [f"{len(every)} mutations of {len(verdicts)} launches:\n", *launches(verdicts)],
        "tilekit-families": families(every),
        "tilekit-unnoticed": unnoticed(verdicts),
    }
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables), "utf-8")
    return [
        f"{name} | {v.mutation.name}: {v.caught}"
        for name, found in verdicts.items()
        for v in found
        if (v.caught == NOT_CAUGHT) != (explanation(name, v.mutation) is not None)
    ]


def run(
    names: list[str],
    judged: Callable[..., list[Verdict]],
    write: Callable[[dict[str, list[Verdict]]], list[str]],
    known: str,
    words: tuple[str, ...],
) -> None:
    """Judge and write; with words, print full reports instead. `write` returns what is not as the file `known` has it.

    Parameters
    ----------
    names
        What is broken.
    judged
        The verdicts on one of them, and given words, on its mutations whose names have all of them.
    """
    if words:
        for name in names:
            for v in judged(name, words):
                print(f"{name} | {v.mutation.name}: {v.caught} {v.schedule}\n{v.message}\n")
        return
    with ProcessPoolExecutor() as pool:
        verdicts = dict(zip(names, pool.map(judged, names), strict=True))
    unexplained = write(verdicts)
    print(f"wrote results and {PAGE}")
    if unexplained:
        sys.exit(f"not as documented in tests/mutations/{known}:\n" + "\n".join(unexplained))


if __name__ == "__main__":
    run(list(cases()), verdicts_of, write, "known.py", tuple(sys.argv[1:]))
