"""Epilogue straight from registers: for outputs the copy engine cannot write (not in multiples of 16 bytes)."""

from __future__ import annotations

from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, F32, DType
from tilekit.epilogue.functions import Elementwise
from tilekit.tile_op.accumulators import FRAGMENT_ROWS, AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tile_schedule.raster import Tile

COLUMNS_AT_ONCE = 64
"""Columns read from the accumulators together, where they are not in registers already."""


class DirectEpilogue:
    """Every thread stores its own elements, predicated by the output's bounds.

    Parameters
    ----------
    w
        The writer; address, row pitch and batch pitch (elements) and the row count become kernel parameters.
    layout
        How a warpgroup holds the accumulators.
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
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Elementwise,
        *,
        out: DType,
        columns: Value,
        batched: bool,
    ) -> None:
        self._layout = layout
        self._functions = functions
        self._out = out
        self._columns = columns
        self._batched = batched
        self._address = w.parameter("d", GMEM)
        self._rows = w.parameter("rows", U32)
        self._row_pitch = w.parameter("row_pitch", U32)
        self._batch_pitch = w.parameter("batch_pitch", U32) if batched else None
        self._residual = functions.residual
        if self._residual is not None:
            self._residual_address = w.parameter("residual", GMEM)
            self._residual_pitch = w.parameter("residual_pitch", U32)
            self._residual_batch_pitch = w.parameter("residual_batch_pitch", U32) if batched else None

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: the threads load and store for themselves."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundDirectEpilogue:
        """Prepare a thread's coordinates; once a role."""
        return BoundDirectEpilogue(w, self, group)


class BoundDirectEpilogue:
    """A `DirectEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: DirectEpilogue, group: Warpgroup) -> None:
        self._e = epilogue
        epilogue._functions.bind(w)
        layout, thread = epilogue._layout, group.thread
        first = group.index * layout.tile_rows
        row, column = layout.place(w, thread)
        self._row = first + row + ((thread >> 2) & 7)
        self._column = (thread & 3) * 2 + column

    def store(self, w: Writer, accumulators: AccumulatorTile, tile: Tile) -> None:
        """Convert and store this thread's elements of `tile`."""
        e, layout = self._e, self._e._layout
        origin = _matrix(w, e._address, tile, e._batch_pitch, e._out)
        source = None
        if e._residual is not None:
            source = _matrix(w, e._residual_address, tile, e._residual_batch_pitch, e._residual)
        lefts = range(0, layout.columns, COLUMNS_AT_ONCE)
        for block in range(layout.blocks):
            places = [self._rows_of(w, tile, origin, source, block, part) for part in range(layout.fragments)]
            for left in lefts:
                columns = min(COLUMNS_AT_ONCE, layout.columns - left)
                fragments = accumulators.read(w, block, left, columns)
                if block == layout.blocks - 1 and left == lefts[-1]:
                    accumulators.done(w)
                for (starts, sources, inside), registers in zip(places, fragments, strict=True):
                    for eighth in range(columns // 8):
                        column = tile.column + (left + 8 * eighth) + self._column
                        pair = e._functions.columns(w, column)
                        for index, value in enumerate(registers[4 * eighth : 4 * eighth + 4]):
                            here = column + index % 2
                            address = starts[index // 2] + w.widen_multiply(here, e._out.bytes)
                            valid = inside[index // 2] & (here < e._columns)
                            old = self._load(w, sources[index // 2], here, valid) if sources else None
                            value = e._functions.apply(w, value, pair, index % 2, old)
                            self._store(w, address.retyped(GMEM), value, valid)

    def _rows_of(
        self, w: Writer, tile: Tile, origin: Value, source: Value | None, block: int, part: int
    ) -> tuple[list[Value], list[Value], list[Value]]:
        """Where this thread's two rows of a fragment begin, those of the residual, and whether they are inside."""
        e = self._e
        first = block * e._layout.rows + part * FRAGMENT_ROWS
        rows = [tile.row + self._row + (first + 8 * half) for half in range(2)]
        starts = [origin + w.widen_multiply(row, e._row_pitch) * e._out.bytes for row in rows]
        sources = []
        if source is not None and e._residual is not None:
            sources = [source + w.widen_multiply(row, e._residual_pitch) * e._residual.bytes for row in rows]
        return starts, sources, [row < e._rows for row in rows]

    def _load(self, w: Writer, row: Value, column: Value, valid: Value) -> Value:
        """Load an element of the residual, 0 where `valid` does not hold."""
        residual = self._e._residual
        assert residual is not None
        address = (row + w.widen_multiply(column, residual.bytes)).retyped(GMEM)
        if residual == F32:
            return w.ptx.memory.load_global_f32(address=address, valid=valid)  # type: ignore[no-any-return]
        narrow = w.ptx.memory.load_global_b16(address=address, valid=valid)
        widen = w.ptx.convert.widen_bf16 if residual == BF16 else w.ptx.convert.widen_f16
        return widen(narrow=narrow)  # type: ignore[no-any-return]

    def finish(self, w: Writer) -> None:
        """Nothing in flight: the stores are the threads' own."""

    def _store(self, w: Writer, address: Value, value: Value, valid: Value) -> None:
        if self._e._out == F32:
            w.ptx.memory.store_global_f32(address=address, value=value, valid=valid)
            return
        pack = w.ptx.convert.pack_bf16 if self._e._out == BF16 else w.ptx.convert.pack_f16
        narrow, _ = w.ptx.convert.unpack(packed=pack(low=value, high=0.0))
        w.ptx.memory.store_global_b16(address=address, value=narrow, valid=valid)


def _matrix(w: Writer, address: Value, tile: Tile, batch_pitch: Value | None, dtype: DType) -> Value:
    """Address of the tile's matrix in a batch of them."""
    if batch_pitch is None or not isinstance(tile.batch, Value):
        return address
    return address + w.widen_multiply(tile.batch, batch_pitch) * dtype.bytes
