"""Roles: named sets of warps, and what their instructions may do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilekit.assembly.fragment import KINDS
from tilekit.assembly.legal import Whole, illegal, require_symbol, require_whole, require_word
from tilekit.targets import Target


@dataclass(frozen=True)
class Role:
    """A named set of warps and what their instructions may do.

    Attributes
    ----------
    name, warps
        The name in reports, and the warp indices within the CTA.
    may
        Fragment kinds allowed in the role, besides ``scalar`` and ``control`` which every role may use; any collection
        of them becomes a frozenset.
    registers
        Registers a thread after the role's ``setmaxnreg``, or ``None`` where the kernel does not rebalance.
    raised
        Whether that is more than the kernel is launched with.
    one_thread
        Whether one thread of the first warp does the role's work.
    leaders_only
        Whether it does so only in the leading CTA of each CTA pair.
    turns
        Equal parts of its warps that take turns at its work; 1 where all of them work together.
    matrix_waves
        Warps that hold the accumulators of a matrix instruction together; None for as many as the target's widest has.
    """

    name: str
    warps: range
    may: frozenset[str]
    registers: int | None = None
    raised: bool = False
    one_thread: bool = False
    leaders_only: bool = False
    turns: int = 1
    matrix_waves: int | None = None

    def __post_init__(self) -> None:
        """Check name, warps, kinds and turns.

        Raises
        ------
        TraceError
            ``TK-PART-001`` with what is legal and the nearest.
        """
        require_symbol("Role", "name", self.name)
        if not isinstance(self.warps, range) or not self.warps or self.warps.step != 1 or self.warps.start < 0:
            raise illegal(
                "Role", "warps", self.warps, "a range of warps that follow each other, at least one", range(1)
            )
        if isinstance(self.may, str) or not isinstance(self.may, Collection):
            raise illegal("Role", "may", self.may, f"a set of {', '.join(KINDS)}")
        for word in self.may:
            require_word("Role", "may", word, tuple(KINDS))
        object.__setattr__(self, "may", frozenset(self.may))
        if self.registers is not None:
            require_whole("Role", "registers", self.registers, Whole(1))
        for flag in ("raised", "one_thread", "leaders_only"):
            require_word("Role", flag, getattr(self, flag), (True, False))
        require_whole("Role", "turns", self.turns, Whole(1))
        if len(self.warps) % self.turns:
            fits = next(
                turns for turns in range(min(self.turns, len(self.warps)), 0, -1) if len(self.warps) % turns == 0
            )
            raise illegal("Role", "turns", self.turns, f"a divisor of its {len(self.warps)} warps", fits)
        if self.matrix_waves is not None:
            require_whole("Role", "matrix_waves", self.matrix_waves, Whole(1, len(self.warps)))

    @property
    def warps_at_once(self) -> int:
        """Warps that work on the same thing: those of one turn."""
        return len(self.warps) // self.turns

    @property
    def arrivals(self) -> int:
        """How often the role arrives on a barrier at each turn: once a thread that works alone, else once a warp."""
        return 1 if self.one_thread else self.warps_at_once


def entry_registers(target: Target, threads: int, roles: Collection[Role]) -> int:
    """Registers that each of a kernel's threads is launched with, at most.

    They are what the register file grants, divided; but where a role is to be raised to no more than that, the least
    from which all roles get theirs.
    """
    granted = target.launch_registers(threads)
    if all((role.registers or granted) > granted for role in roles if role.raised):
        return granted
    wanted = sum((role.registers or granted) * len(role.warps) for role in roles)
    return -(-wanted // (8 * sum(len(role.warps) for role in roles))) * 8


def require_warpgroups(owner: str, name: str, role: Role, waves: int) -> None:
    """Check that a role's warps are whole warpgroups of so many warps.

    Raises
    ------
    TraceError
        ``TK-PART-001`` with the nearest number of warps.
    """
    if role.one_thread or len(role.warps) % waves:
        nearest = max(1, round(len(role.warps) / waves)) * waves
        given = "one thread" if role.one_thread else f"{len(role.warps)} warps"
        legal = f"a role of whole warpgroups, {waves} warps each; {role.name!r} has {given}"
        raise illegal(owner, name, role.name, legal, f"{nearest} warps")
