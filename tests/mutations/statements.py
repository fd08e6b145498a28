"""PTX text as statements with their places, so that one of them can be changed and the rest stays as written.

Works on the text of any compiler: statements may span lines or share one, registers may have any names. A trailing
`//@ role component file:line` says where an instruction comes from; without it a site is known by its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_GAP = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_LABEL = re.compile(r"[\w$%]+\s*:(?!:)")
_DIRECTIVE = re.compile(r"\.[\w.]+[^;\n{=]*(?:=[^;]*)?;?")
_INSTRUCTION = re.compile(r"(?:@(?P<guard>!?[\w$%]+)\s+)?(?P<opcode>[a-z][\w.:]*)(?P<operands>[^;]*);")
_NOTE = re.compile(r"[^\n]*?//@\s*(?P<role>\S+)\s+(?P<component>\S+)\s+\S+:\d+")


@dataclass(frozen=True)
class Statement:
    """One instruction.

    Attributes
    ----------
    index
        Among the instructions of the module.
    start, end
        Its characters in the text, guard and semicolon included.
    line
        In the text, from 1.
    guard
        Predicate, with its `!`; empty if there is none.
    opcode, arguments
        Everything up to the first blank, and the operands as written.
    role, component
        From its note; empty where there is none.
    """

    index: int
    start: int
    end: int
    line: int
    guard: str
    opcode: str
    arguments: str
    role: str
    component: str

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Operands, split at the commas outside brackets."""
        return split(self.arguments)

    @property
    def site(self) -> str:
        """Where it is, for people: role and component, or the line."""
        return f"{self.role} {self.component}" if self.component else f"line {self.line}"

    def is_a(self, *parts: str) -> bool:
        """Whether the opcode begins with a dotted prefix of `parts`."""
        return any(self.opcode == part or self.opcode.startswith(part + ".") for part in parts)

    def written(
        self, opcode: str | None = None, operands: tuple[str, ...] | None = None, guard: str | None = None
    ) -> str:
        """The statement with some parts replaced."""
        condition = self.guard if guard is None else guard
        prefix = f"@{condition} " if condition else ""
        return f"{prefix}{opcode or self.opcode} {', '.join(self.operands if operands is None else operands)};"

    def with_operand(self, index: int, operand: str) -> str:
        """The statement with one operand replaced."""
        operands = list(self.operands)
        operands[index] = operand
        return self.written(operands=tuple(operands))


@dataclass(frozen=True)
class Program:
    """The statements of a module, and where each label stands: a name may be used again in another scope."""

    text: str
    statements: tuple[Statement, ...]
    labels: dict[str, list[int]]

    @classmethod
    def read(cls, text: str) -> Program:
        """Find the statements in `text`."""
        statements: list[Statement] = []
        labels: dict[str, list[int]] = {}
        at, line = 0, 1
        while at < len(text):
            for pattern in (_GAP, _LABEL, _DIRECTIVE, _INSTRUCTION):
                match = pattern.match(text, at)
                if match is not None:
                    break
            else:
                line += text[at] == "\n"
                at += 1
                continue
            if pattern is _LABEL:
                labels.setdefault(match.group().rstrip(": "), []).append(len(statements))
            elif pattern is _INSTRUCTION:
                note = _NOTE.match(text, match.end())
                role, component = (note["role"], note["component"]) if note else ("", "")
                statements.append(
                    Statement(
                        len(statements), match.start(), match.end(), line,
                        match["guard"] or "", match["opcode"], match["operands"].strip(), role, component,
                    )
                )  # fmt: skip
            line += match.group().count("\n")
            at = match.end()
        return cls(text, tuple(statements), labels)

    def after(self, statement: Statement, count: int = 1) -> tuple[Statement, ...]:
        """The next statements in the text."""
        return self.statements[statement.index + 1 : statement.index + 1 + count]

    def before(self, statement: Statement, count: int = 1) -> tuple[Statement, ...]:
        """The statements in the text that come before."""
        return self.statements[max(0, statement.index - count) : statement.index]

    def jumps_back(self, statement: Statement) -> bool:
        """Whether a branch goes to an earlier statement."""
        places = self.labels.get(statement.operands[-1], [])
        nearest = min(places, key=lambda place: abs(place - statement.index), default=statement.index + 1)
        return nearest <= statement.index


def split(arguments: str) -> tuple[str, ...]:
    """Operands of an instruction, split at the commas outside brackets."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())
