"""Judge the mutations of other compilers' kernels and write their part of docs/mutations.md.

`python -m tests.mutations.sweep_third_party`; with words, as in `sweep`, print full reports instead.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from .judge import NOT_CAUGHT, WRONG_RESULT, Verdict, judge
from .planted import PLANTED
from .sweep import PAGE, THIRD_PARTY, excerpt
from .third_party import KERNELS, PROTOCOL, chosen, kernels
from .third_party_known import UNNOTICED, explanation

HEAD = """
The same engine breaks kernels that Triton, Gluon and nvcc compiled, out of the [corpus](emulator-corpus.md). Nothing in
their text says what a role or a barrier is called: reports name warps, lines and addresses. Mutated are all
instructions that order something, and the first of each kind that moves or multiplies.

- `tests/mutations/third_party.py` names the kernels; a part of their mutations is judged with every test run.
- `python -m tests.mutations.sweep_third_party` judges all of them and writes what follows.

### Three bugs of the kind that people make
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


def section(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    """The part of the page, line by line."""
    yield HEAD
    for index, bug in enumerate(PLANTED):
        yield f"**{bug.title.capitalize()}** (`{bug.kernel}`). {bug.story}\n"
        yield f"```text\n{planted_report(index)}\n```\n"
    every = [v for found in verdicts.values() for v in found]
    order = [v for v in every if v.mutation.family in PROTOCOL]
    yield f"### {len(every)} mutations of {len(verdicts)} kernels\n"
    yield (
        f"{len(order)} of them break order or protocol: {sum(v.reported for v in order)} are reported, "
        f"{sum(v.caught == WRONG_RESULT for v in order)} show in the result only, "
        f"{sum(v.caught == NOT_CAUGHT for v in order)} go unnoticed.\n"
    )
    yield "| kernel | | mutations | reported | wrong result | unnoticed, harmless | unnoticed, a gap |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in verdicts.items():
        count = Counter(v.caught if not v.reported else "reported" for v in found)
        missed = [explanation(name, v.mutation) for v in found if v.caught == NOT_CAUGHT]
        gaps = sum(entry is not None and not entry.harmless for entry in missed)
        numbers = f"{count['reported']} | {count[WRONG_RESULT]} | {len(missed) - gaps} | {gaps}"
        yield f"| `{name}` | {KERNELS[name]} | {len(found)} | {numbers} |"
    yield "\n| family | mutations | caught by |"
    yield "|---|---|---|"
    for family in dict.fromkeys(v.mutation.family for v in every):
        count = Counter(v.caught for v in every if v.mutation.family == family)
        yield f"| {family} | {count.total()} | {', '.join(f'{kind} ({n})' for kind, n in count.most_common())} |"
    yield "\n### Unnoticed in other compilers' kernels, and why\n"
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
    yield "\n### Every mutation of other compilers' kernels"
    for name, found in verdicts.items():
        yield f"\n#### {name}\n"
        yield "| where | instruction | change | caught by | in its words |"
        yield "|---|---|---|---|---|"
        for v in found:
            m = v.mutation
            known = explanation(name, m)
            words = excerpt(v) if v.reported else known.why if known and v.caught == NOT_CAUGHT else ""
            yield f"| {m.site} | `{m.instruction}` | {m.change} | {v.caught} | {words} |"


def main(words: tuple[str, ...]) -> None:
    """Run the sweep."""
    if words:
        for name in KERNELS:
            for v in verdicts_of(name, words):
                print(f"{name} | {v.mutation.name}: {v.caught} {v.schedule}\n{v.message}\n")
        return
    with ProcessPoolExecutor() as pool:
        verdicts = dict(zip(KERNELS, pool.map(verdicts_of, KERNELS), strict=True))
    head = PAGE.read_text().partition(THIRD_PARTY)[0].rstrip("\n")
    PAGE.write_text(f"{head}\n\n{THIRD_PARTY}" + "\n".join(section(verdicts)) + "\n")
    print(f"wrote {PAGE}")
    wrong = [
        f"{name} | {v.mutation.name}: {v.caught}"
        for name, found in verdicts.items()
        for v in found
        if (v.caught == NOT_CAUGHT and explanation(name, v.mutation) is None)
        or (v.caught == WRONG_RESULT and v.mutation.family in PROTOCOL)
    ]
    if wrong:
        sys.exit("not as documented in tests/mutations/third_party_known.py:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
