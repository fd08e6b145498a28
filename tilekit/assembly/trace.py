"""The trace as it grows: what the kernel does, in statements that no instruction set has spelled yet.

A dialect (`tilekit.assembly.dialect`) turns a finished `Trace` into text. Statements hold values rather than their
names, so that a dialect may first look at the whole kernel: an instruction set without virtual registers allocates
them by it, and one with registers for uniform values works out which stay uniform (`Value.uniform` is what was known
when a statement was made; what a loop assigns later is not in it). Nothing changes a statement; they are not frozen
because a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tilekit.assembly.numbers import Number
from tilekit.assembly.provenance import Origin
from tilekit.assembly.types import RegisterType

if TYPE_CHECKING:
    from tilekit.assembly.fragment import Fragment
    from tilekit.assembly.shared import SharedMemory
    from tilekit.assembly.values import RegisterTile, Value
    from tilekit.assembly.writer import Parameter, Role
    from tilekit.targets import Target

Source: TypeAlias = "Value | Number"
Bound: TypeAlias = "Value | Number | RegisterTile | str"
"""What stands for an operand of a fragment: registers, a constant, or the words of an immediate."""

OPERATIONS = {
    "move": "the operand",
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b, of integers the low half",
    "div": "a / b of integers, toward zero",
    "rem": "a - (a / b) * b of integers",
    "min": "the smaller of a and b",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "not": "~a",
    "shl": "a << b, b a u32; 0 where b is the width or more",
    "shr": "a >> b, b a u32; of signed integers arithmetic; 0 or the sign where b is the width or more",
    "lt": "whether a < b",
    "le": "whether a <= b",
    "gt": "whether a > b",
    "ge": "whether a >= b",
    "eq": "whether a == b",
    "ne": "whether a != b; this and the others are false of NaN",
    "select": "a where the third operand holds, else b",
    "widen": "the u64 product of two u32",
}
"""Every operation that a dialect spells, and what its result is."""

OPERANDS = {name: {"move": 1, "not": 1, "select": 3}.get(name, 2) for name in OPERATIONS}
"""How many operands each takes."""


@dataclass(slots=True, eq=False)
class Operation:
    """One of `OPERATIONS` on operands of `type`; comparisons have a predicate for a result, ``widen`` a u64."""

    name: str
    type: RegisterType
    result: Value
    operands: tuple[Source, ...]


@dataclass(slots=True, eq=False)
class SharedBase:
    """The address of the CTA's dynamic shared memory."""

    result: Value


@dataclass(slots=True, eq=False)
class LoadParameter:
    """The value of a kernel parameter; of a tensor map its address."""

    parameter: Parameter
    result: Value


@dataclass(slots=True, eq=False)
class If:
    """Begin of what runs in the lanes in which `condition` is `holds`; `end` is a label's name for the end."""

    condition: Value
    holds: bool
    end: str


@dataclass(slots=True, eq=False)
class EndIf:
    """End of an `If`."""

    opened: If


@dataclass(slots=True, eq=False)
class Loop:
    """Begin of a loop that runs at least once, and is not to be unrolled; `top` is a label's name for its begin."""

    top: str


@dataclass(slots=True, eq=False)
class EndLoop:
    """End of a `Loop`: the lanes in which `again` holds go back."""

    opened: Loop
    again: Value


@dataclass(slots=True, eq=False)
class Placement:
    """A fragment with what stands for its operands, and a predicate for the lanes that run it: None, and all do."""

    fragment: Fragment
    bound: Mapping[str, Bound]
    lanes: Value | None = None


Statement: TypeAlias = Operation | SharedBase | LoadParameter | If | EndIf | Loop | EndLoop | Placement | str
"""A string is a line of the dialect's own."""


@dataclass(slots=True, eq=False)
class Line:
    """One statement, its nesting depth, the role that runs it, and the Python that asked for it."""

    statement: Statement
    depth: int
    role: str
    origin: Origin


@dataclass(slots=True, eq=False)
class Register:
    """A declared register; with a `count`, the registers ``<name>0`` to ``<name><count - 1>``."""

    name: str
    type: RegisterType
    count: int | None = None


@dataclass
class Scope:
    """A part of the kernel with registers of its own; `depth` is the nesting of its contents."""

    depth: int
    registers: list[Register] = field(default_factory=list)
    items: list[Line | Scope] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        """Every line, of nested scopes too, in order."""
        for item in self.items:
            if isinstance(item, Scope):
                yield from item.lines()
            else:
                yield item


@dataclass(frozen=True)
class Trace:
    """A finished kernel.

    Attributes
    ----------
    name, target
        The entry's symbol, and the chip.
    threads, cluster, resident
        Threads of a CTA, CTAs of a cluster, and CTAs that a multiprocessor is to hold at once.
    registers
        That a thread is launched with, at most.
    parameters, roles, shared
        What was declared.
    body
        What it does.
    """

    name: str
    target: Target
    threads: int
    cluster: int
    resident: int
    registers: int
    parameters: tuple[Parameter, ...]
    roles: tuple[Role, ...]
    shared: SharedMemory
    body: Scope
