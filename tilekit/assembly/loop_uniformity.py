"""Whether what was uniform where it was read still is when a loop comes round again.

A trace is written once, from top to bottom, and `Value.uniform` is what was known by then. A register that is
overwritten further down a loop with something that differs from lane to lane differs at the loop's top, too, from its
second round on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from tilekit.assembly.errors import TraceError
from tilekit.assembly.trace import EndIf, EndLoop, If, Line, Loop, Operation, Placement, Statement
from tilekit.assembly.values import RegisterTile, Value


def check_loops(lines: Sequence[Line], lost: Sequence[Statement], broadcasts: Set[str]) -> None:
    """Check that no aligned fragment stands where lanes have diverged by a register that was uniform once.

    Parameters
    ----------
    lines
        The whole trace.
    lost
        The statements that took a register's uniformity from it.
    broadcasts
        Names of registers that are uniform whatever they were made of.

    Raises
    ------
    TraceError
        ``TK-TRACE-020``, naming the fragment, what diverges around it, and the assignment.
    """
    if lost:
        _Walk({id(statement) for statement in lost}, broadcasts).body(list(lines))


@dataclass
class _Walk:
    """Registers that may differ from lane to lane though they were uniform when they were read.

    Attributes
    ----------
    lost
        Identities of the statements at which that begins.
    broadcasts
        Names of registers that never vary.
    varying
        By name, the line of that statement.
    around
        What diverges around the present line, outermost first: its words, and the statement to blame.
    """

    lost: set[int]
    broadcasts: Set[str]
    varying: dict[str, Line] = field(default_factory=dict)
    around: list[tuple[str, Line]] = field(default_factory=list)

    def body(self, lines: Sequence[Line]) -> None:
        """Go through lines in order; loops again until nothing more varies."""
        at = 0
        while at < len(lines):
            statement = lines[at].statement
            if isinstance(statement, If):
                end = _end(lines, at, EndIf, statement)
                self._branch(statement, lines[at], lines[at + 1 : end])
                at = end
            elif isinstance(statement, Loop):
                end = _end(lines, at, EndLoop, statement)
                self._loop(lines[at + 1 : end], lines[end])
                at = end
            else:
                self._line(lines[at])
            at += 1

    def _branch(self, opened: If, line: Line, inside: Sequence[Line]) -> None:
        blame = self.varying.get(opened.condition.text)
        before = self.varying.copy()
        if blame is not None:
            self.around.append((f"the branch at {line.origin}", blame))
        self.body(inside)
        if blame is not None:
            self.around.pop()
        self.varying = before | self.varying  # other lanes, or other launches, jumped over it

    def _loop(self, inside: Sequence[Line], end: Line) -> None:
        assert isinstance(end.statement, EndLoop)
        while True:
            known = set(self.varying)
            before = self.varying.copy()
            blame = self.varying.get(end.statement.again.text)
            if blame is not None:
                self.around.append((f"the end of the loop at {end.origin}", blame))
            self.body(inside)
            again = self.varying.get(end.statement.again.text)
            if blame is not None:
                self.around.pop()
            self.varying = before | self.varying
            if set(self.varying) == known and (blame is None) == (again is None):
                return

    def _line(self, line: Line) -> None:
        statement = line.statement
        if isinstance(statement, Placement) and statement.fragment.aligned and self.around:
            what, blame = self.around[-1]
            raise TraceError(
                f"fragment {statement.fragment.name}, placed by {line.origin}, must be executed by whole warps, but "
                f"lanes diverge at {what}: what it rests on is uniform only in the first round of a loop, since "
                f"{blame.origin} assigns it a value that differs from lane to lane. Make that value uniform, for "
                "example with w.broadcast(value), or put it into a register of its own",
                code="TK-TRACE-020",
            )
        why = line if id(statement) in self.lost else self._blame(statement)
        for name in _written(statement):
            if why is not None and name not in self.broadcasts:
                self.varying[name] = why
            else:
                self.varying.pop(name, None)

    def _blame(self, statement: Statement) -> Line | None:
        """The line because of which what a statement writes varies."""
        if self.around:
            return self.around[-1][1]
        if isinstance(statement, Placement) and not statement.fragment.uniform:
            return None  # its results were known to vary, or are the same in every lane whatever it is given
        return next((self.varying[name] for name in _read(statement) if name in self.varying), None)


def _end(lines: Sequence[Line], at: int, kind: type[EndIf] | type[EndLoop], opened: If | Loop) -> int:
    """Where the construct that begins at a line ends."""
    for index in range(at + 1, len(lines)):
        statement = lines[index].statement
        if isinstance(statement, kind) and statement.opened is opened:
            return index
    raise AssertionError(f"{opened} has no end")


def _names(operand: object) -> Iterator[str]:
    if isinstance(operand, Value):
        yield operand.text
    elif isinstance(operand, RegisterTile):
        yield from (value.text for value in operand)


def _read(statement: Statement) -> Iterator[str]:
    """Names of the registers that a statement reads."""
    if isinstance(statement, Operation):
        for source in statement.operands:
            yield from _names(source)
    elif isinstance(statement, Placement):
        for operand in statement.fragment.operands:
            if operand.direction != "out":
                yield from _names(statement.bound[operand.name])


def _written(statement: Statement) -> Iterator[str]:
    """Names of the registers that a statement writes."""
    if isinstance(statement, Operation):
        yield statement.result.text
    elif isinstance(statement, Placement):
        for operand in statement.fragment.operands:
            if operand.direction != "in":
                yield from _names(statement.bound[operand.name])
