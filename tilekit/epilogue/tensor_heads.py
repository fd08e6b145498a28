"""The way of attention's sums out of tensor memory: a thread has a row, all of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.heads import LogSums, logarithm
from tilekit.epilogue.shared_heads import BoundSharedHeads, SharedHeadEpilogue
from tilekit.tile_io.heads import HeadStorer, StoringGroup
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.attention_tensors import AT_ONCE, TensorCorrector, pack
from tilekit.tile_op.attention_wgmma import WARPGROUP_ROWS
from tilekit.tile_op.tensor_accumulators import powers
from tilekit.tiles.heads import HeadTile
from tilekit.tiles.operand import OperandTile

_CHUNK = 8
"""Elements of 16 bytes, which a thread stores at once."""


@component
class TensorHeadEpilogue:
    """Stores a tile's 128 rows: O / sum, rounded, and log(sum) + factor max where they are asked for.

    A row without a key is 0, and its logarithm minus infinity. All tiles go through the same shared memory.

    Parameters
    ----------
    tile
        The image of the output in shared memory.
    place
        Where it lies.
    storer
        What stores it.
    queries, heads, factor
        Queries and heads of the call, u32, and what takes a score to an exponent of 2.
    log_sums
        Where the logarithms go, if anywhere.
    barrier
        Named barrier of the warpgroup.
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
        barrier: Barrier,
    ) -> None:
        self.tile, self.place, self.storer = tile, place, storer
        self.queries, self.heads, self.factor = queries, heads, factor
        self.log_sums = log_sums
        self.barrier = barrier

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        self.storer.prefetch(w)

    def bind(self, w: Writer, group: Warpgroup) -> BoundTensorHeads:
        """Prepare a thread's addresses; once a role."""
        return BoundTensorHeads(w, self, group)


class BoundTensorHeads:
    """A `TensorHeadEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: TensorHeadEpilogue, group: Warpgroup) -> None:
        self._e = e = epilogue
        self._threads = w.target.matrix_threads
        w.barriers.claim(e.barrier, 1, meeting="attention's epilogue", threads=self._threads)
        self._row = group.thread
        self._image = w.shared_base + e.place.offset
        self._row_address = self._image + group.thread * e.tile.row_bytes
        self._storing = StoringGroup(group.thread, self._threads, group.thread == 0)

    def store(self, w: Writer, sums: TensorCorrector, part: int, total: Value, maximum: Value, tile: HeadTile) -> None:
        """Finish the rows of a part of the tile and store them."""
        e = self._e
        tile = replace(tile, row=tile.row + part * e.tile.rows)
        empty = total == 0.0
        inverse = w.select(empty, 0.0, w.isa.elementwise.divide(a=w.constant(F32, 1.0), b=total), F32)
        if e.log_sums is not None:
            row = tile.row + self._row
            start, queries = e.log_sums.rows(tile, e.heads, e.queries)
            place = start + row
            value = logarithm(w, maximum, e.factor, total, empty)
            e.log_sums.store(w, place, value, row < queries)
        with w.when(self._storing.leads):
            w.ptx.tma.wait_stores_read(pending=0)
        w.barrier(id=e.barrier, threads=self._threads)
        for left, width in powers(e.tile.k, AT_ONCE):
            values = [w.select(empty, 0.0, value * inverse, F32) for value in sums.read(part, left, width)]
            packed = pack(w, e.tile.dtype.name, values)
            for chunk in range(0, width, _CHUNK):
                piece, within = divmod(left + chunk, e.tile.slice_k)
                byte = e.tile.swizzled(w.constant(U32, within * 2), self._row)
                w.isa.memory.store_shared_b32x4(
                    address=self._row_address + byte + piece * e.tile.slice_bytes,
                    values=RegisterTile(packed[chunk // 2 : (chunk + _CHUNK) // 2]),
                )
        w.ptx.tma.fence_shared()
        w.barrier(id=e.barrier, threads=self._threads)
        e.storer.store(w, self._image, tile=tile, offset=0, by=self._storing)

    def finish(self, w: Writer) -> None:
        """Wait until the stores have read the CTA's shared memory."""
        with w.when(self._storing.leads):
            w.ptx.tma.wait_stores_read(pending=0)
        w.warp_sync()


@component
class TensorSharedHeadEpilogue(SharedHeadEpilogue):
    """A `SharedHeadEpilogue` whose parts come out of tensor memory."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundTensorSharedHeads:
        """Prepare a thread's place; once a role."""
        return BoundTensorSharedHeads(w, self, group)


class BoundTensorSharedHeads(BoundSharedHeads):
    """A `TensorSharedHeadEpilogue` in a role."""

    def store(  # type: ignore[override]
        self, w: Writer, sums: TensorCorrector, part: int, total: Value, maximum: Value, tile: HeadTile
    ) -> None:
        """Leave this share's part; the last share of the tile to come adds all up."""
        e = self._e
        slot, rows = self._slot(w, tile)
        row, empty = self._thread, total == 0.0
        valid = row < rows
        inverse = w.select(empty, 0.0, w.isa.elementwise.divide(a=w.constant(F32, 1.0), b=total), F32)
        place = slot * WARPGROUP_ROWS + row
        start = e.parts + w.widen_multiply(place * e.columns, 4)
        for left, width in powers(e.columns, AT_ONCE):
            values = [w.select(empty, 0.0, value * inverse, F32) for value in sums.read(part, left, width)]
            for index in range(0, width, 2):
                w.isa.memory.store_global_b32x2(
                    address=(start + (left + index) * 4).retyped(GMEM),
                    values=RegisterTile(values[index : index + 2]),
                    valid=valid,
                )
        exponent = w.isa.elementwise.fma(a=maximum, b=e.factor, c=w.isa.elementwise.log2(x=total))
        w.isa.memory.store_global_f32(
            address=(e.logs + w.widen_multiply(place, 4)).retyped(GMEM),
            value=w.select(empty, -inf, exponent, F32),
            valid=valid,
        )
        self._left(w, tile, rows)
