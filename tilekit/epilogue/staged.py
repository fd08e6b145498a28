"""Epilogue through shared memory: swizzled slabs, and TMA stores that run under the next tile's main loop."""

from __future__ import annotations

from contextlib import nullcontext

from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Elementwise
from tilekit.epilogue.residual import ResidualRing
from tilekit.epilogue.rows import RowStores
from tilekit.epilogue.slabs import SLAB_BYTES, slab_access, slab_columns
from tilekit.tile_io.tma import TmaStorer
from tilekit.tile_op.accumulators import FRAGMENT_ROWS, AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tile_schedule.raster import Tile

STMATRIX_COLUMNS = 16
"""Columns that one stmatrix.x4 of a warp stores."""


class StagedEpilogue:
    """Each warpgroup stores its own rows, a block's rows by 128 bytes (a slab) at a time, through `buffers` buffers.

    A slab's buffer is written again once the store that used it has *read* it (``wait_group.read``), so stores of one
    tile overlap the main loop of the next; only the drain at the end waits for completion.

    Parameters
    ----------
    w
        The writer; the output's tensor map becomes a kernel parameter and the slabs shared memory.
    layout
        How a warpgroup holds the accumulators.
    functions
        Elementwise functions to apply.
    out
        Output type.
    role
        The role that runs the epilogue (its warpgroups).
    buffers
        Slabs in flight per warpgroup.
    residual
        Where the functions add a residual: the ring that brings it.
    rows
        Where tiles may end above somebody else's rows: stores the slabs that do.
    """

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Elementwise,
        *,
        out: DType,
        role: Role,
        batched: bool = False,
        buffers: int,
        first_barrier: int,
        residual: ResidualRing | None = None,
        rows: RowStores | None = None,
    ) -> None:
        self._layout = layout
        self.residual = residual
        self._rows = rows
        self._slab_bytes = layout.rows * SLAB_BYTES
        self._functions = functions
        self._out = out
        self._buffers = buffers
        self._first_barrier = first_barrier
        self._slab_columns = slab_columns(out)
        self._slabs = w.shared.allocate(
            "output.slab",
            size=buffers * self._slab_bytes,
            count=len(role.warps) // 4,
            alignment=1024,
            kind="tile",
        )
        widths = {
            min(self._slab_columns, layout.columns - left) for left in range(0, layout.columns, self._slab_columns)
        }
        # A last slab that is narrower has a map of its own; in shared memory its rows stand a whole swizzle span apart
        # all the same.
        self.storers = {
            columns: TmaStorer(
                w,
                name="d" if columns == self._slab_columns else "d_tail",
                columns=columns,
                rows=layout.parts[0].rows,
                batched=batched,
            )
            for columns in sorted(widths, reverse=True)
        }

    @staticmethod
    def shared_bytes(*, warpgroups: int, buffers: int, rows: int) -> int:
        """Shared memory the epilogue takes with slabs of so many rows."""
        return warpgroups * buffers * rows * SLAB_BYTES

    def prefetch(self, w: Writer) -> None:
        """Bring the output's tensor maps close."""
        for storer in self.storers.values():
            storer.prefetch(w)
        if self.residual is not None:
            self.residual.prefetch(w)

    def initialise(self, w: Writer) -> None:
        """Prepare barriers; one thread."""
        if self.residual is not None:
            self.residual.initialise(w)

    def bind(self, w: Writer, group: Warpgroup) -> BoundStagedEpilogue:
        """Prepare a thread's addresses; once a role."""
        return BoundStagedEpilogue(w, self, group)


