"""Waves that run in step, with all that generated code asks of them.

NumPy takes hardly longer for the lanes of many waves than for those of one, so the waves of several workgroups run as
one batch as long as they take the same way. Where a branch parts them, the batch is split.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError, Where
from tilekit.emulator.gcn.execution.scalars import put32, settle_number, word
from tilekit.emulator.gcn.language.syntax import M0, Instruction
from tilekit.emulator.gcn.memory.flat_access import FlatAccess
from tilekit.emulator.gcn.memory.outstanding import of_waves
from tilekit.emulator.gcn.ops.control import SPLIT

__all__ = ["Batch"]

Array = npt.NDArray[Any]
LAST_SCALAR = 101


class Batch(FlatAccess):
    """Waves that run in step: what they can be asked to do besides accessing memory is to part."""

    __slots__ = ()

    def branch(self, truth: Any, taken: int, following: int) -> int:
        """Go on at one of two blocks, or part the batch."""
        if type(truth) is bool:
            return taken if truth else following
        chosen = np.broadcast_to(truth, (self.W, 1))[:, 0]
        other = self.part(chosen)
        other.block = taken
        self.keep(~chosen)
        self.block = following
        self.gang.batches.append(other)
        self.machine.enqueue(other)
        return SPLIT

    def jump(self, i: Instruction, address: Any) -> int:
        """Go on at the block at an address, or part the batch by where its waves go on."""
        if not isinstance(address, np.ndarray):
            return self._block_at(i, address, 0)
        column = np.broadcast_to(address, (self.W, 1))[:, 0]
        first, *others = np.unique(column).tolist()
        here = self._block_at(i, first, int((column == first).argmax()))
        for value in others:
            other = self.part(column == value)
            other.block = self._block_at(i, value, int((column == value).argmax()))
            self.gang.batches.append(other)
            self.machine.enqueue(other)
        if others:
            self.keep(column == first)
        self.block = here
        return SPLIT

    def _block_at(self, i: Instruction, address: int, wave: int) -> int:
        block = self.launch.program.block_at(self.launch.image.index_at(address))
        if block is None:
            raise ProtocolError(
                f"'{i.name}' to {address:#x}, where no function or label begins that the text takes the address of",
                where=self.where(i, wave),
            )
        return block

    # -- registers by index ------------------------------------------------------------------------------------------

    def _index(self) -> Any:
        """M0's low byte: one number, or one a wave."""
        value = word(self.S, M0) & 0xFF
        return value if type(value) is int else np.broadcast_to(value, (self.W, 1))[:, 0]

    def read_indexed(self, i: Instruction, first: int, count: int, slot: int, limit: int) -> None:
        """Copy vector registers that M0 counts from a first one to a place of their own."""
        index = self._index()
        most = first + int(np.max(index)) + count
        if most > limit:
            raise ProtocolError(
                f"'{i.name}' with a register that is v{most - 1} by its index: the kernel has {limit}",
                where=self.where(i, 0),
                details={"register": most - 1},
            )
        touched = 0
        for one in {int(value) for value in np.atleast_1d(index)}:
            touched |= ((1 << count) - 1) << first + one
        if touched & self.pending:
            self.launch.not_waited_for(self, i, touched & self.pending)
        for place in range(count):
            if type(index) is int:
                self.V[slot + place] = self.V[first + index + place]
            else:
                self.V[slot + place] = self.V[first + index + place, np.arange(self.W)]

    def write_indexed(self, first: int, count: int, slot: int) -> None:
        """Copy results back to the registers that M0 counts from a first one."""
        index = self._index()
        for place in range(count):
            if type(index) is int:
                self.V[first + index + place] = self.V[slot + place]
            else:
                self.V[first + index + place, np.arange(self.W)] = self.V[slot + place]
        for one in {int(value) for value in np.atleast_1d(index)}:
            self.written |= ((1 << count) - 1) << first + one

    def _relative(self, first: int) -> Any:
        index = word(self.S, M0)
        if np.max(index) + first > LAST_SCALAR:
            raise ProtocolError(f"M0 is {int(np.max(index))}: s{first} and so many on is no scalar register",
                                where=Where(kernel=self.launch.kernel.name))  # fmt: skip
        return index

    def scalar_at(self, first: int) -> Any:
        """The scalar register that M0 counts from a first one."""
        index = self._relative(first)
        if type(index) is int:
            return word(self.S, first + index)
        found = np.zeros((self.W, 1), np.int64)
        for one in np.unique(index).tolist():
            found = np.where(index == one, word(self.S, first + one), found)
        return settle_number(found)

    def put_scalar_at(self, first: int, value: Any) -> None:
        """Write the scalar register that M0 counts from a first one."""
        index = self._relative(first)
        if type(index) is int:
            put32(self.S, first + index, value)
            return
        for one in np.unique(index).tolist():
            put32(self.S, first + one, settle_number(np.where(index == one, value, word(self.S, first + one))))

    def part(self, chosen: Array) -> Self:
        """Return the waves of a mask as a batch of their own."""
        other = type(self)(
            self.gang, [self.waves[index] for index in np.nonzero(chosen)[0]], np.ascontiguousarray(self.V[:, chosen])
        )
        other.S = [settled(of_waves(value, chosen)) for value in self.S]
        other.E = None if self.E is None or self.E[chosen].all() else self.E[chosen]
        other.scc = self.scc if type(self.scc) is bool else _settled_truth(self.scc[chosen])
        other.mode = self.mode
        other.queues = tuple([operation.part(chosen) for operation in queue] for queue in self.queues)  # type: ignore[assignment]
        other.issued = self.issued.copy()
        other.pending, other.written, other.block = self.pending, self.written, self.block
        other.order_known = self.order_known
        other.scratch = self.scratch[chosen]
        return other

    def keep(self, chosen: Array) -> None:
        """Keep the waves of a mask."""
        rest = self.part(chosen)
        for name in ("waves", "W", "V", "U", "I", "F", "S", "E", "scc", "queues", "lds_base", "scratch"):
            setattr(self, name, getattr(rest, name))


def settled(value: Any) -> Any:
    """A scalar register of fewer waves: an int where these agree."""
    if isinstance(value, np.ndarray) and value.dtype != np.bool_:
        return settle_number(value)
    return value


def _settled_truth(value: Array) -> Any:
    first = bool(value.flat[0])
    return first if (value == first).all() else value
