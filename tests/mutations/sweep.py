"""Judge every mutation of every launch and write docs/mutations.md: `python -m tests.mutations.sweep`.

With words, as in `python -m tests.mutations.sweep cluster wait`, print the full reports on the mutations whose names
have all of them instead.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .judge import NOT_CAUGHT, WRONG_RESULT, Verdict, judge
from .known import ORDER, UNNOTICED, explanation
from .launches import argument_mutations, cases
from .mutation import mutations

PAGE = Path(__file__).parents[2] / "docs" / "mutations.md"

THIRD_PARTY = "## Other compilers' kernels\n"
"""Where the part of the page begins that `sweep_third_party` writes."""

HEAD = """\
# What happens when a kernel is broken

Synchronisation bugs hide: a kernel without one of its waits usually gives the right numbers, until it does not. So the
tests break tilekit's own matmul kernels on purpose, one place at a time, run each on the emulator, and check that
somebody notices. Nothing in the emulator knows these kernels: mutations are made on the PTX text, and the same engine
changes the text of any compiler.

- `tests/mutations` makes the mutations, judges a part of them with every test run, and holds the exceptions below.
- `python -m tests.mutations.sweep` judges all of them and writes this page;
  `python -m tests.mutations.sweep cluster wait` prints the full reports on the mutations whose names have both words.
- [Kernels by Triton, Gluon and nvcc](#other-compilers-kernels) are broken in the same way, at the end of this page.

A mutation is **reported** when the emulator raises a fault or ends with a finding, a **wrong result** when only the
numbers tell, and **unnoticed** when neither does. Each is tried under up to {orders} schedules and seeds ({schedules})
until one of them reports it.
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


def page(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """The documentation, line by line."""
    from .judge import ORDERS

    yield HEAD.format(orders=len(ORDERS), schedules=", ".join(f"{s} {n}" for s, n in ORDERS))
    yield "## The launches\n"
    yield "| launch | kernel | problem | mutations | reported | wrong result | unnoticed |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in verdicts.items():
        case = cases()[name]
        count = Counter(v.caught if not v.reported else "reported" for v in found)
        shape = f"{case.m}x{case.n}x{case.k}, {case.spec.store} store"
        numbers = " | ".join(str(count[kind]) for kind in ("reported", WRONG_RESULT, NOT_CAUGHT))
        yield f"| {name} | {case.config} | {shape} | {len(found)} | {numbers} |"
    yield "\nEach launch runs on few clusters, so that every CTA computes several tiles and every ring wraps.\n"
    yield "## Unnoticed, and why\n"
    yield "| mutation | launches | |"
    yield "|---|---|---|"
    for entry in sorted(UNNOTICED, key=lambda e: e.harmless):
        names = sorted({v.mutation.name for n in entry.launches for v in verdicts[n] if entry.covers(n, v.mutation)})
        shown = "<br>".join(f"`{name}`" for name in names[:3]) + (
            f"<br>and {len(names) - 3} like it" if names[3:] else ""
        )
        verdict = "harmless" if entry.harmless else "**a gap**"
        yield f"| {shown} | {', '.join(entry.launches)} | {verdict}: {entry.why} |"
    yield "\nA test asserts that exactly these go unnoticed.\n"
    yield "## Everything\n"
    yield "Mutations of one kind at one place are one line, whatever the launch and however many instructions it has."
    yield from _tables(verdicts)


def _tables(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    kinds: dict[str, dict[tuple[str, str, str], list[Verdict]]] = {}
    for found in verdicts.values():
        for v in found:
            m = v.mutation
            kinds.setdefault(m.family, {}).setdefault((m.site, m.instruction, m.change), []).append(v)
    for family, rows in sorted(kinds.items(), key=lambda item: item[0] not in ORDER):
        yield f"\n### {family}\n"
        yield "| where | instruction | change | caught by | in its words |"
        yield "|---|---|---|---|---|"
        for (site, instruction, change), alike in rows.items():
            count = Counter(v.caught for v in alike)
            caught = ", ".join(f"{kind} ({n})" if len(alike) > 1 else kind for kind, n in count.most_common())
            words = next((excerpt(v) for v in alike if v.reported), "")
            yield f"| {site} | `{instruction}` | {change} | {caught} | {words} |"


def main(words: tuple[str, ...]) -> None:
    """Run the sweep."""
    names = list(cases())
    if words:
        for name in names:
            for v in verdicts_of(name, words):
                print(f"{name} | {v.mutation.name}: {v.caught} {v.schedule}\n{v.message}\n")
        return
    with ProcessPoolExecutor() as pool:
        verdicts = dict(zip(names, pool.map(verdicts_of, names), strict=True))
    unexplained = [
        f"{name} | {v.mutation.name}: {v.caught}"
        for name, found in verdicts.items()
        for v in found
        if (v.caught == NOT_CAUGHT) != (explanation(name, v.mutation) is not None)
    ]
    third_party = PAGE.read_text().partition(THIRD_PARTY)[2]
    PAGE.write_text("\n".join(page(verdicts)) + "\n\n" + THIRD_PARTY + third_party)
    print(f"wrote {PAGE}")
    if unexplained:
        sys.exit("not as documented in tests/mutations/known.py:\n" + "\n".join(unexplained))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
