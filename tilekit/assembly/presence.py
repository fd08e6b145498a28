"""Where a register has a value: what a branch or a loop gave it is no value behind, for lanes or rounds that were not.

Python's names reach further than a branch or a loop of the device. A value that was made under `Writer.when` is none
in lanes that jumped over it, and one that was made in a loop is that of its last round, if there was a round: Python's
``s = s + v`` gathers nothing there, since its body is traced once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilekit.assembly.errors import TraceError
from tilekit.assembly.provenance import Origin, origin

if TYPE_CHECKING:
    from tilekit.assembly.values import Value


@dataclass(frozen=True)
class Condition:
    """What a branch asks: a predicate register, and how often it had been overwritten by then."""

    register: str
    version: int


@dataclass
class Body:
    """An open branch or loop: its condition, None of a loop, and the registers that were declared in it."""

    condition: Condition | None
    made: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Partial:
    """A register that has a value only in lanes for which all these conditions held."""

    conditions: frozenset[Condition]
    where: Origin


@dataclass(frozen=True)
class Left:
    """The loop that a register was declared in, and where it was left."""

    loop: str
    where: Origin


class Presence:
    """Follows the registers of a trace through its branches and loops."""

    def __init__(self) -> None:
        self._bodies: list[Body] = []
        self._partial: dict[str, Partial] = {}
        self._left: dict[str, Left] = {}
        self._overwritten: Counter[str] = Counter()
        self._variables: set[str] = set()

    def declared(self, name: str) -> None:
        """Note that a register is declared here."""
        if self._bodies:
            self._bodies[-1].made.add(name)

    def is_variable(self, value: Value) -> None:
        """Note that a register is there to be assigned to."""
        self._variables.add(value.text)

    def made(self, value: Value) -> None:
        """Note that a register is given a value here, wherever it was declared."""
        self._partial.pop(value.text, None)
        self._left.pop(value.text, None)
        self._overwritten[value.text] += 1

    @contextmanager
    def branch(self, condition: Value) -> Iterator[None]:
        """Follow the body of a branch."""
        asked = Condition(condition.text, self._overwritten[condition.text])
        with self._body(Body(asked)) as left:
            yield
        here = Partial(frozenset({asked}), origin())
        for name in left.made:
            known = self._partial.get(name)
            self._partial[name] = Partial(known.conditions | {asked}, known.where) if known else here

    @contextmanager
    def loop(self, words: str, counter: Value | None = None) -> Iterator[None]:
        """Follow the body of a loop, in whose rounds Python's name for the `counter` is a new one."""
        with self._body(Body(None)) as left:
            if counter is not None:
                self.declared(counter.text)
            yield
        where = Left(words, origin())
        for name in left.made:
            self._left.setdefault(name, where)

    @contextmanager
    def _body(self, body: Body) -> Iterator[Body]:
        self._bodies.append(body)
        yield body
        self._bodies.pop()
        if self._bodies:
            self._bodies[-1].made |= body.made

    def require(self, value: Value) -> None:
        """Refuse a value that was made in a loop behind it, or in a branch outside of those with its condition.

        Raises
        ------
        TraceError
            ``TK-TRACE-021`` with where the branch or the loop was left.
        """
        name = value.text
        if name in self._left:
            left = self._left[name]
            raise TraceError(
                f"{value!r} is made in the {left.loop}, left at {left.where}, and used behind it, where it is the last "
                "round's, or nothing where there was no round: the body is traced once, so Python's `s = s + v` adds "
                "nothing up; nearest: s = w.variable(...) before the loop, s.assign(s + v) in it",
                code="TK-TRACE-021",
            )
        if name in self._partial:
            partial = self._partial[name]
            if partial.conditions <= {body.condition for body in self._bodies}:
                return
            raise TraceError(
                f"{value!r} is made under w.when() at {partial.where}, and used behind it, where lanes that took the "
                "other way have none; nearest: a w.variable() before the branch, assigned in it",
                code="TK-TRACE-021",
            )

    def require_of_round(self, value: Value, operator: str) -> None:
        """Refuse Python's ``s += v`` on a register that is to keep what it gathers, since it only names a new one.

        Raises
        ------
        TraceError
            ``TK-TRACE-023`` for a variable, and in a loop for what was made before it.
        """
        loops = [at for at, body in enumerate(self._bodies) if body.condition is None]
        before = bool(loops) and not any(value.text in body.made for body in self._bodies[loops[-1] :])
        if value.text in self._variables or before:
            why = "is a variable" if value.text in self._variables else "is made before the device loop"
            raise TraceError(
                f"{value!r} {why}, and Python's `s {operator}= v` leaves it as it is and names a new value; write "
                f"s.assign(s {operator} v), of an s = w.variable(...), or t = s {operator} v for a value of its own",
                code="TK-TRACE-023",
            )
