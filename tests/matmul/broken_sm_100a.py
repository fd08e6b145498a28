"""Breaking the Blackwell matmul on purpose: what is broken, and how a place in its text is found and changed.

Places are found by role, instruction and barrier (by its name in the text's shared-memory map), so that they stay the
same however the components compute their addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from tests.matmul.launches_sm_100a import pairs, single
from tests.matmul.matmul_launch import LaunchCase, computes
from tests.mutations.mutation import SCRATCH, Edit, Mutation, instead, recounted, scoped
from tests.mutations.statements import Program, Statement
from tilekit.dtypes import BF16

Edits = tuple[Edit, ...]
Change = Callable[[Program], Edits]

KERNELS: dict[str, LaunchCase] = {
    "one CTA": LaunchCase(single(128, 64, stages=2), k_blocks=3),
    "pair": LaunchCase(pairs(128, 64, stages=2), k_blocks=3),
    "cluster 2x2": LaunchCase(pairs(128, 32, (2, 2), stages=2), tiles=(3, 2), k_blocks=3),
    "deep": LaunchCase(single(128, 64, stages=8), tiles=(4, 2), k_blocks=1),
    "cluster 2x1": LaunchCase(single(128, 32, (2, 1), stages=8), tiles=(2, 1), k_blocks=8),
    "N-major": LaunchCase(single(128, 128, stages=2), computes(majors="mn"), k_blocks=2),
    "f32 N-major": LaunchCase(single(128, 64, stages=2), computes("f32 f32 f32", "mn"), k_blocks=2),
    "residual": LaunchCase(pairs(128, 128, stages=2, output_buffers=2), computes(residual=BF16), k_blocks=2),
    "load order": LaunchCase(
        pairs(128, 64, stages=3, load_order=True), computes(residual=BF16), tiles=(3, 1), k_blocks=5
    ),
    "shared sum": LaunchCase(single(128, 64, stages=8, split_k=2), tiles=(1, 1), k_blocks=3),
}
"""What is broken: every role and every barrier is in one of them."""


class Broken:
    """A bug.

    Attributes
    ----------
    name
        What was done.
    kernel
        Of `KERNELS`.
    change
        The edits of its text.
    caught
        Kind of report.
    words
        Patterns of what it must say.
    """

    def __init__(self, name: str, kernel: str, change: Change, caught: str = "", *words: str) -> None:
        self.name = name
        self.kernel = kernel
        self.change = change
        self.caught = caught
        self.words = words

    def __str__(self) -> str:
        return self.name

    def mutation(self) -> Mutation:
        """The bug as a change of the kernel's text."""
        return Mutation("planted", self.name, self.kernel, "", self.change(program_of(self.kernel)))


@cache
def program_of(kernel: str) -> Program:
    """The statements of one of `KERNELS`."""
    return Program.read(KERNELS[kernel].kernel.ptx)


# -- places ----------------------------------------------------------------------------------------------------------

_BARRIER = re.compile(r"//@shared (\S+) offset=(\d+) size=(\d+) .*kind=mbarrier")
_ADDRESSING = ("add", "sub", "mul", "mad", "mov", "mapa", "and", "or", "shl", "selp", "cvt")


def every(program: Program, role: str, opcode: str, barrier: str = "") -> list[Statement]:
    """The statements of a role whose opcode begins so, on one of the phases' barriers of an array if it is named."""
    found = [s for s in program.statements if s.role == role and s.is_a(opcode)]
    if barrier:
        found = [s for s in found if _barrier_of(program, s) == barrier]
    assert found, f"no {opcode} {barrier} in role {role}"
    return found


def one(program: Program, role: str, opcode: str, barrier: str = "", number: int = 0) -> Statement:
    """One of them."""
    return every(program, role, opcode, barrier)[number]


def barriers(program: Program) -> dict[str, range]:
    """The arrays of mbarriers, with their bytes."""
    return {name: range(int(offset), int(offset) + int(size)) for name, offset, size in _BARRIER.findall(program.text)}


def _barrier_of(program: Program, statement: Statement) -> str:
    """The array whose offset goes into the address that a statement on a barrier has."""
    arrays = barriers(program)
    operand = next(o for o in statement.operands if o.startswith("["))
    level, seen = {operand.strip("[]")}, set[str]()
    while level:
        definitions = [s for s in program.statements if s.operands and s.operands[0] in level and s.is_a(*_ADDRESSING)]
        numbers = [int(o) for s in definitions for o in s.operands if o.isdigit()]
        named = [name for name, place in arrays.items() for number in numbers if number in place]
        if named:
            return named[0]
        seen |= level
        level = {o for s in definitions for o in s.operands[1:] if not o.isdigit()} - seen
    return ""


