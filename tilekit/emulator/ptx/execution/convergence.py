"""Which lanes of a warp must come to an instruction together, and how those that run apart meet.

Lanes that part at a branch meet again at its post-dominator, as ptxas has them do and as compilers count on. Before
that, an instruction of the whole warp (``.aligned``), or one that names lanes which have gone elsewhere, is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import Array, ballot
from tilekit.emulator.core.checks.agents import ALL_LANES
from tilekit.emulator.core.checks.deadlock import GroupWait
from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.execution.lockstep_memory import Unsure

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Fragment, Warp

Mask = npt.NDArray[np.bool_]


def listed(lanes: int) -> str:
    """The lanes of a bit mask, such as ``lanes 0-15, 31``."""
    runs: list[list[int]] = []
    for lane in range(32):
        if lanes >> lane & 1:
            if runs and runs[-1][1] == lane - 1:
                runs[-1][1] = lane
            else:
                runs.append([lane, lane])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"lane{'s' if lanes & (lanes - 1) else ''} {text}"


def require_together(warp: Warp, position: int, mask: Mask) -> None:
    """Raise when an ``.aligned`` instruction is executed by a part of the warp's live lanes."""
    warp.at = position
    here, live = ballot(mask), ballot(warp.live)
    if here & live not in (0, live):
        absent = live & ~here
        raise ProtocolError(
            f"{warp.program.instruction(position).opcode}, which is .aligned, is executed by {listed(here & live)} "
            f"alone: {listed(absent)} {_are(absent)} elsewhere",
            hint="all lanes of the warp must execute it together: move it out of the divergent branch, or use the form "
            "without .aligned if there is one",
            details={"lanes": here & live, "live": live},
        )


def _are(lanes: int) -> str:
    return "are" if lanes & (lanes - 1) else "is"


def require_members(warp: Warp, position: int, members: int | Array, mask: Mask) -> None:
    """Raise when a ``.sync`` instruction names lanes that are elsewhere, or lanes execute it that it does not name."""
    warp.at = position
    full = isinstance(members, int) and members == ALL_LANES
    if not warp.cta.launch.protocol or (full and mask is warp.live):
        return
    if warp.program.warps > 1:
        here_of, live_of = mask.reshape(-1, 32), warp.live.reshape(-1, 32)
        if not full or (here_of.any(1) & (here_of != live_of).any(1)).any():
            raise Unsure
        return
    here, live = ballot(mask), ballot(warp.live)
    given = {members & ALL_LANES} if isinstance(members, int) else {int(m) & ALL_LANES for m in members[mask]}
    for named in given:
        executing = here if isinstance(members, int) else ballot(mask & (members == named))
        absent, unnamed = named & live & ~here, executing & ~named
        if absent or unnamed:
            name = warp.program.instruction(position).opcode
            raise ProtocolError(
                f"{name}.sync with the mask {named:#010x} is executed by {listed(here)}: "
                + (
                    f"{listed(absent)}, which it names, {_are(absent)} elsewhere"
                    if absent
                    else f"{listed(unnamed)} {_are(unnamed)} not in the mask"
                ),
                hint="give a mask of exactly the lanes that execute it, or move it out of the divergent branch",
                details={"mask": named, "lanes": here, "live": live},
            )


def came_together(warp: Warp) -> None:
    """After an ``.aligned`` instruction on matrices, which all lanes have executed as one: called for races only."""
    warp.agent.meet()


class Gathering:
    """A ``bar.warp.sync`` that some of the lanes it names have come to."""

    __slots__ = ("arrived", "generation", "waiters")

    def __init__(self) -> None:
        self.arrived = 0
        self.generation = 0
        self.waiters: list[tuple[Warp, Fragment]] = []


class WarpWait:
    """Lanes that wait at a ``bar.warp.sync`` for others of their warp; asks again when lanes have exited."""

    __slots__ = ("gathering", "generation", "missing", "waiters")
    polls = True

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering
        self.generation = gathering.generation
        self.waiters = gathering.waiters
        self.missing = 0

    def describe(self) -> GroupWait:
        """For the deadlock report."""
        return GroupWait(f"{listed(self.missing)} of its warp at bar.warp.sync")


def meet(warp: Warp, members: int, mask: Mask | None) -> bool:
    """``bar.warp.sync``; False while lanes that it names are missing."""
    agent: Any = warp.agent
    if mask is None and members == ALL_LANES:
        if agent is not None:
            agent.meet()
        return True
    here, live = ALL_LANES if mask is None else ballot(mask), ballot(warp.live)
    fragment = warp.fragment
    fragment.expired = False
    ticket = fragment.ticket
    if ticket is None:
        if here & ~members:
            require_members(warp, warp.at, members, warp.live if mask is None else mask)
        gathering: Gathering = warp.gatherings.setdefault(members, Gathering())
        gathering.arrived |= here
        ticket = WarpWait(gathering)
    gathering = ticket.gathering
    missing = members & live & ~gathering.arrived
    if ticket.generation == gathering.generation and not missing:
        gathering.arrived = 0
        gathering.generation += 1
        warp.cta.launch.machine.wake(gathering.waiters)
        if agent is not None:
            agent.meet(members, live)
    if ticket.generation != gathering.generation:
        fragment.ticket = None
        return True
    ticket.missing = missing
    fragment.ticket = fragment.blocked = ticket
    gathering.waiters.append((warp, fragment))
    return False
