"""Write docs/zero-cost.md: `python -m tests.zero_cost.table`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilekit.runtime.toolchain import find_ptxas

from .hopper import LOAD_K, MMA_K, pair
from .pair import ARITHMETIC, Pair, difference
from .sass import histogram, is_arithmetic

PAGE = Path(__file__).parents[2] / "docs" / "zero-cost.md"

HEAD = """\
# What the abstraction costs

Composing a kernel from Python objects should cost nothing on the device: what is traced should become the machine code
of a kernel written by hand. This page compares it with one:
[matmul_sm90a.ptx](../tests/zero_cost/matmul_sm90a.ptx) is the algorithm of the default bf16 matmul (tile 128x256,
cluster 2x1, two consumer warpgroups, one group of wgmma in flight, TMA stores), flat, from top to bottom. It takes the
same launch, and its results are checked exactly, on the emulator and with `pytest -m gpu` on a device.

`tests/zero_cost` assembles both with the same ptxas, disassembles them, finds every loop on the control flow graph,
tells by its instructions whose it is (`UTMALDG`: the load role; `HGMMA`: the mma role; `UTMASTG`: its epilogue), and
compares. Matrix instructions, copies, barriers, shared memory, conversions and branches are compared opcode by opcode;
address and counting arithmetic by number, since ptxas takes an `IMAD` for an `IADD3` or a `LEA` as the pipes are free.
The k-loop of the mma role and the retries of both waits are compared opcode by opcode altogether.

Every difference there is stands below with its reason. The tests fail when there is another one, and when one of these
is gone. An instruction of a loop counts in its row and in no outer loop's; 171 of those in the mma role's tile loop, in
both kernels, are zeros for an empty sum (K = 0), jumped over by everybody else.
"""


def page() -> Iterator[str]:
    """The page, line by line."""
    both = pair()
    yield HEAD
    yield f"Assembled by ptxas {version()} for {both.kernel.target.name}.\n"
    yield from summary(both)
    yield "\n## The differences, and why\n"
    yield "| where | traced, more | why |"
    yield "|---|---:|---|"
    for extra in both.extras:
        yield f"| {extra.part} | {_listed(extra.work)} | {extra.why} |"
    for name in (MMA_K, LOAD_K):
        yield f"\n## The {name.partition(': ')[2]} of the {name.partition(':')[0]} role\n"
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
    for part in written.parts:
        ours, theirs = traced.parts[part], written.parts[part]
        found = difference(ours, theirs)
        yield f"| {part}, instructions | {len(ours)} | {len(theirs)} | {_listed(found) or 'none'} |"
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
