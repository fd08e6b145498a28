"""Accesses to LDS, which a workgroup shares, and to scratch, which each lane has for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.core.memory.memory import POISON
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.atomics import apply_atomic
from tilekit.emulator.gcn.memory.changes import StoreChanges
from tilekit.emulator.gcn.memory.global_access import ADDRESS, gather, scatter
from tilekit.emulator.gcn.memory.kinds import Atomic, Form
from tilekit.emulator.gcn.memory.outstanding import Outstanding, ToLds, VectorData
from tilekit.emulator.gcn.memory.scalar_access import ScalarAccess

__all__ = ["LocalAccess"]

Array = npt.NDArray[Any]


class LocalAccess(ScalarAccess):
    """The part of a batch that accesses LDS and scratch."""

    __slots__ = ()

    # -- LDS ---------------------------------------------------------------------------------------------------------

    def lds_places(self, i: Instruction, address: Array, size: int, lanes: Array | None, action: str) -> Array:
        """The bytes of the gang's LDS that addresses are."""
        active = address if lanes is None else address[lanes]
        if active.size and (int(active.min()) < 0 or int(active.max()) + size > self.gang.lds_size):
            outside = (address < 0) | (address + size > self.gang.lds_size)
            if lanes is not None:
                outside = outside & lanes
            wave, lane = np.unravel_index(int(outside.argmax()), outside.shape)
            first = int(address[wave, lane])
            raise MemoryFault(
                f"{action} of {size} bytes at {first:#x} of LDS: out of bounds, the workgroup has "
                f"{self.gang.lds_size} bytes (lane {lane})",
                where=self.where(i, int(wave)),
                details={"address": first, "bytes": size},
                hint="launch with more shared_bytes, or mend the offset",
            )
        places = address + self.lds_base
        return places if lanes is None else np.where(lanes, places, self.lds_base)

    def note_lds(
        self,
        i: Instruction,
        address: Array,
        size: int,
        lanes: Array | None,
        queue: int,
        *,
        write: bool,
        atomic: bool = False,
        changes: StoreChanges | None = None,
    ) -> None:
        """Tell the race check of an access to LDS, wave by wave."""
        if not self.order_known:
            self.tell_order()
        number = self.issued[queue] + 1
        for index, wave in enumerate(self.waves):
            row = address[index] if lanes is None else address[index][lanes[index]]
            if row.size:
                party: Any = wave.order.queues[queue]
                party.epoch = number
                mine = None if changes is None else changes.of(index)
                wave.workgroup.shadow.in_step(party, row, size, write=write, atomic=atomic, instruction=i, changes=mine)

    def _read(self, i: Instruction, address: Array, size: int, lanes: Array | None) -> Any:
        places = self.lds_places(i, address, size, lanes, "a read")
        if self.order_checked:
            program = self.launch.program
            polled = id(i) in program.polls
            self.note_lds(i, address, size, lanes, 1, write=False, atomic=polled or id(i) in program.guesses)
            if polled:
                self.pass_on(places - (1 << 40) - self.gang.first, lanes, acquire=True, release=False)
        data = gather(self.gang.lds, places, size)
        if size >= 4 and self.launch.check != "off":
            self._look_for_unwritten(i, data, address, lanes)
        return data

    def _look_for_unwritten(self, i: Instruction, data: Array, address: Array, lanes: Array | None) -> None:
        """Report words of LDS that hold what fresh LDS holds."""
        fresh = data == POISON
        if np.count_nonzero(fresh):
            if lanes is not None:
                fresh = fresh & lanes
            if fresh.any():
                register, wave, lane = np.unravel_index(int(fresh.argmax()), fresh.shape)
                self.launch.unwritten_lds(self, i, int(wave), int(lane), int(address[wave, lane]) + 4 * int(register))

    def lds_read(self, i: Instruction, form: Form, address: Any, target: int, lanes: Array | None) -> None:
        """``ds_read``."""
        self.loaded(i, form, self._read(i, self.spread(address), form.size, self.full(lanes)), target, lanes, 1)

    def lds_read_pair(
        self, i: Instruction, form: Form, first: Any, second: Any, target: int, lanes: Array | None
    ) -> None:
        """``ds_read2``."""
        active = self.full(lanes)
        parts = [self._read(i, self.spread(address), form.size, active) for address in (first, second)]
        self.queue(1, VectorData(i, self.issued[1] + 1, target, np.concatenate(parts), lanes))

    def _sets_flag(self, form: Form, lanes: Array | None) -> bool:
        """Whether a write may be an atomic one for which other waves wait in a loop: of one lane, and a word."""
        if not self.launch.program.polls or form.size > 8 or lanes is None:
            return False
        return bool((lanes.sum(axis=-1) <= 1).all())

    def lds_write(
        self, i: Instruction, form: Form, addresses: tuple[Any, ...], data: tuple[int, ...], lanes: Array | None
    ) -> None:
        """``ds_write`` and ``ds_write2``."""
        active = self.full(lanes)
        for address, first in zip(addresses, data, strict=True):
            where = self.spread(address)
            places = self.lds_places(i, where, form.size, active, "a write")
            values = self.V[first : first + form.registers]
            if form.part == 2:
                values = values >> np.uint32(16)
            if self.order_checked:
                flag = self._sets_flag(form, active)
                self.note_lds(
                    i,
                    where,
                    form.size,
                    active,
                    1,
                    write=True,
                    atomic=flag,
                    changes=StoreChanges(self.gang.lds, places, values, form.size, active, -self.lds_base),
                )
                if flag:
                    self.pass_on(places - (1 << 40) - self.gang.first, active, acquire=False, release=True)
            if active is None:
                scatter(self.gang.lds, places, values, form.size)
            else:
                scatter(self.gang.lds, places[active], values[:, active], form.size)
        self.machine.events += 1
        self.queue(1, Outstanding(i, self.issued[1] + 1))

    def lds_atomic(
        self,
        i: Instruction,
        form: Atomic,
        address: Any,
        data: tuple[int, ...],
        target: int | None,
        lanes: Array | None,
    ) -> None:
        """``ds_add`` and its like."""
        active, where = self.full(lanes), self.spread(address)
        places = self.lds_places(i, where, form.size, active, "an atomic")
        values = np.concatenate([self.V[first : first + form.registers] for first in data])
        before = np.zeros((form.registers, self.W, 64), np.uint32)
        if self.order_checked:
            self.note_lds(i, where, form.size, active, 1, write=True, atomic=True)
            self.pass_on(places - (1 << 40) - self.gang.first, active, acquire=True, release=True)
        if form.operation != "swap" and self.launch.check != "off":
            self._look_for_unwritten(i, gather(self.gang.lds, places, form.size), where, active)
        apply_atomic(self, i, form, self.gang.lds, places, values, active, before)
        number = self.issued[1] + 1
        self.queue(1, Outstanding(i, number) if target is None else VectorData(i, number, target, before, lanes))

    def lds_read_transposed(self, i: Instruction, bits: int, address: Any, target: int, lanes: Array | None) -> None:
        """``ds_read_b64_tr``: each 16 lanes read a block of a matrix row by row, and get its columns."""
        size = 12 if bits == 6 else 8
        raw = self._read(i, self.spread(address), size, self.full(lanes))
        packed = np.ascontiguousarray(np.moveaxis(raw, 0, -1)).view(np.uint8)
        unpacked = np.unpackbits(packed, axis=-1, bitorder="little").reshape(self.W, 4, 16, -1, bits)
        count = unpacked.shape[3]
        if bits == 16:  # lanes 4r to 4r + 3 hold row r of 4: 16 columns
            block = unpacked.reshape(self.W, 4, 4, 16, bits)
        else:  # as many lanes for a row as its 16 columns need
            block = unpacked.reshape(self.W, 4, 16 * count // 16, 16, bits)
        columns = np.ascontiguousarray(block.transpose(0, 1, 3, 2, 4)).reshape(self.W, 64, -1)
        words = np.packbits(columns, axis=-1, bitorder="little").view(np.uint32)
        data = np.ascontiguousarray(np.moveaxis(words, -1, 0))
        self.queue(1, VectorData(i, self.issued[1] + 1, target, data, lanes))

    def global_to_lds(self, i: Instruction, size: int, address: Any, m0: Any, offset: int, lanes: Array | None) -> None:
        """``global_load_lds``."""
        data = self.fetch(i, self.spread(address) & ADDRESS, size, self.full(lanes))
        self.to_lds(i, size, data, m0, offset, lanes)

    def to_lds(self, i: Instruction, size: int, data: Array, m0: Any, offset: int, lanes: Array | None) -> None:
        """Queue a load whose data goes to LDS: at M0 plus the instruction's offset, lane after lane."""
        base = np.asarray(m0 & 0xFFFFFF)
        address = self.spread(base + offset + np.arange(64) * size)
        chosen = self.full(lanes)
        places = self.lds_places(i, address, size, chosen, "a load to LDS")
        if self.order_checked:
            self.note_lds(i, address, size, chosen, 0, write=True)
        packed = np.ascontiguousarray(np.moveaxis(data, 0, -1)).view(np.uint8)[..., : max(size, 4)][..., :size]
        self.queue(0, ToLds(i, self.issued[0] + 1, places, packed, chosen))

    # -- scratch -----------------------------------------------------------------------------------------------------

    def scratch_places(self, i: Instruction, address: Any, size: int, lanes: Array | None) -> Any:
        """The bytes of scratch that offsets are."""
        where = self.spread(np.asarray(address))
        active = where if lanes is None else where[lanes]
        limit = self.launch.scratch_bytes
        if active.size and (int(active.min()) < 0 or int(active.max()) + size > limit):
            raise MemoryFault(
                f"an access of {size} bytes at {int(active.max()):#x} of scratch: a lane has {limit} bytes",
                where=self.where(i, 0),
                hint="raise .amdhsa_private_segment_fixed_size",
            )
        own = np.arange(self.W * 64).reshape(self.W, 64) * self.scratch.shape[-1]
        return own + (where if lanes is None else np.where(lanes, where, 0))

    def scratch_load(self, i: Instruction, form: Form, address: Any, target: int, lanes: Array | None) -> None:
        """``scratch_load``."""
        places = self.scratch_places(i, address, form.size, self.full(lanes))
        self.loaded(i, form, gather(self.scratch.reshape(-1), places, form.size), target, lanes, 0)

    def scratch_store(self, i: Instruction, form: Form, address: Any, data: int, lanes: Array | None) -> None:
        """``scratch_store``."""
        active = self.full(lanes)
        places = self.scratch_places(i, address, form.size, active)
        values = self.V[data : data + form.registers]
        if form.part == 2:
            values = values >> np.uint32(16)
        if active is None:
            scatter(self.scratch.reshape(-1), places, values, form.size)
        else:
            scatter(self.scratch.reshape(-1), places[active], values[:, active], form.size)
        self.queue(0, Outstanding(i, self.issued[0] + 1))