def behind(program: Program, place: Statement, opcode: str) -> Statement:
    """The next statement behind another one, of the same role, whose opcode begins so."""
    return next(s for s in every(program, place.role, opcode) if s.index > place.index)


def branches(program: Program, role: str) -> list[Statement]:
    """A role's conditional branches forward."""
    return [s for s in every(program, role, "bra") if s.guard and not program.jumps_back(s)]


# -- changes ---------------------------------------------------------------------------------------------------------


def without(*statements: Statement) -> Edits:
    """Statements left out."""
    return tuple(e for s in statements for e in instead(s, ""))


def not_waiting(*waits: Statement) -> Edits:
    """Waits that succeed at once."""
    return tuple(e for s in waits for e in instead(s, f"setp.eq.u32 {s.operands[0]}, 0, 0;"))


def moved(what: Statement, place: Statement) -> Edits:
    """A statement behind another one."""
    return (*without(what), Edit(place.end, place.end, " " + what.written()))


def hoisted(program: Program, what: tuple[Statement, ...], place: Statement) -> Edits:
    """Statements, and what computes their operands, before another one."""
    chosen = {s.index: s for s in what}
    needed = {name for s in what for name in re.findall(r"\w+", s.arguments)}
    for s in reversed(program.statements[place.index + 1 : max(chosen)]):
        if s.is_a(*_ADDRESSING) and s.operands[0] in needed:
            chosen[s.index] = s
            needed |= set(re.findall(r"\w+", s.arguments))
    block = [s for _, s in sorted(chosen.items())]
    text = " ".join(s.written() for s in block)
    return (*without(*block), Edit(place.start, place.start, text + " "))


def removed(role: str, opcode: str, barrier: str = "", number: int | None = 0) -> Change:
    """Without one of a role's statements, or without all of them."""

    def change(program: Program) -> Edits:
        found = every(program, role, opcode, barrier)
        return without(*(found if number is None else [found[number]]))

    return change


def waits_removed(role: str, barrier: str) -> Change:
    """A role does not wait for a barrier."""
    return lambda program: not_waiting(*every(program, role, "mbarrier.try_wait", barrier))


def operand(
    role: str, opcode: str, index: int, value: Callable[[str], str], *, barrier: str = "", number: int | None = 0
) -> Change:
    """One operand replaced, of one of a role's statements or of all of them."""

    def change(program: Program) -> Edits:
        found = every(program, role, opcode, barrier)
        chosen = found if number is None else [found[number]]
        return tuple(e for s in chosen for e in instead(s, s.with_operand(index, value(s.operands[index]))))

    return change


def replaced(role: str, opcode: str, old: str, new: str) -> Change:
    """An immediate operand replaced, in the first of a role's statements that has it."""

    def change(program: Program) -> Edits:
        s = next(s for s in every(program, role, opcode) if old in s.operands)
        return instead(s, s.with_operand(s.operands.index(old), new))

    return change


def masked(role: str, opcode: str, index: int, operation: str, *, barrier: str = "") -> Change:
    """Another mask of CTAs: the old one, and a number, put through an operation such as ``and.b16 3``."""

    def change(program: Program) -> Edits:
        s = one(program, role, opcode, barrier)
        name, number = operation.split()
        return scoped(s, "b16", f"{name} {SCRATCH}, {s.operands[index]}, {number};", s.with_operand(index, SCRATCH))

    return change


def spelled(role: str, opcode: str, old: str, new: str) -> Change:
    """Part of an opcode replaced."""

    def change(program: Program) -> Edits:
        s = one(program, role, opcode)
        assert old in s.opcode, s.opcode
        return instead(s, s.written(s.opcode.replace(old, new)))

    return change


def count(barrier: str, amount: int) -> Change:
    """The arrival count of a barrier: so many more."""

    def change(program: Program) -> Edits:
        return recounted(one(program, "setup", "mbarrier.init", barrier), amount)

    return change


def half(number: str) -> str:
    """Half of a number."""
    return str(int(number) // 2)


def no_throttle(program: Program) -> Edits:
    """The scheduler and the load role wait for each other no more."""
    waits = [
        *every(program, "scheduler", "mbarrier.try_wait", "clc.began"),
        *every(program, "load", "mbarrier.try_wait", "clc.asked"),
    ]
    says = [
        *every(program, "scheduler", "mbarrier.arrive", "clc.asked"),
        *every(program, "load", "mbarrier.arrive", "clc.began"),
    ]
    return (*not_waiting(*waits), *without(*says))
