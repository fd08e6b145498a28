"""What a mutation is: one change of a kernel's text, or of its launch, at one site."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .statements import Program, Statement

SCRATCH = "mutant"
"""A register that a mutation may declare in a scope of its own."""


@dataclass(frozen=True)
class Edit:
    """Characters `start` to `end` of the text become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutation:
    """One change.

    Attributes
    ----------
    family
        What kind of thing is broken: `wait`, `arrive`, `fence`, …
    instruction, site, change
        The opcode without its decoration, where it is, and what was done to it.
    edits
        Of the text.
    ordinal
        Among the mutations that are otherwise called the same.
    """

    family: str
    instruction: str
    site: str
    change: str
    edits: tuple[Edit, ...] = ()
    ordinal: int = 0

    @property
    def name(self) -> str:
        """Its name, the same as long as the component that emits the instruction is."""
        number = f" #{self.ordinal + 1}" if self.ordinal else ""
        return f"{self.site}: {self.instruction}{number}: {self.change}"

    def apply(self, text: str) -> str:
        """The mutated text."""
        for edit in sorted(self.edits, key=lambda e: -e.start):
            text = text[: edit.start] + edit.text + text[edit.end :]
        # Relaxed arrivals came with 8.6.
        return re.sub(r"^\.version 8\.[0-5]$", ".version 8.6", text, count=1, flags=re.MULTILINE)


Changes = Iterator[tuple[str, tuple[Edit, ...]]]
Operator = Callable[[Program, Statement], Changes]
OPERATORS: list[tuple[str, tuple[str, ...], Operator]] = []


def operator(family: str, *opcodes: str) -> Callable[[Operator], Operator]:
    """Register a function that yields (what is changed, edits) for a statement of one of these opcodes."""

    def register(function: Operator) -> Operator:
        OPERATORS.append((family, opcodes, function))
        return function

    return register


def mutations(text: str) -> list[Mutation]:
    """Every mutation of a kernel's text, in the order of the text."""
    from . import control, data, elsewhere, proxies, synchronisation  # noqa: F401  they register their operators

    program = Program.read(text)
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for statement in program.statements:
        for family, opcodes, function in OPERATORS:
            if not statement.is_a(*opcodes):
                continue
            for change, edits in function(program, statement):
                mutation = Mutation(family, plain_opcode(statement), statement.site, change, edits)
                key = (mutation.site, mutation.instruction, change)
                found.append(replace(mutation, ordinal=seen[key]))
                seen[key] += 1
    return found


def plain_opcode(statement: Statement) -> str:
    """The opcode without what does not tell two instructions apart to a reader."""
    parts = statement.opcode.split(".")
    dull = ("sync", "aligned", "b64", "b32", "u32", "b16", "x4", "parity", "bulk_group", "L2::cache_hint", "f32")
    kept = [p for p in parts if p not in dull and not p.startswith(("shared::", "mbarrier::", "m64", "m8"))]
    if parts[0] == "wgmma":
        return ".".join(parts[:2])
    return ".".join(kept)


def instead(statement: Statement, text: str) -> tuple[Edit, ...]:
    """Replace a statement."""
    return (Edit(statement.start, statement.end, text),)


def scoped(statement: Statement, kind: str, first: str, then: str) -> tuple[Edit, ...]:
    """Replace a statement by two in a scope with a scratch register."""
    return instead(statement, f"{{ .reg .{kind} {SCRATCH}; {first} {then} }}")


def offset(statement: Statement, index: int, amount: int, kind: str = "b32") -> tuple[Edit, ...]:
    """Add a number to a register operand, or to the register in an address operand."""
    operand = statement.operands[index]
    signed = f"add.{'s' + kind[1:]} {SCRATCH}, {operand.strip('[]').split('+')[0]}, {amount};"
    new = operand.replace(operand.strip("[]").split("+")[0], SCRATCH, 1)
    return scoped(statement, kind, signed, statement.with_operand(index, new))


def recounted(statement: Statement, amount: int) -> tuple[Edit, ...]:
    """Add a number to the arrival count of an mbarrier.init."""
    count = statement.operands[1]
    if not count.isdigit():
        return offset(statement, 1, amount)
    new = int(count) + amount
    if new > 0:
        return instead(statement, statement.with_operand(1, str(new)))
    # ptxas refuses a constant 0; what a register holds shows only when the kernel runs.
    return scoped(statement, "b32", f"mov.b32 {SCRATCH}, {new};", statement.with_operand(1, SCRATCH))
