"""What names mean at a place in the text: the registers, variables and labels of the ``{ }`` that are open there.

A name belongs to the innermost scope that declares it. Labels may be named before they are placed, so what they stand
for is found at the end of their function. Source: PTX ISA, sections 4.4 and 5.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from tilekit.emulator.ptx.language.lexer import Token
from tilekit.emulator.ptx.language.syntax import Function, LabelOperand, Register, Variable

COMPONENTS = ("xr", "yg", "zb", "wa")
"""What the components of a vector are called: ``.x`` or ``.r``, and so on (PTX ISA 6.4.2)."""


@dataclass(slots=True)
class Scope:
    """What one ``{ }`` declares."""

    registers: dict[str, tuple[Register, ...]] = field(default_factory=dict)
    """Under each name one register, or the components of a vector."""
    ranges: list[tuple[str, int, str, int]] = field(default_factory=list)
    """Prefix, how many, type and components of ``name<count>``."""
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[LabelOperand, ...]] = field(default_factory=dict)

    def taken(self, name: str) -> bool:
        """Whether something of this name is declared here."""
        return (
            name in self.registers
            or name in self.variables
            or name in self.labels
            or name in self.tables
            or any(_in_range(name, prefix, count) for prefix, count, _, _ in self.ranges)
        )

    def range_taken(self, prefix: str, count: int) -> str:
        """A name among ``prefix<count>`` that is declared here; empty where there is none."""
        if any(prefix == other for other, _, _, _ in self.ranges):
            return f"{prefix}<"
        known = (*self.registers, *self.variables, *self.labels, *self.tables) if count else ()
        return next((name for name in known if _in_range(name, prefix, count)), "")

    def new_registers(self, function: Function, name: str, kind: str, lanes: int = 1) -> tuple[Register, ...]:
        """Declare a register of `function`, or a vector of them."""
        names = [name] if lanes == 1 else [f"{name}.{component[0]}" for component in COMPONENTS[:lanes]]
        first = len(function.registers)
        created = tuple(Register(each, kind, first + n) for n, each in enumerate(names))
        function.registers += created
        self.registers[name] = created
        return created


class Scopes:
    """The scopes that are open, from the module's on."""

    def __init__(self) -> None:
        self._open = [Scope()]
        self._pending: list[tuple[LabelOperand, list[Scope], Token]] = []

    @property
    def innermost(self) -> Scope:
        """Where declarations go."""
        return self._open[-1]

    @property
    def outermost(self) -> Scope:
        """The module's."""
        return self._open[0]

    def open(self) -> Scope:
        """Enter a scope within."""
        self._open.append(Scope())
        return self.innermost

    def close(self) -> None:
        """Leave the innermost scope."""
        self._open.pop()

    def close_all(self) -> None:
        """Leave every scope but the module's, and forget the labels that were named there."""
        del self._open[1:]
        self._pending.clear()

    def registers(self, function: Function | None, name: str) -> tuple[Register, ...]:
        """The register of this name, or the components of the vector; empty if there is none.

        Those that ``name<count>`` declares come to be when they are named.
        """
        for scope in reversed(self._open):
            if name in scope.registers:
                return scope.registers[name]
            for prefix, count, kind, lanes in scope.ranges:
                if _in_range(name, prefix, count):
                    assert function is not None
                    return scope.new_registers(function, name, kind, lanes)
        return ()

    def variable(self, name: str) -> Variable | tuple[LabelOperand, ...] | None:
        """The variable of this name, or the targets of a table of branches."""
        for scope in reversed(self._open):
            if name in scope.variables:
                return scope.variables[name]
            if name in scope.tables:
                return scope.tables[name]
        return None

    def close_to(self, name: str, others: tuple[str, ...]) -> str:
        """A hint at the register, or at the one of `others`, whose name is most like this one."""
        return _hint(name, [*(known for scope in self._open for known in scope.registers), *others])

    def label(self, token: Token) -> LabelOperand:
        """What `token` names, a label that need not be placed yet."""
        operand = LabelOperand(token.text)
        self._pending.append((operand, list(self._open), token))
        return operand

    def resolve_labels(self) -> list[tuple[Token, str]]:
        """Find where the labels are that were named since the last time; return those that are nowhere, with a hint."""
        nowhere = []
        for operand, scopes, token in self._pending:
            found = [scope.labels[operand.name] for scope in scopes if operand.name in scope.labels]
            if not found:
                known = [name for scope in scopes for name in (*scope.labels, *scope.registers, *scope.variables)]
                nowhere.append((token, _hint(operand.name, known)))
                continue
            operand.position = found[-1]
        self._pending.clear()
        return nowhere


def _in_range(name: str, prefix: str, count: int) -> bool:
    """Whether ``prefix<count>`` declares a name."""
    if not name.startswith(prefix):
        return False
    tail = name[len(prefix) :]
    return tail.isdecimal() and tail.isascii() and len(tail) < 11 and int(tail) < count and str(int(tail)) == tail


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
