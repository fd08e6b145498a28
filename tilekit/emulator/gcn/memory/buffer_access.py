"""Buffers: descriptors in four scalar registers, and which lanes are inside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.gcn.execution.scalars import word
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.kinds import FORMS, Atomic, Form
from tilekit.emulator.gcn.memory.local_access import LocalAccess

__all__ = ["BufferAccess", "Resource"]

Array = npt.NDArray[Any]


_ELEMENT = 4
"""Bytes that a swizzled buffer keeps together."""


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

    def _check(self, i: Instruction, found: Resource) -> None:
        """Refuse descriptors that are invalid, and what is not modelled of valid ones."""
        flags = np.asarray(found.flags)
        if np.any(flags >> 15 & 15 == 0):
            raise ProtocolError(
                "the buffer descriptor's word 3 has data format 0: the descriptor is invalid, and every load gives 0",
                where=self.where(i, 0), hint="set word 3, for example to 0x00020000",
            )  # fmt: skip
        if np.any(flags >> 30 != 0):
            raise ProtocolError("the buffer descriptor's type (word 3, bits 31:30) is not 0", where=self.where(i, 0))
        if np.any(flags >> 23 & 1):
            raise ProtocolError(
                "the buffer descriptor adds the lane's number (word 3, bit 23), which is not modelled",
                where=self.where(i, 0),
            )

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
        """The address in each lane, and which lanes are inside the buffer.

        Without an index, or with a stride of 0, num_records counts bytes from the scalar offset on; else records, and
        only the index is looked at. Nothing is cut to 32 bits: an offset past them is outside.
        """
        self._check(i, found)
        offset = self.spread(np.asarray(lanes))
        records, stride, scalar = np.asarray(found.records), np.asarray(found.stride), np.asarray(scalar)
        structured = np.asarray(0) if index is None else self.spread(index.astype(np.int64))
        linear = offset + structured * stride
        inside = linear + size <= records - scalar
        if index is not None and np.any(stride):
            inside = np.where(stride != 0, structured < records, inside)
        if np.any(np.asarray(found.swizzled)):
            together = 8 << (np.asarray(found.flags) >> 21 & 3)
            far = structured // together * stride + offset // _ELEMENT * _ELEMENT
            swizzled = far * together + structured % together * _ELEMENT + offset % _ELEMENT
            linear = np.where(np.asarray(found.swizzled) != 0, swizzled, linear)
        inside = np.broadcast_to(inside, linear.shape)
        if active is not None:
            inside = inside & active
        return linear + np.asarray(found.base) + scalar, inside

    def _words(
        self, i: Instruction, found: Resource, lanes: Any, index: Any, scalar: Any, size: int, active: Array | None
    ) -> list[tuple[Array, Array]] | None:  # fmt: skip
        """Address and lanes of each word of a wide access, where words go apart; None where they stay together."""
        if size <= 4:
            return None
        if not np.any(np.asarray(found.swizzled)):
            if index is not None and np.all(np.asarray(found.stride)):
                return None
            first = self._inside(i, found, lanes, index, scalar, 4, active)[1]
            if (first == self._inside(i, found, lanes, index, scalar, size, active)[1]).all():
                return None
        offsets = (np.asarray(lanes) + 4 * place for place in range(size // 4))
        return [self._inside(i, found, offset, index, scalar, 4, active) for offset in offsets]

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
        words = self._words(i, found, offset, index, scalar, size, self.full(lanes))
        if words is not None:
            parts = [np.where(inside, self.fetch(i, address, 4, inside), np.uint32(0)) for address, inside in words]
            return np.concatenate(parts)
        address, inside = self._inside(i, found, offset, index, scalar, size, self.full(lanes))
        chosen = None if inside.all() else inside
        data = self.fetch(i, address, size, chosen)
        return data if chosen is None else np.where(chosen, data, np.uint32(0))

    def buffer_store(
        self, i: Instruction, form: Form, found: Resource, offset: Any, index: Any, scalar: Any, data: int,
        lanes: Array | None,
    ) -> None:  # fmt: skip
        """``buffer_store``: nothing outside."""
        words = self._words(i, found, offset, index, scalar, form.size, self.full(lanes))
        if words is not None:
            for place, (where, inside) in enumerate(words):
                self.put(i, FORMS["dword"], where, data + place, inside, last=place == len(words) - 1)
            return
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
