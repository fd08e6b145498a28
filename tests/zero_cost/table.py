"""Write docs/zero-cost.md: `python -m tests.zero_cost.table`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilekit.runtime.toolchain import find_ptxas

from . import blackwell, hopper
from .pair import ARITHMETIC, Pair, difference, exact_difference
from .sass import histogram, is_arithmetic

PAIRS = (hopper.pair, blackwell.pair)
PAGE = Path(__file__).parents[2] / "docs" / "zero-cost.md"

HEAD = """\
# What the abstraction costs

Composing a kernel from Python objects should cost nothing on the device: what is traced should become the machine code
of a kernel written by hand. This page compares two kernels with such ones, flat, from top to bottom. They take the same
launches, and their results are checked exactly, on the emulator and, for sm_90a, with `pytest -m gpu` on a device.

`tests/zero_cost` assembles both of a pair with the same ptxas, disassembles them, finds every loop on the control flow
graph, tells by its instructions whose it is, and compares. Matrix instructions, copies, barriers, shared memory,
conversions and branches are compared opcode by opcode; address and counting arithmetic by number, since ptxas takes an
`IMAD` for an `IADD3` or a `LEA` as the pipes are free. Parts marked = are the same opcode by opcode altogether.

Every difference there is stands below with its reason. The tests fail when there is another one, and when one of these
is gone. An instruction of a loop counts in its row and in no outer loop's.
"""


def page() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    yield f"Assembled by ptxas {version()}."
    for make in PAIRS:
        both = make()
        yield f"\n## {both.kernel.target.name}\n"
        yield both.about
        yield from summary(both)
        yield "\n| where | traced, more | why |"
        yield "|---|---:|---|"
        for extra in both.extras:
            yield f"| {extra.part} | {_listed(extra.work)} | {extra.why} |"
        for name in both.shown:
            yield f"\nThe {name.partition(': ')[2]} of the {name.partition(':')[0]} role:\n"
            yield from opcodes(both, name)
    yield "\n---\n\n`python -m tests.zero_cost.table` writes this page."


def version() -> str:
    """The assembler's version."""
    return ".".join(map(str, find_ptxas().version))


def summary(both: Pair) -> Iterator[str]:
    """One row a part, and what the kernels need."""
    traced, written = both.traced, both.written
    yield "| | traced | by hand | difference |"
    yield "|---|---:|---:|---|"
    for part in both.parts:
        ours, theirs = traced.parts[part], written.parts[part]
        found = difference(ours, theirs)
        same = "none" if exact_difference(ours, theirs) else "="
        yield f"| {part}, instructions | {len(ours)} | {len(theirs)} | {_listed(found) or same} |"
    used, needed = traced.resources, written.resources
    rows = [
        ("registers of a thread at launch", used.registers, needed.registers),
        *(
            (f"highest {what} register", traced.program.highest_register(kind), written.program.highest_register(kind))
            for what, kind in (("vector", "R"), ("uniform", "UR"))
        ),
        ("spilled bytes", used.spill_store_bytes, needed.spill_store_bytes),
        ("shared memory, bytes", both.kernel.text.shared_bytes, both.shared_bytes),
    ]
    for what, ours_, theirs_ in rows:
        yield f"| {what} | {ours_} | {theirs_} | {'none' if ours_ == theirs_ else f'{ours_ - theirs_:+d}'} |"


def opcodes(both: Pair, part: str) -> Iterator[str]:
    """The instructions of a part by what they do, what only finds addresses and counts last."""
    ours, theirs = (histogram(assembled.parts[part]) for assembled in (both.traced, both.written))
    calculated = set(histogram(i for a in (both.traced, both.written) for i in a.parts[part] if is_arithmetic(i)))
    yield "| instruction | traced | by hand |"
    yield "|---|---:|---:|"
    for name in sorted(ours | theirs, key=lambda name: (name in calculated, name)):
        yield f"| {f'`{name}`' if name[0].isupper() else name} | {ours[name]} | {theirs[name]} |"


def _listed(work: dict[str, int]) -> str:
    return ", ".join(f"{count:+d} {kind if kind == ARITHMETIC else f'`{kind}`'}" for kind, count in work.items())


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text("\n".join(page()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
