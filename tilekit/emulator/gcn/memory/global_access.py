"""Accesses to global memory: where the lanes' addresses lie, bounds, data, order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.core.memory.memory import GLOBAL_BASE, Allocation
from tilekit.emulator.gcn.execution.state import BatchState
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.atomics import apply_atomic
from tilekit.emulator.gcn.memory.changes import StoreChanges
from tilekit.emulator.gcn.memory.kinds import Atomic, Form
from tilekit.emulator.gcn.memory.outstanding import Outstanding, VectorData

__all__ = ["ADDRESS", "GlobalAccess", "gather", "scatter"]

Array = npt.NDArray[Any]
ADDRESS = (1 << 48) - 1
"""The bits of an address that count."""


def gather(data: Array, offsets: Array, size: int) -> Any:
    """Bytes at each offset as uint32[registers, …]: narrow data is zero extended."""
    if size == 16 and not (offsets & 15).any():
        words = data.view(np.complex128)[offsets >> 4].view(np.uint32).reshape(*offsets.shape, 4)
        return np.moveaxis(words, -1, 0)
    if size >= 4 and not (offsets & 3).any():
        words = data.view(np.uint32)
        index = offsets >> 2
        return np.stack([words[index + place] for place in range(size // 4)])
    if size == 2 and not (offsets & 1).any():
        return data.view(np.uint16)[offsets >> 1].astype(np.uint32)[None]
    single = [data[offsets + place].astype(np.uint32) for place in range(size)]
    words_of = [single[i : i + 4] for i in range(0, size, 4)]
    return np.stack(
        [
            sum((part << np.uint32(8 * n) for n, part in enumerate(word)), np.zeros(offsets.shape, np.uint32))
            for word in words_of
        ]
    )


def scatter(data: Array, offsets: Array, values: Array, size: int) -> None:
    """Write uint32[registers, lanes] at each offset."""
    if size == 16 and not (offsets & 15).any():
        packed = np.ascontiguousarray(np.moveaxis(values, 0, -1)).view(np.complex128)[..., 0]
        data.view(np.complex128)[offsets >> 4] = packed
    elif size >= 4 and not (offsets & 3).any():
        words = data.view(np.uint32)
        for place in range(size // 4):
            words[(offsets >> 2) + place] = values[place]
    else:
        for place in range(size):
            data[offsets + place] = (values[place // 4] >> np.uint32(8 * (place % 4))).astype(np.uint8)


def sign_extended(data: Array, form: Form) -> tuple[Array, int]:
    """A load's data as its form wants it, and the bits of the register that it leaves."""
    if form.signed:
        sign = np.uint32(1 << (8 * form.size - 1))
        data = (data ^ sign) - sign
    if form.part == 1:
        return data & np.uint32(0xFFFF), 0xFFFF0000
    if form.part == 2:
        return data << np.uint32(16), 0xFFFF
    return data, 0


