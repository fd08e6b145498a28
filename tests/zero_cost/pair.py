"""Two kernels of one algorithm, one traced and one written by hand, and how their machine code differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.runtime.assembler import assemble, disassemble
from tilekit.runtime.resources import Resources

from .sass import Instruction, Loop, Program, histogram, is_arithmetic, read

ONCE = "once: set-up and end"
"""The part of a kernel that stands in no loop."""

ARITHMETIC = "arithmetic"
"""Stands for all address and counting arithmetic together: which instructions do it is ptxas's taste."""


@dataclass(frozen=True)
class Extra:
    """What the traced kernel does beyond the one written by hand, and why.

    Attributes
    ----------
    part
        Where: a loop, or `ONCE`.
    work
        How many instructions of each kind: an opcode, or `ARITHMETIC`.
    why
        Why the traced kernel has them, and what would remove them.
    """

    part: str
    work: dict[str, int]
    why: str


@dataclass(frozen=True)
class Assembled:
    """A kernel in machine code, its instructions sorted into parts.

    Attributes
    ----------
    program, resources
        The code, and what ptxas says it needs.
    parts
        The instructions of each loop that are in no inner loop, by the loop's name; and those in no loop.
    """

    program: Program
    resources: Resources
    parts: dict[str, list[Instruction]]


@dataclass(frozen=True)
class Pair:
    """A traced kernel and one written by hand.

    Attributes
    ----------
    kernel
        The traced one.
    by_hand, entry
        The file of the other, and its entry.
    shared_bytes
        Dynamic shared memory that the one written by hand needs.
    about, shown
        What the page says of the pair, and the parts whose instructions it lists.
    name_loops
        Finds every loop by what is done in it.
    parts
        The loops' names and `ONCE`.
    extras
        The differences there are; a part that none is about is the same, opcode by opcode.
    """

    kernel: MatmulKernel
    by_hand: Path
    entry: str
    shared_bytes: int
    about: str
    shown: tuple[str, ...]
    name_loops: Callable[[Program], dict[str, Loop]]
    parts: tuple[str, ...]
    extras: tuple[Extra, ...]

    @cached_property
    def traced(self) -> Assembled:
        """The traced kernel, assembled."""
        return self.assembled(self.kernel.ptx, self.kernel.name)

    @cached_property
    def written(self) -> Assembled:
        """The kernel written by hand, assembled."""
        return self.assembled(self.by_hand.read_text("utf-8"), self.entry)

    def assembled(self, ptx: str, entry: str) -> Assembled:
        """Assemble a text of the pair's algorithm and take it apart.

        Raises
        ------
        ValueError
            For a loop that `name_loops` does not name.
        """
        machine_code = assemble(ptx, self.kernel.target.name, kernel_name=entry)
        program = read(disassemble(machine_code.image))
        loops = self.name_loops(program)
        if {id(loop) for loop in loops.values()} != {id(loop) for loop in program.loops}:
            raise ValueError(f"{entry} has {len(program.loops)} loops, and not one of each of: {', '.join(loops)}")
        parts = {name: loop.own for name, loop in loops.items()} | {ONCE: program.once}
        return Assembled(program, machine_code.resources, parts)

    def allowed(self, part: str) -> Counter[str]:
        """What `extras` allow in a part."""
        total: Counter[str] = Counter()
        for extra in self.extras:
            if extra.part == part:
                total.update(extra.work)
        return total


def in_order(names: Sequence[str], loops: Sequence[Loop]) -> dict[str, Loop]:
    """Name loops by where they begin.

    Raises
    ------
    ValueError
        Where there are not as many as names.
    """
    return dict(zip(names, sorted(loops, key=lambda loop: min(loop.blocks)), strict=True))


def difference(traced: list[Instruction], written: list[Instruction]) -> dict[str, int]:
    """What the first does more often (positive) or less often than the second; all arithmetic is one kind."""

    def kinds(instructions: list[Instruction]) -> Counter[str]:
        return Counter(ARITHMETIC if is_arithmetic(i) else i.opcode for i in instructions)

    return _difference(kinds(traced), kinds(written))


def exact_difference(traced: list[Instruction], written: list[Instruction]) -> dict[str, int]:
    """The same, opcode by opcode, arithmetic too (see `sass.work`)."""
    return _difference(histogram(traced), histogram(written))


def _difference(ours: Counter[str], theirs: Counter[str]) -> dict[str, int]:
    return {kind: ours[kind] - theirs[kind] for kind in sorted(ours | theirs) if ours[kind] != theirs[kind]}
