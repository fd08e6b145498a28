"""Judge the mutations of other compilers' kernels: `python -m tests.mutations.sweep_third_party`.

Writes `results_third_party.md`, and the tables of docs/mutations.md that are about them. With words, as in `sweep`,
print full reports instead.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.generated import with_tables

from .judge import NOT_CAUGHT, WRONG_RESULT, Verdict, judge
from .planted import PLANTED
from .sweep import PAGE, excerpt, families, run
from .third_party import KERNELS, PROTOCOL, chosen, kernels
from .third_party_known import UNNOTICED, explanation

RESULTS = Path(__file__).with_name("results_third_party.md")

HEAD = """\
# Every mutation of other compilers' kernels

Written by `python -m tests.mutations.sweep_third_party`; [docs/mutations.md](../../docs/mutations.md) says what it
means.
"""


def verdicts_of(name: str, words: tuple[str, ...] = ()) -> list[Verdict]:
    """The verdicts on the mutations of one kernel, or on those whose name has all `words`."""
    kernel = kernels()[name]
    return [judge(kernel, m) for m in chosen(kernel) if all(w in f"{name} {m.family} {m.name}" for w in words)]


def planted_report(index: int) -> str:
    """What the emulator says about a planted bug, without the warps and accesses that repeat the same."""
    bug = PLANTED[index]
    kernel = kernels()[bug.kernel]
    lines = judge(kernel, bug.mutation(kernel.text)).message.splitlines()
    if bug.caught == "race":  # the first pair of accesses, without the further ones that follow it
        return "\n".join(itertools.takewhile(lambda line: not line.startswith("  found "), lines))
    start = next(i for i, line in enumerate(lines) if "0xc480" in line)
    hint = next(line for line in lines if line.startswith("  hint:"))
    return "\n".join([lines[0], lines[1], "    …", *lines[start : start + 4], "    …", hint])


def planted() -> Iterator[str]:
    """The planted bugs, and what is said about them."""
    for index, bug in enumerate(PLANTED):
        yield f"**{bug.title.capitalize()}** (`{bug.kernel}`). {bug.story}\n"
        yield f"```text\n{planted_report(index)}\n```\n"


def by_kernel(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What became of the mutations of each kernel."""
    every = [v for found in verdicts.values() for v in found]
    order = [v for v in every if v.mutation.family in PROTOCOL]
    yield (
        f"{len(every)} mutations of {len(verdicts)} kernels; {len(order)} of them break order or protocol, of which "
        f"{sum(v.reported for v in order)} are reported, {sum(v.caught == WRONG_RESULT for v in order)} show in the "
        f"result only, and {sum(v.caught == NOT_CAUGHT for v in order)} go unnoticed.\n"
    )
    yield "| kernel | | mutations | reported | wrong result | unnoticed, harmless | unnoticed, a gap |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in verdicts.items():
        count = Counter(v.caught if not v.reported else "reported" for v in found)
        missed = [explanation(name, v.mutation) for v in found if v.caught == NOT_CAUGHT]
        gaps = sum(entry is None or not entry.harmless for entry in missed)
        numbers = f"{count['reported']} | {count[WRONG_RESULT]} | {len(missed) - gaps} | {gaps}"
        yield f"| `{name}` | {KERNELS[name]} | {len(found)} | {numbers} |"


def unnoticed(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """What nothing noticed, and why."""
    yield "| mutation | kernels | |"
    yield "|---|---|---|"
    for entry in UNNOTICED:
        covered = [
            (name, v.mutation.name)
            for name, found in verdicts.items()
            for v in found
            if v.caught == NOT_CAUGHT and explanation(name, v.mutation) is entry
        ]
        shown = "<br>".join(f"`{m}`" for _, m in covered[:2])
        shown += f"<br>and {len(covered) - 2} like it" if covered[2:] else ""
        where = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in covered))
        yield f"| {shown} | {where} | {'harmless' if entry.harmless else '**a gap**'}: {entry.why} |"


def results(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """All of them."""
    yield HEAD.rstrip("\n")
    for name, found in verdicts.items():
        yield f"\n## {name}\n"
        yield "| where | instruction | change | caught by | in its words |"
        yield "|---|---|---|---|---|"
        for v in found:
            m = v.mutation
            known = explanation(name, m)
            words = excerpt(v) if v.reported else known.why if known and v.caught == NOT_CAUGHT else ""
            words = words.replace("](", "](../../docs/")  # reasons are the page's, whose links begin there
            yield f"| {m.site} | `{m.instruction}` | {m.change} | {v.caught} | {words} |"


def write(verdicts: dict[str, list[Verdict]]) -> list[str]:
    """Write results and page; returns what is not as `third_party_known` has it."""
    RESULTS.write_text("\n".join(results(verdicts)) + "\n", "utf-8")
    tables = {
        "planted": planted(),
        "others": by_kernel(verdicts),
        "others-families": families((v for found in verdicts.values() for v in found), PROTOCOL),
        "others-unnoticed": unnoticed(verdicts),
    }
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables), "utf-8")
    return [
        f"{name} | {v.mutation.name}: {v.caught}"
        for name, found in verdicts.items()
        for v in found
        if (v.caught == NOT_CAUGHT and explanation(name, v.mutation) is None)
        or (v.caught == WRONG_RESULT and v.mutation.family in PROTOCOL)
    ]


if __name__ == "__main__":
    run(list(KERNELS), verdicts_of, write, "third_party_known.py", tuple(sys.argv[1:]))
