"""TileIO of packed sequences: tiles of the output that end where their sequence does."""

from __future__ import annotations

from functools import partial

from tilekit.assembly.fit import component
from tilekit.assembly.types import GMEM, S32, SMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.heads import HeadStorer, StoringGroup
from tilekit.tiles.call import Call, fits
from tilekit.tiles.heads import HeadCall, HeadTile
from tilekit.tiles.operand import OperandTile

_PIECE = 16
"""Bytes that a thread stores at once."""


@component
class PackedHeadStorer(HeadStorer):
    """Stores the rows of a warpgroup's tile that its sequence has: all of them by TMA, fewer by its threads.

    Behind a sequence the next one begins, of which a box of the copy engine knows nothing.

    Parameters
    ----------
    w
        The writer; the tensor map, the output's address and its strides are kernel parameters.
    tile
        The image that is stored.
    rows
        Positions of one store.
    """

    def __init__(self, w: Writer, tile: OperandTile, *, rows: int) -> None:
        super().__init__(w, tile, rows=rows)
        self._out = w.parameter("out", GMEM, lambda call: call.address("o"))
        self._elements = w.parameter("elements", U32, lambda call: call.n)
        self._strides = [
            w.parameter(f"out_{name}", U32, partial(_stride, axis)) for axis, name in ((1, "query"), (2, "head"))
        ]

    def store(self, w: Writer, source: Value, *, tile: HeadTile, offset: Value | int, by: StoringGroup) -> None:
        """Store the image's rows at `source`, those of the tile from row `offset` on, behind a barrier of the group."""
        assert tile.sequence is not None
        first = tile.row + offset
        left = (tile.sequence.queries - first).retyped(S32)
        position, image, size = tile.sequence.first_query + first, self.tile, self.tile.bits // 8
        with w.when(by.leads & (left >= self.rows)):
            self.copy(w, source, row=position, head=tile.head, batch=tile.batch)
        with w.when(left < self.rows):
            start = self._out + w.widen_multiply(tile.head, self._strides[1]) * size
            in_slice, across = image.row_bytes // _PIECE, image.row_bytes // _PIECE * image.slices
            for item in w.range(self.rows * across, start=by.thread, step=by.count, name="piece"):
                row = item // across
                piece = item - row * across
                part = piece // in_slice
                byte = image.swizzled((piece - part * in_slice) * _PIECE, row)
                goal = start + w.widen_multiply(position + row, self._strides[0]) * size
                w.isa.memory.copy_16(
                    source=(source + row * image.row_bytes + part * image.slice_bytes + byte).retyped(SMEM),
                    target=(goal + w.widen_multiply(piece, _PIECE)).retyped(GMEM),
                    valid=(row.retyped(S32) < left) & (piece * (_PIECE // size) < self._elements),
                )


def _stride(axis: int, call: Call) -> int:
    assert isinstance(call, HeadCall)
    return fits("out's stride", max(0, call.heads["o"].strides[axis]), 32, "TK-ATT-004")
