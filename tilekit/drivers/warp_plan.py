"""Which warps of a CTA do what, and how many registers their threads have."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.writer import Role
from tilekit.tile_op.accumulators import WARPS_PER_GROUP

MAX_THREAD_REGISTERS = 255

_LOADS = frozenset({"load", "sync", "wait"})
"""What a role may do that starts copies to shared memory."""

_COPIES = _LOADS | {"memory", "store"}
"""What a role may do whose threads copy themselves."""

COPYING_REGISTERS = 56
"""Registers of a thread that copies: addresses of both operands, and the words it has in hand."""


@dataclass(frozen=True)
class WarpPlan:
    """Which warps do what.

    Attributes
    ----------
    load
        One thread of its first warp issues every copy, or all of them make the copies themselves.
    mma
        The consumer warpgroups, or the warp that issues for the tensor core.
    epilogue
        The warpgroup that stores, or None where the mma role's warps do.
    scheduler
        The warp that asks for tiles, or None where nobody needs to.
    epilogue_load
        The warp that loads what the epilogue reads, or None where it reads nothing.
    """

    load: Role
    mma: Role
    epilogue: Role | None = None
    scheduler: Role | None = None
    epilogue_load: Role | None = None

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles."""
        every = (self.load, self.mma, self.epilogue, self.scheduler, self.epilogue_load)
        return tuple(role for role in every if role is not None)

    @property
    def activities(self) -> dict[str, int]:
        """What a `TileProfiler` times, each with the warpgroups that do it."""
        named = {role.name: 1 if role.one_thread else len(role.warps) // WARPS_PER_GROUP for role in self.roles}
        named.pop("scheduler", None)
        return named | {"epilogue": named.get("epilogue", named["mma"])}

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * max(role.warps.stop for role in self.roles)

    def launch_registers(self, registers: int) -> int:
        """Registers a thread is launched with, of the `registers` of a multiprocessor."""
        return _launch_registers(self.threads // 128, registers)

    @classmethod
    def register_accumulators(
        cls,
        *,
        consumers: int,
        accumulators: int,
        registers: int,
        in_turn: bool = False,
        epilogue_loads: bool = False,
        copies: bool = False,
    ) -> WarpPlan:
        """Plan for `consumers` warpgroups holding `accumulators` a thread, on a chip of so many `registers`.

        The load warpgroup gives registers up to the consumers (``setmaxnreg``). Its share is 24 where the consumers
        hold 208 accumulators or more, or there are three of them, else 40; what the launch granted beyond that goes
        to the consumers, in steps of 8 and at most 240 each. Two warpgroups have 255 each from the start, and nothing
        to give. The consumers share each tile, or have whole tiles `in_turn`. Where the epilogue reads an operand, the
        last warp of the load warpgroup loads it. Where the load warpgroup's threads make the `copies` themselves, all
        of them do, and keep `COPYING_REGISTERS`.
        """
        groups = 1 + consumers
        launch = _launch_registers(groups, registers)
        load_share: int | None = None
        mma_share: int | None = None
        if launch < MAX_THREAD_REGISTERS // 8 * 8:
            load_share = COPYING_REGISTERS if copies else 24 if accumulators >= 208 or consumers == 3 else 40
            mma_share = min(240, (launch * groups - load_share) // consumers // 8 * 8)
        last = WARPS_PER_GROUP - epilogue_loads
        return cls(
            load=Role("load", range(last), _COPIES if copies else _LOADS, load_share, one_thread=not copies),
            mma=Role(
                "mma",
                range(WARPS_PER_GROUP, WARPS_PER_GROUP * groups),
                frozenset({"mma", "sync", "wait", "store", "memory"}),
                mma_share,
                raised=mma_share is not None,
                turns=consumers if in_turn else 1,
            ),
            epilogue_load=Role("epilogue_load", range(last, WARPS_PER_GROUP), _LOADS, load_share, one_thread=True)
            if epilogue_loads
            else None,
        )

    @classmethod
    def tensor_memory(cls, *, scheduler: bool, epilogue_loads: bool = False) -> WarpPlan:
        """Plan for accumulators in tensor memory: an epilogue warpgroup, and a warp for everything else.

        The epilogue's warps come first, because a warp reads the quarter of the lanes that its index modulo 4 names
        (PTX ISA, tcgen05.ld). With at most eight warps a thread may have 255 registers, so nobody gives any up.
        """
        warp = WARPS_PER_GROUP
        asks = None
        if scheduler:
            asks = Role("scheduler", range(warp, warp + 1), frozenset({"sync", "wait"}), one_thread=True)
            warp += 1
        return cls(
            load=Role("load", range(warp, warp + 1), _LOADS, one_thread=True),
            mma=Role(
                "mma",
                range(warp + 1, warp + 2),
                frozenset({"mma", "tmem", "sync", "wait", "memory"}),
                one_thread=True,
                leaders_only=True,
            ),
            epilogue=Role(
                "epilogue",
                range(WARPS_PER_GROUP),
                frozenset({"tmem", "sync", "wait", "store", "memory"}),
            ),
            scheduler=asks,
            epilogue_load=Role("epilogue_load", range(warp + 2, warp + 3), _LOADS, one_thread=True)
            if epilogue_loads
            else None,
        )


def _launch_registers(groups: int, registers: int) -> int:
    return min(MAX_THREAD_REGISTERS, registers // (groups * 128) // 8 * 8)
