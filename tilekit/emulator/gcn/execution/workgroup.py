"""Workgroups that start together: their LDS, their barriers, and the state that waves begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Clock
from tilekit.emulator.core.checks.shadow import Memory
from tilekit.emulator.core.memory.memory import POISON
from tilekit.emulator.gcn.checks.order import WaveOrder
from tilekit.emulator.gcn.errors import Wave

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["Gang", "WaveState", "Workgroup"]

Array = npt.NDArray[Any]
_LDS_PITCH = 1024


class WaveState:
    """One wave: its workgroup, its number there, and what it knows of others."""

    __slots__ = ("ended", "index", "order", "workgroup")

    def __init__(self, launch: Launch, workgroup: Workgroup, index: int) -> None:
        self.workgroup = workgroup
        self.index = index
        self.ended = False
        actor = Wave(0, index, launch.symbols.role_of(index), workgroup.number)
        self.order = WaveOrder(actor, launch.identities)


class Workgroup:
    """One workgroup.

    Attributes
    ----------
    number, index
        Its place in the grid.
    lds_base
        Where its LDS begins in that of its gang.
    shadow
        Who accessed its LDS, for the race check.
    arrived
        Waves that wait at its barrier.
    meetings
        How often the barrier has been complete.
    """

    __slots__ = ("arrived", "index", "lds_base", "meetings", "number", "shadow", "waves")

    def __init__(self, launch: Launch, number: int, lds_base: int) -> None:
        self.number = number
        width, height, _ = launch.grid
        self.index = (number % width, number // width % height, number // (width * height))
        self.lds_base = lds_base
        self.shadow = Memory("LDS", 0, launch.lds_bytes, launch.race, cta=number)
        self.arrived: set[int] = set()
        self.meetings = 0
        self.waves = [WaveState(launch, self, index) for index in range(launch.waves)]

    def complete(self) -> bool:
        """Whether every wave that has not ended waits at the barrier."""
        return all(wave.ended or wave.index in self.arrived for wave in self.waves)

    def release(self) -> None:
        """Complete the barrier."""
        self.arrived.clear()
        self.meetings += 1

    def meet(self) -> None:
        """Complete the barrier: each wave knows what all knew."""
        self.release()
        known: Clock = {}
        assumed: Clock = {}
        live = [wave for wave in self.waves if not wave.ended]
        for wave in live:
            wave.order.tell(known, assumed)
        for wave in live:
            wave.order.learn(known, assumed)


class Gang:
    """Workgroups that start together, as one batch at first.

    Attributes
    ----------
    lds, lds_size
        LDS of all of them, and bytes of each.
    batches
        Those that have not ended.
    """

    def __init__(self, launch: Launch, number: int, numbers: range) -> None:
        self.launch = launch
        self.number = number
        self.first = numbers.start
        self.lds_size = launch.lds_bytes
        pitch = -(-max(launch.lds_bytes, 16) // _LDS_PITCH) * _LDS_PITCH
        self.lds: Array = np.full(pitch * len(numbers) // 4, POISON, np.uint32).view(np.uint8)
        self.workgroups = [Workgroup(launch, one, place * pitch) for place, one in enumerate(numbers)]
        waves = [wave for workgroup in self.workgroups for wave in workgroup.waves]
        registers = np.full((launch.kernel.vectors, len(waves), 64), POISON, np.uint32)
        self.batches: list[Batch] = [launch.batch_type(self, waves, registers)]
        launch.prepare(self.batches[0])
