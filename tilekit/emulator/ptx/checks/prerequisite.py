"""The grid ahead of a programmatic dependent launch: until ``griddepcontrol.wait`` it is not over.

A launch runs alone here, so the grid ahead is a single access: it still uses the memory it was said to use, and who
touches that memory without being ordered behind a ``griddepcontrol.wait`` races with it (PTX ISA, griddepcontrol).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.errors import Actor

if TYPE_CHECKING:
    from tilekit.emulator.core.checks.happens_before import HappensBefore
    from tilekit.emulator.core.memory.memory import Allocation
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = ["UNIT", "grid_ahead", "wait_for_grid"]

UNIT = "grid ahead"


def grid_ahead(order: HappensBefore, allocations: Iterable[Allocation]) -> Sync:
    """Let a grid ahead of this one still use some global memory; return what tells of its end."""
    over = Sync("griddepcontrol.wait")
    # Its end is the end of everything it did, in any proxy: what comes behind it needs no fence.
    operation = order.issue(order.warp(Actor(0, 0, UNIT)), UNIT, None, over)
    for allocation in allocations:
        if allocation.shadow is not None:
            allocation.shadow.occupy(operation)
    order.release(operation, over)
    return over


def wait_for_grid(warp: Warp) -> None:
    """``griddepcontrol.wait``."""
    launch = warp.cta.launch
    if launch.order is not None and launch.ahead is not None:
        launch.order.acquire(warp.agent, launch.ahead)
