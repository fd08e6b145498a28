"""Subtiles stored row by row: where a tile ends inside the output, and what lies below belongs to another tile."""

from __future__ import annotations

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.subtiles import SUBTILE_ROW_BYTES

CHUNK = 16
"""Bytes that a thread copies at once, and the unit of the swizzle."""


class RowStores:
    """Copies the rows of a subtile, up to the tile's last, from shared to global memory.

    Parameters
    ----------
    w
        The writer; the output's address ``d`` and ``row_pitch`` (elements) become kernel parameters.
    out
        Its type.
    columns
        N.
    """

    def __init__(self, w: Writer, *, out: DType, columns: Value) -> None:
        self._out = out
        self._columns = columns
        self._address = w.parameter("d", GMEM, lambda call: call.address("d"))
        self._row_pitch = w.parameter("row_pitch", U32, lambda call: call.matrix("d").row_pitch)

    def store(
        self,
        w: Writer,
        subtile: Value,
        *,
        thread: Value,
        threads: int,
        rows: int,
        row: Value,
        end: Value,
        column: Value,
        columns: int,
    ) -> None:
        """Copy rows `row` to `end` (at most `rows`) of the subtile; by the whole warpgroup of so many `threads`.

        16-bit and wider outputs whose rows are whole chunks: what the copy engine stores, too.
        """
        chunks = columns * self._out.bytes // CHUNK
        for step in range(-(-rows * chunks // threads)):
            place = thread + step * threads
            below = place // chunks
            chunk = place - below * chunks
            here = column + chunk * (CHUNK // self._out.bytes)
            valid = (below < rows) & (row + below < end) & (here < self._columns)
            source = subtile + below * SUBTILE_ROW_BYTES + (chunk ^ (below & 7)) * CHUNK
            target = (
                self._address
                + w.widen_multiply(row + below, self._row_pitch) * self._out.bytes
                + w.widen_multiply(here, self._out.bytes)
            )
            w.isa.memory.copy_16(source=source, target=target.retyped(GMEM), valid=valid)
