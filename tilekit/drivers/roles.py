"""The skeleton of a warp-specialised kernel: roles are bodies, each run by its own warps with its own registers.

A driver sets up with one thread, traces a list of roles with their bodies, and tears down::

    trace_roles(w, warp, [(load, self._load), (mma, self._multiply)])

Another role is a body and a line: `match_bodies` finds the body of each role of a plan by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import require_call
from tilekit.assembly.legal import illegal
from tilekit.assembly.openings import entered_by_with
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tiles.cluster import Cluster

Body = Callable[[Writer, Value, Role], None]
"""Traces a role's work, given the writer, the warp's index and the role; entered by all threads of the role."""


def match_bodies(
    roles: Sequence[Role], bodies: Mapping[str, Body], further: Mapping[str, Body]
) -> list[tuple[Role, Body]]:
    """Find the body of each role by its name: one of a driver's own `bodies`, or a `further` one.

    A plan need not have the driver's roles; further bodies are there to be used.

    Raises
    ------
    TraceError
        ``TK-ROLE-003`` for a role without a body, a further body without a role, or one for a role that has one;
        ``TK-FIT-001`` for one that is not called as bodies are.
    """
    for name, body in further.items():
        if not callable(body):
            raise illegal("the driver", f"bodies[{name!r}]", body, "a function of (w, warp, role)")
        require_call("the driver", f"bodies[{name!r}]", body, "w", "warp", "role")
    names = [role.name for role in roles]
    known = ", ".join([*bodies, *further])
    for name in further:
        if name in bodies or name not in names:
            why = "the driver has one of its own" if name in bodies else f"the plan's roles are {', '.join(names)}"
            raise TraceError(f"a body is given for role {name!r}, but {why}", code="TK-ROLE-003")
    every = {**bodies, **further}
    for role in roles:
        if role.name not in every:
            raise TraceError(
                f"role {role.name!r} (warps {role.warps.start}-{role.warps.stop - 1}) has no body; there are bodies "
                f"for {known}: pass bodies={{{role.name!r}: ...}}",
                code="TK-ROLE-003",
            )
    return [(role, every[role.name]) for role in roles]


@call_checked
def trace_roles(w: Writer, warp: Value, bodies: Sequence[tuple[Role, Body]]) -> None:
    """Trace each role's body behind a branch that its warps take, with the registers that the role asks for.

    A role whose registers are `Role.raised` acquires them (``setmaxnreg.inc``), every other one that names a number
    releases what it has beyond it.
    """
    for role, body in bodies:
        with w.role(role, warp):
            if role.registers is not None:
                w.set_registers(role.registers, raised=role.raised)
            body(w, warp, role)


@call_checked
@entered_by_with("with working_threads(w, warp, role, cluster):")
def working_threads(w: Writer, warp: Value, role: Role, cluster: Cluster) -> Iterator[None]:
    """Enter with the threads that do the role's work: all of them, or one, perhaps of a CTA pair's leader alone."""
    if not role.one_thread:
        yield
        return
    with elected(w) if len(role.warps) == 1 else one_thread(w, warp, role):
        if role.leaders_only and cluster.is_leader is not None:
            with w.when(cluster.is_leader):
                yield
        else:
            yield


@call_checked
@entered_by_with("with one_thread(w, warp, role):")
def one_thread(w: Writer, warp: Value, role: Role) -> Iterator[None]:
    """Enter with one thread of the role's first warp; the warp reconverges at the end, other warps jump over."""
    with w.when(warp == role.warps.start), elected(w):
        yield


@entered_by_with("with elected(w):")
def elected(w: Writer) -> Iterator[None]:
    """Enter with one thread of each warp, which reconverges at the end.

    On Hopper the warp goes round a loop in here as a whole, with the lane's predicate on what acts, where that changes
    nothing else (`tilekit.assembly.ptx.election`).
    """
    with w.when(w.elect()):
        yield
    w.warp_sync()