class GlobalAccess(BatchState):
    """The part of a batch that accesses global memory."""

    __slots__ = ()

    # -- places ------------------------------------------------------------------------------------------------------

    def places(
        self, i: Instruction, address: Array, size: int, lanes: Array | None, action: str
    ) -> list[tuple[Allocation, Array, Array | None]]:
        """The allocations that the active lanes' addresses lie in: each with offsets and the lanes that are in it."""
        active = address if lanes is None else address[lanes]
        if active.size == 0:
            return []
        low, high = int(active.min()), int(active.max())
        memory = self.launch.memory
        allocation = memory.find(low)
        if allocation is not None and low >= allocation.start and high + size <= allocation.start + allocation.size:
            offsets = address - allocation.start
            return [(allocation, offsets if lanes is None else np.where(lanes, offsets, 0), lanes)]
        return self._scattered(i, address, size, lanes, action)

    def _scattered(
        self, i: Instruction, address: Array, size: int, lanes: Array | None, action: str
    ) -> list[tuple[Allocation, Array, Array | None]]:
        memory = self.launch.memory
        left = np.ones(address.shape, np.bool_) if lanes is None else lanes.copy()
        found: list[tuple[Allocation, Array, Array | None]] = []
        while left.any():
            wave, lane = np.unravel_index(int(left.argmax()), left.shape)
            first = int(address[wave, lane])
            allocation = memory.find(first)
            offsets = address - (allocation.start if allocation is not None else first + 1)
            inside = left & (offsets >= 0) & (offsets + size <= (allocation.size if allocation is not None else 0))
            if allocation is None or not inside[wave, lane]:
                fault = memory.fault(first, size, action)
                if 1 << 16 <= first < GLOBAL_BASE:
                    fault = MemoryFault(f"{action} of {size} bytes at {first:#x}: no address of global memory")
                raise MemoryFault(
                    f"{fault.message} (lane {lane})",
                    where=self.where(i, int(wave)),
                    details=fault.details,
                    hint="mask a lane that should not take part by EXEC, or keep it outside by the "
                    "buffer's num_records",
                )
            found.append((allocation, np.where(inside, offsets, 0), inside))
            left &= ~inside
        return found

    # -- order -------------------------------------------------------------------------------------------------------

    def note(
        self,
        i: Instruction,
        memory: Any,
        address: Array,
        size: int,
        lanes: Array | None,
        queue: int,
        *,
        write: bool,
        atomic: bool = False,
        changes: StoreChanges | None = None,
    ) -> None:
        """Tell the race check of an access, wave by wave."""
        if not self.order_known:
            self.tell_order()
        number = self.issued[queue] + 1
        together = lanes is None and bool((address[:, 1:] - address[:, :-1] == size).all())
        firsts = address[:, 0].tolist() if together else ()
        for index, wave in enumerate(self.waves):
            party: Any = wave.order.queues[queue]
            party.epoch = number
            mine = None if changes is None else changes.of(index)
            if together:
                first = firsts[index]
                memory.span(party, first, first + 64 * size, write=write, atomic=atomic, instruction=i, changes=mine)
                continue
            row = address[index] if lanes is None else address[index][lanes[index]]
            if row.size:
                memory.in_step(party, row, size, write=write, atomic=atomic, instruction=i, changes=mine)

    def pass_on(self, address: Array, lanes: Array | None, *, acquire: bool, release: bool) -> None:
        """Pass on what waves know through words that atomics, or coherent accesses, touch."""
        table = self.launch.atomic_words
        for index, wave in enumerate(self.waves):
            row = address[index] if lanes is None else address[index][lanes[index]]
            for word in set(row.tolist()):
                clocks = table.get(word)
                if clocks is None:
                    if not release:
                        continue
                    clocks = table[word] = ({}, {})
                if acquire and (clocks[0] or clocks[1]):
                    wave.order.learn(*clocks)
                if release:
                    wave.order.tell(*clocks)

    def _note_load(self, i: Instruction, address: Array, size: int, lanes: Array | None) -> None:
        """Remember which bytes each wave loads at an instruction: waves may repeat each other's work."""
        loads = self.launch.loads
        if lanes is None:
            lows, highs = address.min(axis=1).tolist(), address.max(axis=1).tolist()
        else:
            lows = np.where(lanes, address, 1 << 62).min(axis=1).tolist()
            highs = np.where(lanes, address, -1).max(axis=1).tolist()
        for wave, low, high in zip(self.waves, lows, highs, strict=True):
            loads.setdefault((id(i), wave.workgroup.number), []).append((low, high + size, wave.order))

    # -- accesses ----------------------------------------------------------------------------------------------------

    def fetch(self, i: Instruction, address: Array, size: int, lanes: Array | None) -> Array:
        """Read: uint32[registers, waves, 64], 0 in lanes that are not active."""
        registers = max(1, size // 4)
        data: Array | None = None
        for allocation, offsets, chosen in self.places(i, address, size, lanes, "a load"):
            if allocation.shadow is not None:
                coherent = i.flag("sc0") or i.flag("sc1")
                if coherent:
                    if not self.order_known:
                        self.tell_order()
                    self.pass_on(address, chosen, acquire=True, release=False)
                self._note_load(i, address, size, chosen)
                atomic = coherent or id(i) in self.launch.program.guesses
                self.note(i, allocation.shadow, self.spread(address), size, chosen, 0, write=False, atomic=atomic)
            got = gather(allocation.data, offsets, size)
            if chosen is None or (data is None and chosen is lanes):
                data = got
            else:
                data = np.zeros((registers, self.W, 64), np.uint32) if data is None else data
                np.copyto(data, got, where=chosen)
        return np.zeros((registers, self.W, 64), np.uint32) if data is None else data

    def global_load(self, i: Instruction, form: Form, address: Any, target: int, lanes: Array | None) -> None:
        """``global_load``."""
        data = self.fetch(i, self.spread(address) & ADDRESS, form.size, self.full(lanes))
        self.loaded(i, form, data, target, lanes, 0)

    def loaded(self, i: Instruction, form: Form, data: Array, target: int, lanes: Array | None, queue: int) -> None:
        """Queue a load's data."""
        data, keep = sign_extended(data, form)
        self.queue(queue, VectorData(i, self.issued[queue] + 1, target, data, lanes, keep))

    def queue_register(self, queue: int, i: Instruction, target: int, data: Array, lanes: Array | None) -> None:
        """Queue the result of an instruction that goes through a memory's path without touching it."""
        self.queue(queue, VectorData(i, self.issued[queue] + 1, target, data[None], lanes))

    def global_store(self, i: Instruction, form: Form, address: Any, data: int, lanes: Array | None) -> None:
        """``global_store``."""
        self.put(i, form, self.spread(address) & ADDRESS, data, self.full(lanes))

    def put(
        self, i: Instruction, form: Form, address: Array, data: int, lanes: Array | None, *, last: bool = True
    ) -> None:
        """Write registers to global memory; `last` is the last part of an instruction's."""
        values = self.V[data : data + form.registers]
        if form.part == 2:
            values = values >> np.uint32(16)
        for allocation, offsets, chosen in self.places(i, address, form.size, lanes, "a store"):
            self.require_writable(i, allocation)
            if allocation.shadow is not None:
                coherent = i.flag("sc0") or i.flag("sc1")
                where = self.spread(address)

                changes = StoreChanges(allocation.data, offsets, values, form.size, chosen, allocation.start)
                self.note(
                    i, allocation.shadow, where, form.size, chosen, 0, write=True, atomic=coherent, changes=changes
                )
                if coherent:
                    self.pass_on(address, chosen, acquire=False, release=True)
            if chosen is None:
                scatter(allocation.data, offsets, values, form.size)
            else:
                scatter(allocation.data, offsets[chosen], values[:, chosen], form.size)
        self.machine.events += 1
        if last:
            self.queue(0, Outstanding(i, self.issued[0] + 1))

    def require_writable(self, i: Instruction, allocation: Allocation) -> None:
        """Raise where a store would change what is read only."""
        if not allocation.writable:
            raise MemoryFault(f"a store to {allocation.name}, which is read only", where=self.where(i, 0))

    def write_back(self, i: Instruction) -> None:
        """``buffer_wbl2``."""
        self.queue(0, Outstanding(i, self.issued[0] + 1))

    def acquire(self) -> None:
        """``buffer_inv``: what atomics told has been learnt when they were executed."""

    def global_atomic(
        self, i: Instruction, form: Atomic, address: Any, data: int, target: int | None, lanes: Array | None
    ) -> None:
        """``global_atomic``."""
        self.change(i, form, self.spread(address) & ADDRESS, data, target, self.full(lanes), lanes)

    def change(
        self,
        i: Instruction,
        form: Atomic,
        address: Array,
        data: int,
        target: int | None,
        lanes: Array | None,
        written: Array | None,
    ) -> None:
        """Execute an atomic operation on global memory."""
        count = form.registers * (2 if form.compares else 1)
        values = self.V[data : data + count]
        before = np.zeros((form.registers, self.W, 64), np.uint32)
        for allocation, offsets, chosen in self.places(i, address, form.size, lanes, "an atomic"):
            self.require_writable(i, allocation)
            if allocation.shadow is not None:
                self.note(i, allocation.shadow, address, form.size, chosen, 0, write=True, atomic=True)
                self.pass_on(address, chosen, acquire=True, release=True)
            apply_atomic(self, i, form, allocation.data, offsets, values, chosen, before)
        number = self.issued[0] + 1
        if target is None:
            self.queue(0, Outstanding(i, number))
        else:
            self.queue(0, VectorData(i, number, target, before, written))
