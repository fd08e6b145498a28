"""Control flow as it is traced: loops, branches and roles, each a place for the statements inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, illegal, require_symbol
from tilekit.assembly.openings import Openings, entered_by_for, entered_by_with
from tilekit.assembly.presence import Presence
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


class ControlFlow:
    """Mixed into `Writer`: where in the kernel a statement stands, and who executes it.

    Attributes
    ----------
    roles
        Those traced so far.
    presence
        Where each register has a value.
    openings
        Branches, loops and roles that were made and not entered.
    """

    threads: int
    warp_indices: set[str]
    broadcasts: set[str]
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
        self.presence = Presence()
        self.openings = Openings()
        self._open: list[tuple[str, Origin]] = []

    @property
    def divergent(self) -> bool:
        """Whether lanes of a warp may have taken different ways to this point of the trace."""
        return self._diverged > 0

    def emit(self, statement: Statement) -> None:
        """Append a statement to the trace.

        Raises
        ------
        TraceError
            ``TK-TRACE-022`` behind a branch, loop or role that was made and not entered.
        """
        self.openings.require_entered()
        role = self._role.name if self._role else "setup"
        self._scopes[-1].items.append(Line(statement, self._depth, role, origin()))

    @entered_by_for("for i in w.range(n):")
    def range(
        self, stop: Operand, *more: Operand, start: Operand = 0, step: Operand = 1, name: str = "i"
    ) -> Iterator[Value]:
        """Device loop over ``start, start + step, … < stop`` (u32); the body is traced once.

        What a round makes is not used behind the loop; a `Writer.variable` of before it, assigned in it, is.
        Leave it only at its end: a Python ``break`` cannot be traced and is reported when the enclosing scope closes.
        The loop is not to be unrolled: ptxas otherwise unrolls k-loops 4 to 8 times and takes five times as long
        (measured with 13.0.88).

        Raises
        ------
        TraceError
            ``TK-TRACE-005`` for a number below 0 and a step below 1; ``TK-PART-001`` for a name that is none, and for a
            start that is not named.
        """
        if more:
            raise illegal(
                "w.range", "*bounds", (stop, *more), "one bound, where it ends", "w.range(stop, start=..., step=...)"
            )
        require_symbol("w.range", "name", name)
        for bound, given, low in (("stop", stop, 0), ("start", start, 0), ("step", step, 1)):
            legal = Whole(low, (1 << U32.bits) - 1)
            if isinstance(given, int) and given not in legal:
                raise TraceError(
                    f"w.range({bound}={given}); legal: {legal.words}; nearest: {legal.nearest(given)}",
                    code="TK-TRACE-005",
                )
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
        what = f"device loop over {name!r}"
        with self._construct(what, divergent=not uniform), self.presence.loop(what, counter):
            yield counter
        again = self.new(PRED, f"{name}_again", uniform=uniform)
        self.emit(Operation("add", U32, counter, (counter, self.operand(step, U32))))
        self.emit(Operation("lt", U32, again, (counter, limit)))
        self.emit(EndLoop(loop, again))
        self.emit(EndIf(guard))

    @entered_by_for("for turn in w.repeat(...):")
    def repeat(self, name: str, *, uniform: bool) -> Iterator[Turn]:
        """Device loop whose body, traced once, says at its end whether it runs again: ``turn.again = predicate``.

        Parameters
        ----------
        name
            Of the loop, in labels.
        uniform
            Whether all lanes of a warp leave it together, so that its body may hold aligned instructions.
        """
        require_symbol("w.repeat", "name", name)
        loop, turn = Loop(self._names.new(f"{name}_loop")), Turn()
        self.emit(loop)
        what = f"device loop {name!r}"
        with self._construct(what, divergent=not uniform), self.presence.loop(what):
            yield turn
            if isinstance(turn.again, Value):
                self.presence.require(turn.again)
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

    @entered_by_with("with w.when(condition):")
    def when(self, condition: Value) -> Iterator[None]:
        """Device branch: the body runs in the lanes for which `condition` (a predicate) holds."""
        if not isinstance(condition, Value) or condition.type is not PRED:
            raise TraceError(
                f"w.when() takes a device predicate such as `a < b`, not {condition!r}; for a build-time choice write "
                f"a Python `if`",
                code="TK-TRACE-006",
            )
        self.presence.require(condition)
        branch = If(condition, True, self._names.new("endif"))
        self.emit(branch)
        with self._construct("branch", divergent=not condition.uniform), self.presence.branch(condition):
            yield
        self.emit(EndIf(branch))

    @entered_by_with("with w.role(role, warp):")
    def role(self, role: Role, warp: Value) -> Iterator[None]:
        """Trace the body of `role`: its warps enter, the others jump over it; registers inside are the role's own.

        Parameters
        ----------
        role
            Whose body it is.
        warp
            The warp's index, as `Writer.warp` or `Writer.broadcast` makes it.

        Raises
        ------
        TraceError
            ``TK-PART-001`` for what is no role, and for another value than the warp's index; ``TK-ROLE-002`` for roles
            that share warps or stand in each other; ``TK-ROLE-003`` for warps that the kernel does not have.
        """
        if not isinstance(role, Role):
            raise illegal("w.role", "role", role, "a Role, with its warps and what they may do", 'plan["mma"]')
        if not isinstance(warp, Value) or warp.text not in self.warp_indices | self.broadcasts:
            raise illegal("w.role", "warp", warp, "the warp's index", "w.warp()")
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
        """Refuse a loop, branch or role that Python left before its end, or never entered.

        Raises
        ------
        TraceError
            ``TK-TRACE-007`` with what is open, and where it was opened; ``TK-TRACE-022`` with what was not entered.
        """
        self.openings.require_entered()
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