class BoundStagedEpilogue:
    """A `StagedEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: StagedEpilogue, group: Warpgroup) -> None:
        self._e = epilogue
        epilogue._functions.bind(w)
        thread, layout = group.thread, epilogue._layout
        self._warpgroup = group.index
        self._barrier = group.index + epilogue._first_barrier
        self._thread = thread
        self._stores = thread == 0
        slabs = w.shared_base + group.index * epilogue._slabs.stride + epilogue._slabs.offset
        self._slab = slabs
        self._slabs_per_tile = layout.blocks * -(-layout.columns // epilogue._slab_columns)
        self._lane_column = (thread & 3) * 2
        if len(layout.parts) > 1:
            self._lane_column = self._lane_column + layout.place(w, thread)[1]
        self._storers = {columns: storer.bind(w) for columns, storer in epilogue.storers.items()}
        self._access = slab_access(w, layout, epilogue._out, thread=thread, slabs=slabs)
        self._residual = epilogue.residual.consumer(w, group) if epilogue.residual is not None else None

    def store(self, w: Writer, accumulators: AccumulatorTile, tile: Tile) -> None:
        """Convert and store this warpgroup's part of `tile`."""
        e, layout = self._e, self._e._layout
        first_row = tile.row + self._warpgroup * layout.tile_rows
        index = 0
        for block in range(layout.blocks):
            row = first_row + block * layout.rows
            for left in range(0, layout.columns, e._slab_columns):
                buffer = index % e._buffers
                columns = min(e._slab_columns, layout.columns - left)
                fragments = accumulators.read(w, block, left, columns)
                if index == 0:
                    with w.when(self._stores):
                        self._claim(w, 0)
                index += 1
                if index == self._slabs_per_tile:
                    accumulators.done(w)
                w.ptx.barrier.sync(id=self._barrier, threads=128)
                column = tile.column + left
                old = self._residual.acquire(w) if self._residual is not None else None
                for part, registers in enumerate(fragments):
                    within = part * FRAGMENT_ROWS * SLAB_BYTES
                    source = old + within if old is not None else None
                    self._write(w, registers, column, buffer * e._slab_bytes + within, source)
                if self._residual is not None:
                    self._residual.release(w)
                w.ptx.tma.fence_shared()
                w.ptx.barrier.sync(id=self._barrier, threads=128)
                whole = self._store_rows(w, tile, row, column, buffer, columns)
                with w.when(self._stores):
                    for run in layout.parts:
                        source = self._slab + (buffer * e._slab_bytes + run.first * SLAB_BYTES)
                        here, below = column + run.column, row + run.row
                        with w.when(whole[run.first]) if whole is not None else nullcontext():
                            self._storers[columns].store(w, source, column=here, row=below, batch=tile.batch)
                    w.ptx.tma.commit_stores()
                    if index < self._slabs_per_tile:
                        self._claim(w, index)

    def _store_rows(
        self, w: Writer, tile: Tile, row: Value, column: Value, buffer: int, columns: int
    ) -> dict[int, Value] | None:
        """Store the parts of a slab below which rows are not the tile's; say of each part whether all rows are."""
        e = self._e
        if e._rows is None or tile.row_end is None:
            return None
        whole = {}
        for run in e._layout.parts:
            first = row + run.row
            whole[run.first] = first + run.rows <= tile.row_end
            with w.when(~whole[run.first]):
                slab = self._slab + (buffer * e._slab_bytes + run.first * SLAB_BYTES)
                e._rows.store(
                    w,
                    slab,
                    thread=self._thread,
                    rows=run.rows,
                    row=first,
                    end=tile.row_end,
                    column=column + run.column,
                    columns=columns,
                )
        return whole

    def finish(self, w: Writer) -> None:
        """Wait until every store is complete; before the CTA's shared memory goes away."""
        with w.when(self._stores):
            w.ptx.tma.wait_stores(pending=0)
        w.ptx.barrier.warp_sync()

    def _claim(self, w: Writer, index: int) -> None:
        """Wait in the storing thread until the store that last used the buffer of slab `index` has read it.

        Every tile starts with buffer 0 again, so where the slabs of a tile are no multiple of the buffers, the last
        use of a tile's first buffers is not `buffers` stores ago. (With a constant wait a tile of one slab raced; the
        emulator found it.)
        """
        e = self._e
        slabs = self._slabs_per_tile
        last_use = (
            index - e._buffers
            if index >= e._buffers
            else (slabs - 1 - index) // e._buffers * e._buffers + index - slabs
        )
        w.ptx.tma.wait_stores_read(pending=index - last_use - 1)

    def _write(self, w: Writer, registers: RegisterTile, column: Value, offset: int, residual: Value | None) -> None:
        """Apply the functions to a fragment and store it to the slab at `offset`; its residual lies at `residual`."""
        access = self._access
        count = access.columns // 2
        for unit in range(len(registers) // count):
            values = []
            old = None
            if self._residual is not None and residual is not None:
                old = self._residual.access.read(w, unit, residual)
            for eighth in range(access.columns // 8):
                first = unit * count + 4 * eighth
                more = old[4 * eighth : 4 * eighth + 4] if old is not None else None
                values += self._apply(w, registers[first : first + 4], column + 2 * first, more)
            access.write(w, unit, offset, values)

    def _apply(self, w: Writer, four: RegisterTile, column: Value, residual: list[Value] | None) -> list[Value]:
        """Apply the functions to a thread's 2 x 2 block: two columns, rows r and r + 8."""
        columns = self._e._functions.columns(w, column + self._lane_column)
        return [
            self._e._functions.apply(w, value, columns, index % 2, residual[index] if residual else None)
            for index, value in enumerate(four)
        ]
