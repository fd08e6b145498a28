"""Memory operations that have been issued and not waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.gcn.execution.scalars import put32
from tilekit.emulator.gcn.language.syntax import Instruction

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.state import BatchState

__all__ = ["SCALARS", "Outstanding", "ScalarData", "ScalarStore", "ToLds", "VectorData", "of_waves"]

SCALARS = 1024
"""Bit of scalar register 0 among the bits of registers; vector registers have those below."""


def of_waves(values: Any, chosen: Any) -> Any:
    """The part of an array [waves, …] that the waves of a mask have; what is the same for all stays."""
    if isinstance(values, np.ndarray) and values.ndim >= 2 and values.shape[-2] == len(chosen):
        return values[..., chosen, :]
    return values


class Outstanding:
    """One operation in a wait counter's queue: here one that writes no register, such as a store.

    Attributes
    ----------
    instruction
        Which issued it.
    number
        Its place in the queue since the start.
    registers
        Bits of the registers that it writes when it lands.
    landed
        Whether its data has been written.
    """

    __slots__ = ("instruction", "landed", "number", "registers")
    scalar = False

    def __init__(self, instruction: Instruction, number: int, registers: int = 0) -> None:
        self.instruction = instruction
        self.number = number
        self.registers = registers
        self.landed = False

    def land(self, batch: BatchState) -> None:
        """Write what it brings, once."""
        self.landed = True

    def part(self, chosen: Any) -> Outstanding:
        """Return the same operation of some of the waves."""
        return type(self)(self.instruction, self.number, self.registers)


class ScalarStore(Outstanding):
    """A scalar store, or an atomic without a result: like scalar loads they complete in any order."""

    __slots__ = ()
    scalar = True


class VectorData(Outstanding):
    """A load of vector registers.

    Attributes
    ----------
    target, data, lanes
        First row, uint32[registers, waves, 64], and the lanes that are written.
    keep
        Bits of the old value that stay.
    """

    __slots__ = ("data", "keep", "lanes", "target")

    def __init__(
        self, instruction: Instruction, number: int, target: int, data: Any, lanes: Any, keep: int = 0
    ) -> None:
        super().__init__(instruction, number, ((1 << len(data)) - 1) << target)
        self.target = target
        self.data = data
        self.lanes = lanes
        self.keep = keep

    def land(self, batch: BatchState) -> None:
        """Write the registers."""
        if self.landed:
            return
        self.landed = True
        rows = batch.V[self.target : self.target + len(self.data)]
        data = self.data | (rows & np.uint32(self.keep)) if self.keep else self.data
        if self.lanes is None:
            rows[...] = data
        else:
            np.copyto(rows, data, where=self.lanes)

    def part(self, chosen: Any) -> Outstanding:
        """Return the same operation of some of the waves."""
        lanes = None if self.lanes is None else of_waves(self.lanes, chosen)
        found = VectorData(self.instruction, self.number, self.target, self.data[:, chosen], lanes, self.keep)
        found.landed = self.landed
        return found


class ScalarData(Outstanding):
    """A load of scalar registers: they complete in any order."""

    __slots__ = ("target", "values")
    scalar = True

    def __init__(self, instruction: Instruction, number: int, target: int, values: list[Any]) -> None:
        super().__init__(instruction, number, ((1 << len(values)) - 1) << (SCALARS + target))
        self.target = target
        self.values = values

    def land(self, batch: BatchState) -> None:
        """Write the registers."""
        if self.landed:
            return
        self.landed = True
        for place, value in enumerate(self.values):
            put32(batch.S, self.target + place, value)

    def part(self, chosen: Any) -> Outstanding:
        """Return the same operation of some of the waves."""
        values = [of_waves(value, chosen) for value in self.values]
        found = ScalarData(self.instruction, self.number, self.target, values)
        found.landed = self.landed
        return found


class ToLds(Outstanding):
    """A load that writes LDS when it lands.

    Attributes
    ----------
    places
        Bytes of the gang's LDS, int64[waves, 64], of the lanes' first bytes.
    data, lanes
        uint8[waves, 64, bytes], and the lanes that are written.
    """

    __slots__ = ("data", "lanes", "places")

    def __init__(self, instruction: Instruction, number: int, places: Any, data: Any, lanes: Any) -> None:
        super().__init__(instruction, number)
        self.places = places
        self.data = data
        self.lanes = lanes

    def land(self, batch: BatchState) -> None:
        """Write LDS."""
        if self.landed:
            return
        self.landed = True
        where = self.places[..., None] + np.arange(self.data.shape[-1])
        if self.lanes is None:
            batch.gang.lds[where] = self.data
        else:
            batch.gang.lds[where[self.lanes]] = self.data[self.lanes]
        batch.machine.events += 1

    def part(self, chosen: Any) -> Outstanding:
        """Return the same operation of some of the waves."""
        lanes = None if self.lanes is None else self.lanes[chosen]
        found = ToLds(self.instruction, self.number, self.places[chosen], self.data[chosen], lanes)
        found.landed = self.landed
        return found
