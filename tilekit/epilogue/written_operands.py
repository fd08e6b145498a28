"""What a Python epilogue reaches in memory by the coordinates of elements: matrices like the output."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType


@dataclass(frozen=True)
class ReachedMatrix:
    """A matrix like the output that threads reach by their elements' coordinates."""

    name: str
    dtype: DType
    address: Value
    pitch: Value
    batch_pitch: Value | None

    @classmethod
    def declare(cls, w: Writer, name: str, dtype: DType, *, batched: bool) -> ReachedMatrix:
        """Declare its kernel parameters."""
        address = w.parameter(name, GMEM, lambda call: call.address(name))
        pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)
        step = None
        if batched:
            step = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)
        return cls(name, dtype, address, pitch, step)

    def start(self, w: Writer, row: Value, batch: Operand) -> Value:
        """Where a row begins."""
        start = self.address
        if self.batch_pitch is not None and isinstance(batch, Value):
            start = start + w.widen_multiply(batch, self.batch_pitch) * self.dtype.bytes
        return start + w.widen_multiply(row, self.pitch) * self.dtype.bytes

    def at(self, w: Writer, start: Value, column: Value) -> Value:
        """Where an element of the row that begins at `start` lies."""
        return (start + w.widen_multiply(column, self.dtype.bytes)).retyped(GMEM)
