"""Vectors with a value for each row or column, as an epilogue's threads load them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.elements import load_element

Pair: TypeAlias = tuple[Value, Value]
"""Of two rows, or of two columns."""


@dataclass(frozen=True)
class Vector:
    """A value for each row or column, in global memory.

    Attributes
    ----------
    address, dtype, extent
        Where it begins, of what it is made, and how long it is.
    batch_pitch
        Elements from one matrix of a batch to the next, where each has its own.
    """

    address: Value
    dtype: DType
    extent: Value
    batch_pitch: Value | None

    @classmethod
    def declare(cls, w: Writer, name: str, dtype: DType, extent: Value, *, batched: bool = False) -> Vector:
        """Declare its kernel parameters."""
        address, pitch = w.parameter(name, GMEM, lambda call: call.address(name)), f"{name}_batch_pitch"
        return cls(
            address, dtype, extent, w.parameter(pitch, U32, lambda call: call.number(pitch)) if batched else None
        )

    def load(self, w: Writer, index: Value, batch: Operand) -> Value:
        """The element at `index`, 0 beyond the last."""
        valid = index < self.extent
        start = self.address
        if self.batch_pitch is not None and isinstance(batch, Value):
            start = start + w.widen_multiply(batch, self.batch_pitch) * self.dtype.bytes
        address = (start + w.widen_multiply(index, self.dtype.bytes)).retyped(GMEM)
        return load_element(w, self.dtype, address=address, valid=valid)

    def pair(self, w: Writer, first: Value, apart: int, batch: Operand) -> Pair:
        """The elements at `first` and ``first + apart`` (0: one element)."""
        value = self.load(w, first, batch)
        return value, self.load(w, first + apart, batch) if apart else value
