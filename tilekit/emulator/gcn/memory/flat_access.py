"""Accesses by flat addresses, whose upper bits say whether they are of global memory, LDS or scratch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.buffer_access import BufferAccess
from tilekit.emulator.gcn.memory.kinds import Atomic, Form

__all__ = ["APERTURES", "FlatAccess"]

Array = npt.NDArray[Any]
_SPACE = 48
_GLOBAL, _LDS, _SCRATCH = range(3)
_WITHIN = (1 << 32) - 1
APERTURES = {
    235: _LDS << _SPACE, 236: _LDS << _SPACE | _WITHIN, 237: _SCRATCH << _SPACE, 238: _SCRATCH << _SPACE | _WITHIN,
}  # fmt: skip
"""What ``src_shared_base``, ``src_shared_limit``, ``src_private_base`` and ``src_private_limit`` read."""


class FlatAccess(BufferAccess):
    """The part of a batch that accesses memory by flat addresses."""

    __slots__ = ()

    def _by_space(self, address: Any, lanes: Array | None) -> Iterator[tuple[int, Array, Array | None]]:
        """Each space that lanes are in: addresses within it, and those lanes."""
        where = self.spread(address)
        spaces = where >> _SPACE
        if not spaces.any():
            yield _GLOBAL, where, lanes
            return
        active = self.full(lanes)
        for space in (_GLOBAL, _LDS, _SCRATCH):
            chosen = spaces == space if space != _GLOBAL else (spaces != _LDS) & (spaces != _SCRATCH)
            mask = chosen if active is None else chosen & active
            if mask.any():
                yield space, np.where(mask, where & _WITHIN, 0) if space != _GLOBAL else where, mask

    def flat_load(self, i: Instruction, form: Form, address: Any, target: int, lanes: Array | None) -> None:
        """``flat_load``."""
        loads = (self.global_load, self.lds_read, self.scratch_load)
        for space, where, chosen in self._by_space(address, lanes):
            loads[space](i, form, where, target, chosen)

    def flat_store(self, i: Instruction, form: Form, address: Any, data: int, lanes: Array | None) -> None:
        """``flat_store``."""
        for space, where, chosen in self._by_space(address, lanes):
            if space == _LDS:
                self.lds_write(i, form, (where,), (data,), chosen)
            elif space == _SCRATCH:
                self.scratch_store(i, form, where, data, chosen)
            else:
                self.global_store(i, form, where, data, chosen)

    def flat_atomic(
        self, i: Instruction, form: Atomic, address: Any, data: int, target: int | None, lanes: Array | None
    ) -> None:
        """``flat_atomic``; the chips have none on scratch."""
        parts = (data, data + form.registers) if form.compares else (data,)
        for space, where, chosen in self._by_space(address, lanes):
            if space == _LDS:
                self.lds_atomic(i, form, where, parts, target, chosen)
            else:
                self.global_atomic(i, form, where, data, target, chosen)
