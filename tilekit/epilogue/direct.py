"""Epilogue straight from registers: for outputs the copy engine cannot write (not in multiples of 16 bytes)."""

from __future__ import annotations

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F32, DType
from tilekit.epilogue.functions import Elementwise
from tilekit.tile_op.wgmma import ATOM_ROWS, Wgmma
from tilekit.tile_schedule.static import Tile


class DirectEpilogue:
    """Every thread stores its own elements, predicated by the output's bounds.

    Parameters
    ----------
    w
        The writer; address, row pitch and batch pitch (elements) and the row count become kernel parameters.
    op
        The matrix op whose accumulators are stored.
    functions
        Elementwise functions to apply.
    out
        Output type.
    columns
        N.
    batched
        Whether tiles have a batch index.
    """

    def __init__(
        self, w: Writer, op: Wgmma, functions: Elementwise, *, out: DType, columns: Value, batched: bool
    ) -> None:
        self._op = op
        self._functions = functions
        self._out = out
        self._columns = columns
        self._batched = batched
        self._address = w.parameter("d", GMEM)
        self._rows = w.parameter("rows", U32)
        self._row_pitch = w.parameter("row_pitch", U32)
        self._batch_pitch = w.parameter("batch_pitch", U32) if batched else None

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, thread: Value, warpgroup: Value) -> BoundDirectEpilogue:
        """Prepare a thread's coordinates; once a role. `thread` is its index in the warpgroup."""
        return BoundDirectEpilogue(w, self, thread, warpgroup)


class BoundDirectEpilogue:
    """A `DirectEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: DirectEpilogue, thread: Value, warpgroup: Value) -> None:
        self._e = epilogue
        epilogue._functions.bind(w)
        self._row = warpgroup * epilogue._op.rows + (thread >> 5) * 16 + ((thread >> 2) & 7)
        self._column = (thread & 3) * 2

    def store(self, w: Writer, accumulators: list[RegisterTile], tile: Tile) -> None:
        """Convert and store this thread's elements of `tile`."""
        e = self._e
        origin = e._address
        if e._batch_pitch is not None and isinstance(tile.batch, Value):
            origin = origin + w.widen_multiply(tile.batch, e._batch_pitch) * e._out.bytes
        for atom, registers in enumerate(accumulators):
            rows = [tile.row + self._row + (atom * ATOM_ROWS + 8 * half) for half in range(2)]
            starts = [origin + w.widen_multiply(row, e._row_pitch) * e._out.bytes for row in rows]
            inside = [row < e._rows for row in rows]
            for eighth in range(len(registers) // 4):
                column = tile.column + 8 * eighth + self._column
                columns = e._functions.columns(w, column)
                for index, value in enumerate(registers[4 * eighth : 4 * eighth + 4]):
                    here = column + index % 2
                    address = starts[index // 2] + w.widen_multiply(here, e._out.bytes)
                    valid = inside[index // 2] & (here < e._columns)
                    self._store(w, address.retyped(GMEM), e._functions.apply(w, value, columns, index % 2), valid)

    def finish(self, w: Writer) -> None:
        """Nothing in flight: the stores are the threads' own."""

    def _store(self, w: Writer, address: Value, value: Value, valid: Value) -> None:
        if self._e._out == F32:
            w.ptx.memory.store_global_f32(address=address, value=value, valid=valid)
            return
        pack = w.ptx.convert.pack_bf16 if self._e._out == BF16 else w.ptx.convert.pack_f16
        narrow, _ = w.ptx.convert.unpack(packed=pack(low=value, high=0.0))
        w.ptx.memory.store_global_b16(address=address, value=narrow, valid=valid)
