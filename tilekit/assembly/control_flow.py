"""Control flow as it is traced: loops, branches and roles, each a place for the statements inside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import require_symbol
from tilekit.assembly.provenance import Origin, origin
from tilekit.assembly.role import Role
from tilekit.assembly.trace import EndIf, EndLoop, If, Line, Loop, Operation, Scope, Statement
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Operand, Value, all_uniform

if TYPE_CHECKING:
    from tilekit.assembly.names import Names
    from tilekit.assembly.trace import Source
    from tilekit.assembly.types import RegisterType


@dataclass
class Turn:
    """One pass through a `Writer.repeat` loop; `again` says whether another follows."""

    again: Value | None = None


@dataclass(frozen=True)
class Condition:
    """What a branch asks: a predicate register, and how often it had been overwritten by then."""

    register: str
    version: int


@dataclass
class Branch:
    """An open `Writer.when`: its condition, and the registers that were declared in it."""

    condition: Condition
    made: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Partial:
    """A register that has a value only in lanes for which all these conditions held."""

    conditions: frozenset[Condition]
    where: Origin


class ControlFlow:
    """Mixed into `Writer`: where in the kernel a statement stands, and who executes it.

    Attributes
    ----------
    roles
        Those traced so far.
    """

    threads: int
    _names: Names

    if TYPE_CHECKING:

        @property
        def lanes(self) -> int: ...

        def new(self, type_: RegisterType, hint: str, *, uniform: bool) -> Value: ...

        def operand(self, value: Operand, type_: RegisterType) -> Source: ...

    def __init__(self) -> None:
        self.roles: list[Role] = []
        self._root = Scope(depth=1)
        self._scopes = [self._root]
        self._depth = 1
        self._role: Role | None = None
        self._diverged = 0
        self._branches: list[Branch] = []
        self._partial: dict[str, Partial] = {}
        self._overwritten: Counter[str] = Counter()
        self._open: list[tuple[str, Origin]] = []

    @property
    def divergent(self) -> bool:
        """Whether lanes of a warp may have taken different ways to this point of the trace."""
        return self._diverged > 0

    def emit(self, statement: Statement) -> None:
        """Append a statement to the trace."""
        role = self._role.name if self._role else "setup"
        self._scopes[-1].items.append(Line(statement, self._depth, role, origin()))

    def range(self, stop: Operand, *, start: Operand = 0, step: Operand = 1, name: str = "i") -> Iterator[Value]:
        """Device loop over ``start, start + step, … < stop`` (u32); the body is traced once.

        Leave it only at its end: a Python ``break`` cannot be traced and is reported when the enclosing scope closes.
        The loop is not to be unrolled: ptxas otherwise unrolls k-loops 4 to 8 times and takes five times as long
        (measured with 13.0.88).

        Raises
        ------
        TraceError
            ``TK-PART-001`` for a name that is no symbol of assembly text.
        """
        require_symbol("w.range", "name", name)
        uniform = all_uniform(start, stop, step)
        counter = self.new(U32, name, uniform=uniform)
        counter.assign(start)
        top, end = self._names.new(f"{name}_loop"), self._names.new(f"{name}_end")
        limit = self.operand(stop, U32)
        skip = self.new(PRED, f"{name}_skip", uniform=uniform)
        self.emit(Operation("ge", U32, skip, (counter, limit)))
        guard, loop = If(skip, False, end), Loop(top)
        self.emit(guard)
        self.emit(loop)
        with self._construct(f"device loop over {name!r}", divergent=not uniform):
            yield counter
        again = self.new(PRED, f"{name}_again", uniform=uniform)
        self.emit(Operation("add", U32, counter, (counter, self.operand(step, U32))))
        self.emit(Operation("lt", U32, again, (counter, limit)))
        self.emit(EndLoop(loop, again))
        self.emit(EndIf(guard))

    def repeat(self, name: str, *, uniform: bool) -> Iterator[Turn]:
        """Device loop whose body, traced once, says at its end whether it runs again: ``turn.again = predicate``.

        Parameters
        ----------
        name
            Of the loop, in labels.
        uniform
            Whether all lanes of a warp leave it together, so that its body may hold aligned instructions.
        """
        loop, turn = Loop(self._names.new(f"{name}_loop")), Turn()
        self.emit(loop)
        with self._construct(f"device loop {name!r}", divergent=not uniform):
            yield turn
        if turn.again is None or (uniform and not turn.again.uniform):
            given = "nothing" if turn.again is None else f"{turn.again!r}, in which lanes may differ"
            raise TraceError(
                f"device loop {name!r} needs turn.again, a{' uniform' if uniform else ''} predicate, at the end of its "
                f"body; given {given}",
                code="TK-TRACE-006",
            )
        if turn.again.type is not PRED:
            raise TraceError(f"{turn.again!r} given where a {PRED} is needed", code="TK-TRACE-005")
        self.emit(EndLoop(loop, turn.again))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Device branch: the body runs in the lanes for which `condition` (a predicate) holds."""
        if not isinstance(condition, Value) or condition.type is not PRED:
            raise TraceError(
                f"w.when() takes a device predicate such as `a < b`, not {condition!r}; for a build-time choice write "
                f"a Python `if`",
                code="TK-TRACE-006",
            )
        branch = If(condition, True, self._names.new("endif"))
        self.emit(branch)
        self._branches.append(Branch(Condition(condition.text, self._overwritten[condition.text])))
        with self._construct("branch", divergent=not condition.uniform):
            yield
        left = self._branches.pop()
        for name in left.made:
            known = self._partial.get(name)
            conditions = frozenset({left.condition}) | (known.conditions if known else frozenset())
            self._partial[name] = Partial(conditions, known.where if known else origin())
        if self._branches:
            self._branches[-1].made += left.made
        self.emit(EndIf(branch))

    def made(self, value: Value) -> None:
        """Note that a register is given a value here, wherever it was declared."""
        self._partial.pop(value.text, None)
        self._overwritten[value.text] += 1

    def require_made(self, value: Value) -> None:
        """Refuse a value that was made in a branch, outside of it and of others with the same condition.

        Raises
        ------
        TraceError
            ``TK-TRACE-021`` with where the branch was left.
        """
        partial = self._partial.get(value.text)
        if partial is not None and not partial.conditions <= {branch.condition for branch in self._branches}:
            raise TraceError(
                f"{value!r} is made under w.when() at {partial.where}, and used behind it, where lanes that took the "
                "other way have none; nearest: a w.variable() before the branch, assigned in it",
                code="TK-TRACE-021",
            )

    @contextmanager
    def role(self, role: Role, warp: Value) -> Iterator[None]:
        """Trace the body of `role`: its warps enter, the others jump over it; registers inside are the role's own."""
        if self._role is not None:
            raise TraceError(
                f"role {role.name!r} opened inside role {self._role.name!r}; roles are disjoint sets of warps",
                code="TK-ROLE-002",
            )
        for other in self.roles:
            if set(other.warps) & set(role.warps):
                raise TraceError(f"roles {other.name!r} and {role.name!r} share warps", code="TK-ROLE-002")
        if role.warps.stop * self.lanes > self.threads:
            raise TraceError(
                f"role {role.name!r} has warps {role.warps.start} to {role.warps.stop - 1}, and the kernel's "
                f"{self.threads} threads are {self.threads // self.lanes} warps; nearest: threads="
                f"{role.warps.stop * self.lanes}",
                code="TK-ROLE-003",
            )
        self.roles.append(role)
        outside = ((warp - role.warps.start) >= len(role.warps)) if len(role.warps) > 1 else (warp != role.warps.start)
        branch = If(outside, False, self._names.new(f"end_{role.name}"))
        self.emit(branch)
        self._role = role
        scope = Scope(self._depth + 1)
        self._scopes[-1].items.append(scope)
        self._scopes.append(scope)
        with self._construct(f"role {role.name!r}", divergent=not warp.uniform):
            yield
        self._scopes.pop()
        self._role = None
        self.emit(EndIf(branch))

    def require_role(self, names: Collection[str], what: str) -> None:
        """Refuse the use of `what` in a role that is none of `names`; outside roles every thread may be what is needed.

        Raises
        ------
        TraceError
            ``TK-ROLE-004`` naming both.
        """
        if self._role is not None and self._role.name not in names:
            raise TraceError(
                f"role {self._role.name!r} uses {what}, which was declared for {', '.join(sorted(names))}; {origin()} "
                f"uses it: declare the role with the others",
                code="TK-ROLE-004",
            )

    def require_closed(self) -> None:
        """Refuse a loop, branch or role that Python left before its end.

        Raises
        ------
        TraceError
            ``TK-TRACE-007`` with what is open, and where it was opened.
        """
        if self._open:
            raise self._left_early()

    @contextmanager
    def _construct(self, what: str, *, divergent: bool) -> Iterator[None]:
        """Trace the body of a loop, branch or role, one level deeper."""
        here = (what, origin())
        self._open.append(here)
        self._diverged += divergent
        self._depth += 1
        yield
        self._depth -= 1
        self._diverged -= divergent
        if self._open[-1] is not here:
            raise self._left_early()
        self._open.pop()

    def _left_early(self) -> TraceError:
        what, where = self._open[-1]
        return TraceError(
            f"the {what} opened at {where} was left by a Python `break`, `return` or exception; its body is traced "
            f"once, to its end. Put the rest under `with w.when(...)`.",
            code="TK-TRACE-007",
        )
