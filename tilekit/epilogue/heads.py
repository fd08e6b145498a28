"""The way of attention's sums out: divided by the rows' sums, through shared memory, by TMA; and their logarithms."""

from __future__ import annotations

from math import inf, log

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.heads import HeadStorer, StoringGroup
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.attention_wgmma import WARPGROUP_ROWS
from tilekit.tile_op.online_softmax import ROWS, BoundSoftmax
from tilekit.tiles.heads import HeadTile
from tilekit.tiles.operand import OperandTile

_COLUMNS = 16
"""Columns of the sums that one ``stmatrix`` stores."""


@component
class LogSums:
    """Logarithms of the rows' sums of exponentials, an f32 a query: (batch, head, position).

    Parameters
    ----------
    w
        The writer; address and counts are kernel parameters.
    """

    def __init__(self, w: Writer) -> None:
        self.address = w.parameter("lse", GMEM, lambda call: call.address("lse"))

    def rows(self, tile: HeadTile, heads: Value, queries: Value) -> tuple[Value, Value]:
        """Where the rows of the tile's head begin among all, of so many heads and queries; and their number."""
        return (tile.batch * heads + tile.head) * queries, queries

    def store(self, w: Writer, place: Value, value: Value, valid: Value) -> None:
        """Store the value of row `place` of all."""
        address = (self.address + w.widen_multiply(place, 4)).retyped(GMEM)
        w.isa.memory.store_global_f32(address=address, value=value, valid=valid)


@component
class PackedLogSums(LogSums):
    """Those of packed sequences, whose rows follow each other in a head."""

    def rows(self, tile: HeadTile, heads: Value, queries: Value) -> tuple[Value, Value]:
        """Where the rows of the tile's sequence begin among those of all; and their number."""
        assert tile.sequence is not None
        first, _ = super().rows(tile, heads, queries)
        return first + tile.sequence.first_query, tile.sequence.queries


def logarithm(w: Writer, maximum: Value, factor: Value, total: Value, empty: Value) -> Value:
    """The logarithm of a row's sum of exponentials: ``log(total) + factor * maximum``, of powers of 2 before."""
    exponent = w.isa.elementwise.fma(a=maximum, b=factor, c=w.isa.elementwise.log2(x=total))
    return w.select(empty, -inf, exponent * log(2.0), F32)


@component
class HeadEpilogue:
    """Stores a warpgroup's 64 rows: O / sum, rounded, and log(sum) + factor max where they are asked for.

    A row without a key is 0, and its logarithm minus infinity.

    Parameters
    ----------
    tile
        The image of the output in shared memory, all warpgroups' rows.
    place
        Where it lies.
    storer
        What stores it.
    queries, heads, factor
        Queries and heads of the call, u32, and what takes a score to an exponent of 2.
    log_sums
        Where the logarithms go, if anywhere.
    first_barrier
        Named barrier of the first warpgroup.
    """

    def __init__(
        self,
        tile: OperandTile,
        place: SharedArray,
        storer: HeadStorer,
        *,
        queries: Value,
        heads: Value,
        factor: Value,
        log_sums: LogSums | None,
        first_barrier: Barrier,
    ) -> None:
        self.tile, self.place, self.storer = tile, place, storer
        self.queries, self.heads, self.factor = queries, heads, factor
        self.log_sums = log_sums
        self.first_barrier = first_barrier

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        self.storer.prefetch(w)

    def bind(self, w: Writer, group: Warpgroup) -> BoundHeadEpilogue:
        """Prepare a thread's addresses; once a role."""
        return BoundHeadEpilogue(w, self, group)


class BoundHeadEpilogue:
    """A `HeadEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: HeadEpilogue, group: Warpgroup) -> None:
        self._e = e = epilogue
        self._threads = w.target.matrix_threads
        self._barrier = group.index + e.first_barrier
        groups = e.tile.rows // WARPGROUP_ROWS
        w.barriers.claim(e.first_barrier, groups, meeting="attention's epilogue", threads=self._threads)
        lane = w.lane()
        self._first_row = group.part * WARPGROUP_ROWS
        self._image = w.shared_base + e.place.offset + group.part * e.tile.offset_of(WARPGROUP_ROWS)
        # Lane l gives stmatrix the address of row l % 16, columns from 8 * (l // 16) on.
        self._lane_row = group.warp * 16 + (lane & 15)
        self._lane_byte = (lane >> 4) * 16
        self._row = self._first_row + group.warp * 16 + (lane >> 2)
        self._writes_log = (lane & 3) == 0
        self._storing = StoringGroup(group.thread, self._threads, group.thread == 0)

    def store(self, w: Writer, sums: RegisterTile, softmax: BoundSoftmax, tile: HeadTile) -> None:
        """Finish the rows and store them."""
        e = self._e
        softmax.finish()
        inverse, empty = [], []
        for row in range(ROWS):
            total = softmax.sums[row]
            empty.append(total == 0.0)
            inverse.append(w.isa.elementwise.divide(a=w.constant(F32, 1.0), b=total))
        if e.log_sums is not None:
            self._store_logs(w, e.log_sums, softmax, empty, tile)
        with w.when(self._storing.leads):
            w.ptx.tma.wait_stores_read(pending=0)
        w.barrier(id=self._barrier, threads=self._threads)
        pack = getattr(w.ptx.convert, f"pack_{e.tile.dtype.name}")
        values = [
            w.select(empty[index // 2 % 2], 0.0, register * inverse[index // 2 % 2], F32)
            for index, register in enumerate(sums)
        ]
        row_address = self._image + self._lane_row * e.tile.row_bytes
        for piece in range(e.tile.k // _COLUMNS):
            part, within = divmod(piece * _COLUMNS, e.tile.slice_k)
            packed = w.tile(U32, 4, "packed")
            for index, register in enumerate(packed):
                low = 8 * piece + 2 * index
                register.assign(pack(low=values[low], high=values[low + 1]).retyped(U32))
            byte = e.tile.swizzled(self._lane_byte + within * 2, self._lane_row)
            w.ptx.stmatrix.store_x4(address=row_address + byte + part * e.tile.slice_bytes, values=packed)
        w.ptx.tma.fence_shared()
        w.barrier(id=self._barrier, threads=self._threads)
        e.storer.store(w, self._image, tile=tile, offset=self._first_row, by=self._storing)

    def drain(self, w: Writer) -> None:
        """Wait, all threads of the warpgroup, until the tile's store has read its image."""
        with w.when(self._storing.leads):
            w.ptx.tma.wait_stores_read(pending=0)
        w.barrier(id=self._barrier, threads=self._threads)

    def finish(self, w: Writer) -> None:
        """Wait until the stores have read the CTA's shared memory."""
        with w.when(self._storing.leads):
            w.ptx.tma.wait_stores_read(pending=0)
        w.warp_sync()

    def _store_logs(
        self, w: Writer, log_sums: LogSums, softmax: BoundSoftmax, empty: list[Value], tile: HeadTile
    ) -> None:
        e = self._e
        first, queries = log_sums.rows(tile, e.heads, e.queries)
        for half in range(ROWS):
            row = tile.row + self._row + 8 * half
            value = logarithm(w, softmax.maxima[half], e.factor, softmax.sums[half], empty[half])
            log_sums.store(w, first + row, value, self._writes_log & (row < queries))
