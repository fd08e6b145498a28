"""Which warps of a CTA do what, and how many registers their threads have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked_once, component
from tilekit.assembly.legal import Count, Whole, require_whole
from tilekit.assembly.role import Role, entry_registers
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import COPYING_REGISTERS

_LOADS = frozenset({"load", "sync", "wait"})
"""What a role may do that starts copies to shared memory."""

_COPIES = _LOADS | {"memory", "store"}
"""What a role may do whose threads copy themselves."""

MOST_WARPS = 32
"""Of a CTA, on every chip."""

_TIMED = ("load", "mma", "epilogue", "epilogue_load")


@call_checked
@dataclass(frozen=True)
class RoleEntry:
    """What a role asks of a plan, which gives it its warps.

    Attributes
    ----------
    name
        The name of its body in the driver, and in reports.
    warps
        How many.
    may, registers, raised, one_thread, leaders_only, turns, matrix_waves
        As of a `tilekit.assembly.writer.Role`.
    """

    name: str
    warps: int
    may: frozenset[str]
    registers: int | None = None
    raised: bool = False
    one_thread: bool = False
    leaders_only: bool = False
    turns: int = 1
    matrix_waves: int | None = None

    def __post_init__(self) -> None:
        require_whole("RoleEntry", "warps", self.warps, Whole(1, MOST_WARPS))
        object.__setattr__(self, "may", self.on(0).may)

    def on(self, first: int) -> Role:
        """The role, on warps from `first` on."""
        return Role(
            self.name,
            range(first, first + self.warps),
            self.may,
            self.registers,
            raised=self.raised,
            one_thread=self.one_thread,
            leaders_only=self.leaders_only,
            turns=self.turns,
            matrix_waves=self.matrix_waves,
        )


SCHEDULER = RoleEntry("scheduler", 1, frozenset({"sync", "wait"}), one_thread=True)
"""The warp that asks for tiles."""

EPILOGUE_LOAD = RoleEntry("epilogue_load", 1, _LOADS, one_thread=True)
"""The warp that loads what the epilogue reads."""


@component
@dataclass(frozen=True)
class WarpPlan:
    """Roles and their warps.

    Attributes
    ----------
    target
        The chip.
    roles
        In the order in which they are traced.

    Raises
    ------
    TraceError
        ``TK-ROLE-002`` where two roles share a name or a warp, ``TK-ROLE-005`` where a role is to be raised to more
        registers than the others leave.
    """

    target: Target
    roles: tuple[Role, ...]

    def __post_init__(self) -> None:
        names = sorted(role.name for role in self.roles)
        for one, other in pairwise(names):
            if one == other:
                raise TraceError(f"two roles of a plan are called {one!r}", code="TK-ROLE-002")
        for one_role, other_role in pairwise(sorted(self.roles, key=lambda role: role.warps.start)):
            if one_role.warps.stop > other_role.warps.start:
                raise TraceError(f"roles {one_role.name!r} and {other_role.name!r} share warps", code="TK-ROLE-002")
        self._require_registers()

    def _require_registers(self) -> None:
        """Check that what roles give up is enough for those that are raised: they would wait for ever."""
        launch = self.launch_registers
        left = self._left(launch, self.roles)
        for role in self.roles:
            if left is not None and role.raised and (role.registers or 0) > left:
                raise TraceError(
                    f"role {role.name!r} cannot be raised to {role.registers} registers a thread: of a CTA of "
                    f"{self.threads} threads, launched with {launch} each, the other roles leave it {left}; nearest: "
                    f"registers={left}",
                    code="TK-ROLE-005",
                )

    @staticmethod
    def _left(launch: int, roles: Sequence[Role]) -> int | None:
        """Registers of a thread to which those that are raised can be, with so many at launch; None if none is."""
        raised = sum(len(role.warps) for role in roles if role.raised)
        warps = sum(len(role.warps) for role in roles)
        held = sum((role.registers or launch) * len(role.warps) for role in roles if not role.raised)
        return (launch * warps - held) // raised // 8 * 8 if raised else None

    def __getitem__(self, name: str) -> Role:
        """The role called `name` (``TK-ROLE-003`` where there is none)."""
        role = self.get(name)
        if role is None:
            raise TraceError(f"the plan has no role {name!r}; it has {self._names}", code="TK-ROLE-003")
        return role

    def get(self, name: str) -> Role | None:
        """The role called `name`, if there is one."""
        return next((role for role in self.roles if role.name == name), None)

    @property
    def _names(self) -> str:
        return ", ".join(repr(role.name) for role in self.roles)

    @property
    def activities(self) -> dict[str, int]:
        """What a `TileProfiler` times, each with the warpgroups that do it."""
        waves = self.target.matrix_waves
        named = {r.name: 1 if r.one_thread else len(r.warps) // waves for r in self.roles if r.name in _TIMED}
        return named | {"epilogue": named.get("epilogue", named["mma"])}

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.target.lanes * max(role.warps.stop for role in self.roles)

    @property
    def launch_registers(self) -> int:
        """Registers a thread is launched with."""
        return entry_registers(self.target, self.threads, self.roles)

    @classmethod
    def of(cls, target: Target, entries: Sequence[RoleEntry], *, first: Sequence[str] = ()) -> WarpPlan:
        """Lay roles out one behind the other: those named `first` in that order, then the others in theirs.

        They are traced in the order of `entries`.
        """
        named = {entry.name: entry for entry in entries}
        order = [named[name] for name in first if name in named]
        order += [entry for entry in entries if entry.name not in first]
        roles, warp = {}, 0
        for entry in order:
            roles[entry.name] = entry.on(warp)
            warp += entry.warps
        return cls(target, tuple(roles[entry.name] for entry in entries))

    def with_role(self, entry: RoleEntry, *, beside: str | None = None) -> WarpPlan:
        """The plan with another role, on warps behind all others, or on the last ones of a role of a single thread.

        There it has the registers of the role beside it: a warpgroup changes them together. With warps behind the
        others a thread is launched with fewer, and those that are raised get what is left; if that is no more than
        all are launched with, no role changes its registers.

        Raises
        ------
        TraceError
            ``TK-ROLE-002`` for a name that is taken, ``TK-ROLE-003`` beside a role that has no warp to give.
        """
        if beside is None:
            return self._with_role_behind(entry)
        host = self[beside]
        left = range(host.warps.start, host.warps.stop - entry.warps)
        if not host.one_thread or not left:
            raise TraceError(
                f"role {beside!r} has no {entry.warps} of its {len(host.warps)} warps to give to role {entry.name!r}: "
                f"{'it needs one' if host.one_thread else 'all of its threads work'}; nearest: beside=None, for warps "
                f"of its own",
                code="TK-ROLE-003",
            )
        role = replace(entry, registers=host.registers, raised=host.raised).on(left.stop)
        roles = tuple(replace(host, warps=left) if other is host else other for other in self.roles)
        return WarpPlan(self.target, (*roles, role))

    def _with_role_behind(self, entry: RoleEntry) -> WarpPlan:
        lanes, roles = self.target.lanes, self.roles
        added = entry.on(self.threads // lanes)
        launch = self.target.launch_registers(lanes * added.warps.stop)
        most = self._left(launch, (*roles, added))
        if most is not None and most <= launch:
            roles = tuple(replace(role, registers=None, raised=False) for role in roles)
        elif most is not None:
            roles = tuple(replace(r, registers=min(most, r.registers or most)) if r.raised else r for r in roles)
        return WarpPlan(self.target, (*roles, added))

    @classmethod
    @checked_once
    def register_accumulators(
        cls,
        target: Target,
        *,
        consumers: Count,
        accumulators: Count,
        pingpong: bool = False,
        epilogue_loads: bool = False,
        copies: bool = False,
        counts: bool = False,
        copying: Count = COPYING_REGISTERS,
    ) -> WarpPlan:
        """Plan for `consumers` warpgroups holding `accumulators` a thread.

        The load warpgroup gives registers up to the consumers (``setmaxnreg``). Its share is 24 where the consumers
        hold 208 accumulators or more, or there are three of them, else 40; what the launch granted beyond that goes
        to the consumers, in steps of 8 and at most 240 each. A lone consumer would have enough from the start. But
        behind a ``setmaxnreg.inc`` ptxas keeps the ring's position and descriptors in uniform registers, and without
        one each of its instructions waits for four R2UR: 489x1280x5120 in 64x88 takes 14.4 us for 15.7, and 56 such
        kernels 1.7 % less in the mean (H200). So it is raised as well, from 208 to 248, and the load warpgroup keeps
        168. The consumers share each tile, or have whole tiles in turn (`pingpong`). Where the epilogue reads an
        operand, the last warp of the load warpgroup loads it. Where the load warpgroup's threads make the `copies`
        themselves, all of them do, and keep `copying` registers. With `counts` its loaders count what they load in
        registers, and it keeps as many: two of them spill with 40.
        """
        groups = 1 + consumers
        launch = target.launch_registers(groups * target.matrix_threads)
        load_share: int | None = None
        mma_share: int | None = None
        if consumers == 1 and target.has("register_reallocation"):
            load_share, mma_share = 168, 248
        elif launch < target.thread_registers // 8 * 8:
            load_share = copying if copies or counts else 24 if accumulators >= 208 or consumers == 3 else 40
            mma_share = min(240, (launch * groups - load_share) // consumers // 8 * 8)
        waves = target.matrix_waves
        load = RoleEntry("load", waves, _COPIES if copies else _LOADS, load_share, one_thread=not copies)
        mma = RoleEntry(
            "mma",
            waves * consumers,
            frozenset({"mma", "sync", "wait", "store", "memory"}),
            mma_share,
            raised=mma_share is not None,
            turns=consumers if pingpong else 1,
        )
        plan = cls.of(target, (load, mma))
        return plan.with_role(EPILOGUE_LOAD, beside="load") if epilogue_loads else plan

    @classmethod
    @checked_once
    def tensor_memory(
        cls, target: Target, *, scheduler: bool, epilogue_loads: bool = False, copies: bool = False
    ) -> WarpPlan:
        """Plan for accumulators in tensor memory: an epilogue warpgroup, and a warp for everything else.

        The epilogue's warps come first, because a warp reads the quarter of the lanes that its index modulo 4 names
        (PTX ISA, tcgen05.ld). With at most eight warps a thread may have 255 registers, so no role gives any up; nor
        with the three more of a load role whose threads make the `copies` themselves: a warpgroup, and so the second.
        """
        load = RoleEntry(
            "load", target.matrix_waves if copies else 1, _COPIES if copies else _LOADS, one_thread=not copies
        )
        may = frozenset({"mma", "tmem", "sync", "wait", "memory"})
        mma = RoleEntry("mma", 1, may, one_thread=True, leaders_only=True)
        epilogue = RoleEntry("epilogue", target.matrix_waves, frozenset({"tmem", "sync", "wait", "store", "memory"}))
        entries = (load, mma, epilogue, *([SCHEDULER] if scheduler else []))
        plan = cls.of(target, entries, first=("epilogue", "load") if copies else ("epilogue", "scheduler"))
        return plan.with_role(EPILOGUE_LOAD) if epilogue_loads else plan

    @classmethod
    @checked_once
    def waves(cls, target: Target, *, load: Count, mma: Count, copies: bool = True) -> WarpPlan:
        """Plan for matrix instructions of a single wave: `load` waves that copy and `mma` that multiply and store.

        Without `copies` one thread loads. Every thread keeps the registers that it was launched with.
        """
        may = frozenset({"mma", "sync", "wait", "store", "memory"})
        loads = RoleEntry("load", load, _COPIES if copies else _LOADS, one_thread=not copies)
        return cls.of(target, (loads, RoleEntry("mma", mma, may, matrix_waves=1)))

    @classmethod
    @checked_once
    def together(cls, target: Target, *, waves: Count) -> WarpPlan:
        """Plan for waves that all load, multiply and store: a single role."""
        return cls.of(target, (RoleEntry("mma", waves, _COPIES | {"mma"}),))
