"""The state of waves that run in step: their registers as arrays, their lanes and their wait counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import Where
from tilekit.emulator.gcn.arithmetic.conversions import byte_type
from tilekit.emulator.gcn.execution.scalars import halves, mask_of, settle_number
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.outstanding import Outstanding

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.machine import Machine
    from tilekit.emulator.gcn.execution.workgroup import Gang, WaveState
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["BatchState"]

Array = npt.NDArray[Any]


class BatchState:
    """The state of waves that run in step.

    Attributes
    ----------
    waves, W
        Who they are, and how many.
    V, U, I, F
        Vector registers: uint32[registers, waves, 64], and its rows as uint32, int32 and float32.
    S
        Scalar registers; see :mod:`.scalars`.
    E
        Active lanes, bool[waves, 64]; None where all are.
    scc, mode
        The condition code, and the MODE register.
    queues, issued
        What is outstanding on vmcnt and on lgkmcnt, and how many operations there have been.
    pending
        Bits of the registers that those will write.
    written
        Bits of the registers that have been written.
    block
        Number of the block that comes next.
    """

    __slots__ = (
        "E", "F", "I", "S", "U", "V", "W", "block", "circling", "gang", "issued", "launch", "lds_base", "machine",
        "met_events", "mode", "order_checked", "order_known", "pending", "queued", "queues", "scc", "scratch", "seen",
        "waiting", "waves", "written",
    )  # fmt: skip

    def __init__(self, gang: Gang, waves: list[WaveState], registers: Array) -> None:
        self.gang = gang
        self.launch: Launch = gang.launch
        self.machine: Machine = self.launch.machine
        self.waves = waves
        self.W: int = len(waves)
        self.V: Array = registers
        self.rows()
        self.S: list[Any] = [0] * 128
        self.E: Array | None = None
        self.scc: Any = False
        self.mode = 0
        self.queues: tuple[list[Outstanding], list[Outstanding]] = ([], [])
        self.issued: list[int] = [0, 0]
        self.pending = 0
        self.written = 0
        self.block = 0
        self.queued = False
        self.waiting: Instruction | None = None
        self.order_checked: bool = self.launch.order_checked
        self.order_known: bool = True
        self.lds_base: Array = np.array([[wave.workgroup.lds_base] for wave in waves], np.int64)
        self.scratch: Array = np.empty((self.W, 64, 0), np.uint8)
        self.seen: set[Any] = set()
        self.met_events = -1
        self.circling = False

    def rows(self) -> None:
        """Name the rows of the registers."""
        self.U = list(self.V)
        self.I = list(self.V.view(np.int32))
        self.F = list(self.V.view(np.float32))

    # -- lanes -------------------------------------------------------------------------------------------------------

    def exec_mask(self) -> Array:
        """EXEC as a mask of lanes."""
        return np.ones((self.W, 64), np.bool_) if self.E is None else self.E

    def set_exec(self, value: Any) -> None:
        """Set EXEC."""
        mask = mask_of(value, self.W)
        self.E = None if mask.all() else mask

    def set_exec_half(self, half: int, value: Any) -> None:
        """Set EXEC_LO or EXEC_HI."""
        words = list(halves(self.exec_mask()))
        words[half] = value
        if all(type(part) is int for part in words):
            self.set_exec(words[0] | words[1] << 32)
        else:
            low, high = (np.asarray(part).astype(np.uint64) for part in words)
            self.set_exec(np.broadcast_to(low | high << np.uint64(32), (self.W, 1)))

    def full(self, lanes: Array | None) -> Array | None:
        """A mask of lanes for every wave."""
        return lanes if lanes is None or lanes.ndim == 2 else np.broadcast_to(lanes, (self.W, 64))

    # -- state -------------------------------------------------------------------------------------------------------

    def set_mode(self, start: int, size: int, value: Any) -> None:
        """Write bits of MODE, which must be the same for all waves."""
        mask = ((1 << size) - 1) << start
        self.mode = self.mode & ~mask | int(settle_number(value)) << start & mask

    @property
    def flushes(self) -> bool:
        """Whether float32 denormals are flushed."""
        return not self.mode >> 4 & 3

    @property
    def saturates(self) -> bool:
        """Whether conversions to 8-bit floats hold what is too large at the largest number."""
        return True

    def byte_type(self, name: str) -> Any:
        """The type of 8-bit floats that the chip means by ``fp8`` or ``bf8``."""
        return byte_type(name, self.launch.chip.fnuz)

    def ticks(self) -> int:
        """A clock."""
        return self.machine.steps

    def where(self, i: Instruction, wave: int) -> Where:
        """The place of an instruction in one of the waves."""
        return Where(kernel=self.launch.kernel.name, actor=self.waves[wave].order.actor, instruction=i)

    # -- wait counters -----------------------------------------------------------------------------------------------

    def queue(self, which: int, operation: Outstanding) -> None:
        """Note an operation that has been issued."""
        self.issued[which] += 1
        self.queues[which].append(operation)
        self.pending |= operation.registers
        if self.machine.lands_early():
            operation.land(self)

    def wait(self, which: int, most: int) -> None:
        """Let the oldest operations land until so many are left, or as many as are sure to have landed by then."""
        queue = self.queues[which]
        sure = len(queue) - most
        scalars = sum(operation.scalar for operation in queue)
        if scalars and most:
            sure = self._sure(queue, sure, scalars)
            if sure <= 0:
                return
        for operation in queue[:sure]:
            operation.land(self)
        del queue[:sure]
        self.settle()

    @staticmethod
    def _sure(queue: list[Outstanding], complete: int, scalars: int) -> int:
        """How many at the head are sure to be complete: scalar loads may have overtaken others."""
        first_scalar = next(place for place, operation in enumerate(queue) if operation.scalar)
        return min(first_scalar, complete - scalars)

    def settle(self) -> None:
        """Work out anew which registers are pending."""
        self.pending = 0
        for queue in self.queues:
            for operation in queue:
                self.pending |= operation.registers
        self.order_known = False

    def done(self) -> tuple[int, int]:
        """How many operations of each queue are complete, the first ones."""
        first, second = (
            queue[0].number - 1 if queue else issued for queue, issued in zip(self.queues, self.issued, strict=True)
        )
        return first, second

    def tell_order(self) -> None:
        """Let the waves know which of their operations are complete."""
        done = self.done()
        for wave in self.waves:
            wave.order.waited(done)
        self.order_known = True

    def spread(self, address: Any) -> Array:
        """A value for each lane."""
        return np.broadcast_to(address, (self.W, 64))

    def state(self) -> Any:
        """What tells one moment from another, for waves that go round in circles."""
        scalars = tuple(value if type(value) is int else getattr(value, "tobytes", str)() for value in self.S)
        return self.block, self.V.tobytes(), scalars, None if self.E is None else self.E.tobytes()
