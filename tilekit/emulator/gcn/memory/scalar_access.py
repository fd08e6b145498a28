"""Scalar loads, stores and atomics: one address a wave, one wave after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.gcn.execution.scalars import word
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.atomics import TYPES, operate
from tilekit.emulator.gcn.memory.global_access import ADDRESS, GlobalAccess
from tilekit.emulator.gcn.memory.kinds import Atomic
from tilekit.emulator.gcn.memory.outstanding import ScalarData, ScalarStore

__all__ = ["ScalarAccess"]

Array = npt.NDArray[Any]


class ScalarAccess(GlobalAccess):
    """The part of a batch that accesses memory through scalar registers."""

    __slots__ = ()

    def scalar_load(self, i: Instruction, base: Any, offset: Any, target: int, count: int) -> None:
        """``s_load``: the low two bits of the address do not count."""
        address = (base + offset) & ADDRESS & ~3 if type(base) is int and type(offset) is int else None
        memory = self.launch.memory
        values: list[Any]
        if address is not None:
            allocation, start = memory.at(address, 4 * count, "a scalar load")
            values = allocation.data[start : start + 4 * count].view(np.uint32).tolist()
            where = np.full((self.W, 1), address)
        else:
            where = self._addresses(base, offset)
            rows = []
            for one in where[:, 0].tolist():
                allocation, start = memory.at(one, 4 * count, "a scalar load")
                rows.append(allocation.data[start : start + 4 * count].view(np.uint32).astype(np.int64))
            values = [column[:, None].copy() for column in np.array(rows).T]
        if self.order_checked:
            self._note_scalar(i, where, 4 * count)
        self.queue(1, ScalarData(i, self.issued[1] + 1, target, values))

    def _addresses(self, base: Any, offset: Any) -> Array:
        found = np.asarray(base).astype(np.int64) + np.asarray(offset).astype(np.int64)
        return np.broadcast_to(found, (self.W, 1)) & ADDRESS & ~3

    def _registers(self, first: int, count: int) -> Array:
        """Scalar registers of each wave: uint32[waves, registers]."""
        columns = [np.broadcast_to(np.asarray(word(self.S, first + n), np.int64), (self.W, 1)) for n in range(count)]
        return np.concatenate(columns, axis=1).astype(np.uint32)

    def _note_scalar(
        self, i: Instruction, where: Array, size: int, *, write: bool = False, atomic: bool = False
    ) -> None:  # fmt: skip
        if not self.order_known:
            self.tell_order()
        for wave, address in zip(self.waves, where[:, 0].tolist(), strict=True):
            allocation = self.launch.memory.find(address)
            if allocation is not None and allocation.shadow is not None:
                party: Any = wave.order.queues[1]
                party.epoch = self.issued[1] + 1
                tolerated = atomic or id(i) in self.launch.program.guesses
                allocation.shadow.span(party, address, address + size, write=write, atomic=tolerated, instruction=i)
        if atomic:
            self.pass_on(where, None, acquire=True, release=True)

    def scalar_store(self, i: Instruction, base: Any, offset: Any, data: int, count: int, limit: Any = None) -> None:
        """``s_store``; with a limit on the offset, nothing outside."""
        values = self._registers(data, count)
        where = self._addresses(base, offset)
        inside = self._inside_limit(offset, 4 * count, limit)
        if self.order_checked and inside.all():
            self._note_scalar(i, where, 4 * count, write=True)
        for wave, address in enumerate(where[:, 0].tolist()):
            if inside[wave]:
                allocation, start = self._writable(i, address, 4 * count, wave)
                allocation.data[start : start + 4 * count] = values[wave].view(np.uint8)
        self.machine.events += 1
        self.queue(1, ScalarStore(i, self.issued[1] + 1))

    def scalar_atomic(
        self, i: Instruction, form: Atomic, base: Any, offset: Any, data: int, returns: bool, limit: Any = None
    ) -> None:
        """``s_atomic``; with a limit on the offset, nothing outside."""
        kind = TYPES[form.kind]
        operands = self._registers(data, form.registers * (2 if form.compares else 1)).view(kind)
        where = self._addresses(base, offset)
        inside = self._inside_limit(offset, form.size, limit)
        if self.order_checked and inside.all():
            self._note_scalar(i, where, form.size, write=True, atomic=True)
        olds = np.zeros((self.W, 1), kind)
        for wave, address in enumerate(where[:, 0].tolist()):
            if not inside[wave]:
                continue
            allocation, start = self._writable(i, address, form.size, wave)
            if start % form.size:
                raise MemoryFault("an atomic at an address that is no multiple of its size", where=self.where(i, wave))
            target = allocation.data[start : start + form.size].view(kind)
            old = olds[wave, 0] = target[0].copy()
            target[0] = operate(form.operation, old, operands[wave, 0], operands[wave, -1])
        self.machine.events += 1
        number = self.issued[1] + 1
        if not returns:
            self.queue(1, ScalarStore(i, number))
            return
        columns = olds.view(np.uint32).astype(np.int64)
        self.queue(1, ScalarData(i, number, data, [columns[:, n : n + 1].copy() for n in range(form.registers)]))

    def _inside_limit(self, offset: Any, size: int, limit: Any) -> Array:
        if limit is None:
            return np.ones(self.W, np.bool_)
        return np.broadcast_to(np.asarray(offset) + size <= np.asarray(limit), (self.W, 1))[:, 0]

    def _writable(self, i: Instruction, address: int, size: int, wave: int) -> Any:
        try:
            allocation, start = self.launch.memory.at(address, size, "a scalar store")
        except MemoryFault as fault:
            raise fault.at(self.where(i, wave)) from None
        self.require_writable(i, allocation)
        return allocation, start
