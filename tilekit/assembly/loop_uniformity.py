"""Whether what was uniform where it was read still is when a loop comes round again.

A trace is written once, from top to bottom, and `Value.uniform` is what was known by then. A register that is
overwritten further down a loop with something that differs from lane to lane differs at the loop's top, too, from its
second round on.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from tilekit.assembly.accesses import accessed
from tilekit.assembly.errors import TraceError
from tilekit.assembly.trace import EndIf, EndLoop, If, Line, Loop, Placement, Statement


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
        _Walk(lines, _ends(lines), {id(statement) for statement in lost}, broadcasts).body(0, len(lines))


@dataclass
class _Walk:
    """Registers that may differ from lane to lane though they were uniform when they were read.

    Attributes
    ----------
    lines
        The whole trace.
    ends
        By index of a branch's or a loop's line, that of its end.
    lost
        Identities of the statements at which that begins.
    broadcasts
        Names of registers that never vary.
    varying
        By name, the line of that statement.
    around
        What diverges around the present line, outermost first: its words, and the statement to blame.
    """

    lines: Sequence[Line]
    ends: dict[int, int]
    lost: set[int]
    broadcasts: Set[str]
    varying: dict[str, Line] = field(default_factory=dict)
    around: list[tuple[str, Line]] = field(default_factory=list)

    def body(self, start: int, stop: int) -> None:
        """Go through lines in order; loops again until nothing more varies."""
        at = start
        while at < stop:
            line = self.lines[at]
            end = self.ends.get(at)
            if end is None:
                # Where nothing varies, as in most of a kernel, a write changes nothing here.
                if self.varying or self.around or id(line.statement) in self.lost:
                    self._line(line)
            elif isinstance(line.statement, If):
                self._branch(line.statement, at, end)
                at = end
            else:
                self._loop(at, end)
                at = end
            at += 1

    def _branch(self, opened: If, at: int, end: int) -> None:
        blame = self.varying.get(opened.condition.text)
        before = self.varying.copy()
        if blame is not None:
            self.around.append((f"the branch at {self.lines[at].origin}", blame))
        self.body(at + 1, end)
        if blame is not None:
            self.around.pop()
        self.varying = before | self.varying  # other lanes, or other launches, jumped over it

    def _loop(self, at: int, end: int) -> None:
        last = self.lines[end]
        assert isinstance(last.statement, EndLoop)
        while True:
            known = set(self.varying)
            before = self.varying.copy()
            blame = self.varying.get(last.statement.again.text)
            if blame is not None:
                self.around.append((f"the end of the loop at {last.origin}", blame))
            self.body(at + 1, end)
            again = self.varying.get(last.statement.again.text)
            if blame is not None:
                self.around.pop()
            self.varying = before | self.varying
            if set(self.varying) == known and (blame is None) == (again is None):
                return

    def _line(self, line: Line) -> None:
        statement = line.statement
        if self.around and isinstance(statement, Placement) and statement.fragment.aligned:
            what, blame = self.around[-1]
            raise TraceError(
                f"fragment {statement.fragment.name}, placed by {line.origin}, must be executed by whole warps, but "
                f"lanes diverge at {what}: what it rests on is uniform only in the first round of a loop, since "
                f"{blame.origin} assigns it a value that differs from lane to lane. Make that value uniform, for "
                "example with w.broadcast(value), or put it into a register of its own",
                code="TK-TRACE-020",
            )
        why = line if id(statement) in self.lost else self._blame(statement)
        for name in accessed(statement)[1]:
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
        for name in accessed(statement)[0]:
            if name in self.varying:
                return self.varying[name]
        return None


def _ends(lines: Sequence[Line]) -> dict[int, int]:
    """Where each branch and loop ends, by where it begins."""
    found: dict[int, int] = {}
    open_: list[tuple[int, If | Loop]] = []
    for index, line in enumerate(lines):
        statement = line.statement
        if isinstance(statement, (If, Loop)):
            open_.append((index, statement))
        elif isinstance(statement, (EndIf, EndLoop)):
            begin, opened = open_.pop()
            assert statement.opened is opened
            found[begin] = index
    return found
