"""Barriers and instructions of whole warps, as a lockstep group executes them.

Where a CTA, or a warp, has come only in part, single warps must find out whether that is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilekit.emulator.ptx.execution.lockstep_memory import Unsure

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.lockstep import LockstepGroup

Mask = npt.NDArray[np.bool_]


def _require_whole(group: LockstepGroup, mask: Mask, lanes: int) -> None:
    """Be unsure unless each group of so many lanes has come whole, or not at all."""
    groups = mask.reshape(-1, lanes)
    missing = (groups != group.live.reshape(-1, lanes)).any(1) & groups.any(1)
    if missing.any():
        raise Unsure


def bar_sync(group: LockstepGroup, number: int, threads: int, aligned: bool) -> bool:
    """``bar.sync``: every CTA that has come has passed the barrier."""
    formation = group.formation
    mask = group.fragment.mask
    if number or threads not in (0, formation.threads):
        raise Unsure
    if mask is not None:
        _require_whole(group, mask, 32 * formation.warps)
    group.who = group.who.behind_barrier(mask)
    return True


def require_together(group: LockstepGroup, position: int, mask: Mask) -> None:
    """An ``.aligned`` instruction is executed by whole warps."""
    _require_whole(group, mask, 32)


def require_members(group: LockstepGroup, position: int, members: object, mask: Mask) -> None:
    """A ``.sync`` instruction names whole warps, and is executed by them."""
    if not isinstance(members, int) or members != 0xFFFFFFFF:
        raise Unsure
    _require_whole(group, mask, 32)
