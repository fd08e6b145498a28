"""Buffers: descriptors in four scalar registers, and which lanes are inside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.gcn.execution.scalars import word
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.kinds import Atomic, Form
from tilekit.emulator.gcn.memory.local_access import LocalAccess

__all__ = ["BufferAccess", "Resource"]

Array = npt.NDArray[Any]


class Resource(NamedTuple):
    """A buffer descriptor: base, stride, number of records, word 3, and whether it is swizzled; one, or one a wave."""

    base: Any
    stride: Any
    records: Any
    flags: Any
    swizzled: Any


class BufferAccess(LocalAccess):
    """The part of a batch that accesses buffers."""

    __slots__ = ()

    def resource(self, first: int) -> Resource:
        """Read a descriptor."""
        low, high, records, flags = (word(self.S, first + place) for place in range(4))
        return Resource(low | (high & 0xFFFF) << 32, high >> 16 & 0x3FFF, records, flags, high >> 31 & 1)

    def _inside(
        self,
        i: Instruction,
        found: Resource,
        lanes: Any,
        index: Any,
        scalar: Any,
        size: int,
        active: Array | None,
    ) -> tuple[Array, Array]:
        """The address in each lane, and which lanes are inside the buffer."""
        if np.any(np.asarray(found.flags) >> 15 & 15 == 0):
            raise ProtocolError(
                "the buffer descriptor's word 3 has data format 0: the descriptor is invalid, and every load gives 0",
                where=self.where(i, 0), hint="set word 3, for example to 0x00020000",
            )  # fmt: skip
        if np.any(np.asarray(found.flags) >> 30 != 0):
            raise ProtocolError("the buffer descriptor's type (word 3, bits 31:30) is not 0", where=self.where(i, 0))
        offset = self.spread(np.asarray(lanes))
        records = np.asarray(found.records)
        scalar = np.asarray(scalar)
        if index is not None:
            if np.any(np.asarray(found.swizzled)):
                raise ProtocolError("buffers with swizzle are not modelled", where=self.where(i, 0))
            structured = self.spread(index.astype(np.int64))
            inside = structured < records
            offset = offset + structured * np.asarray(found.stride)
            if not np.any(np.asarray(found.stride)):
                inside = offset + size <= records - scalar
        else:
            inside = offset + min(size, 4) <= records - scalar
            if size > 4 and not (inside == (offset + size <= records - scalar)).all():
                raise ProtocolError(
                    "a buffer access that is partly inside the buffer's num_records: judged word by word on hardware, "
                    "not modelled", where=self.where(i, 0),
                )  # fmt: skip
        if active is not None:
            inside = inside & active
        return offset + np.asarray(found.base) + scalar, inside

    def buffer_load(
        self, i: Instruction, form: Form, found: Resource, offset: Any, index: Any, scalar: Any, target: int,
        lanes: Array | None,
    ) -> None:  # fmt: skip
        """``buffer_load``: 0 outside."""
        self.loaded(i, form, self._buffer_data(i, form.size, found, offset, index, scalar, lanes), target, lanes, 0)

    def _buffer_data(
        self,
        i: Instruction,
        size: int,
        found: Resource,
        offset: Any,
        index: Any,
        scalar: Any,
        lanes: Array | None,
    ) -> Array:
        address, inside = self._inside(i, found, offset, index, scalar, size, self.full(lanes))
        chosen = None if inside.all() else inside
        data = self.fetch(i, address, size, chosen)
        return data if chosen is None else np.where(chosen, data, np.uint32(0))

    def buffer_store(
        self, i: Instruction, form: Form, found: Resource, offset: Any, index: Any, scalar: Any, data: int,
        lanes: Array | None,
    ) -> None:  # fmt: skip
        """``buffer_store``: nothing outside."""
        address, inside = self._inside(i, found, offset, index, scalar, form.size, self.full(lanes))
        self.put(i, form, address, data, None if inside.all() else inside)

    def buffer_atomic(
        self, i: Instruction, form: Atomic, found: Resource, offset: Any, index: Any, scalar: Any, data: int,
        target: int | None, lanes: Array | None,
    ) -> None:  # fmt: skip
        """``buffer_atomic``: nothing outside."""
        address, inside = self._inside(i, found, offset, index, scalar, form.size, self.full(lanes))
        self.change(i, form, address, data, target, None if inside.all() else inside, lanes)

    def buffer_to_lds(
        self, i: Instruction, size: int, found: Resource, offset: Any, index: Any, scalar: Any, m0: Any,
        place: int, lanes: Array | None,
    ) -> None:  # fmt: skip
        """``buffer_load … lds``."""
        data = self._buffer_data(i, size, found, offset, index, scalar, lanes)
        self.to_lds(i, size, data, m0, place, lanes)

    def scalar_buffer_load(self, i: Instruction, found: Resource, offset: Any, target: int, count: int) -> None:
        """``s_buffer_load``, inside the buffer."""
        if np.any(np.asarray(offset) + 4 * count > np.asarray(found.records)):
            raise ProtocolError("a scalar load past the buffer's num_records is not modelled", where=self.where(i, 0))
        self.scalar_load(i, found.base, offset, target, count)
