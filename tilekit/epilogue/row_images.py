"""Rows of a tile on their way out through shared memory, where a thread has a row: each warp stores its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import E2M1X2, DType
from tilekit.epilogue.elements import pack_elements
from tilekit.epilogue.subtiles import stores_since
from tilekit.tile_io.tma import MAP_SWIZZLES, TmaStorer
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tiles.operand import OperandTile, SwizzleBytes
from tilekit.tiles.tile import Tile

WARP_ROWS = 32
"""Rows of a warp, each of a thread."""

CHUNK = 16
"""Bytes that a thread writes at once, and the unit of the swizzle."""

SWIZZLES: Final[tuple[SwizzleBytes, ...]] = (128, 64, 32)
"""Bytes of an image's rows, the widest that divide a tile's; those are a multiple of the last."""

Keep = Callable[[int, Sequence[Value]], None]
"""Keeps elements of a thread's row, from a column of the tile on; as many as 16 bytes hold, or several times that."""


def pack_narrow(w: Writer, dtype: DType, values: Sequence[Value]) -> list[Value]:
    """What `pack_elements` makes of f32, of pairs of e2m1 too."""
    if dtype != E2M1X2:
        return pack_elements(w, dtype, values)
    fours = zip(*(values[at::4] for at in range(4)), strict=True)
    halves = [w.ptx.quantise.pack_e2m1x4(first=a, second=b, third=c, fourth=d) for a, b, c, d in fours]
    return [w.isa.convert.join_bytes(first=one, second=two) for one, two in zip(halves[::2], halves[1::2], strict=True)]


class RowImages:
    """Images of a warp's rows, up to 128 bytes of each, which the warp's first lane has the copy engine store.

    No warp waits for another. An image is written again once the store that used it has read it.

    Parameters
    ----------
    w
        The writer; the output's tensor map becomes a kernel parameter and the images shared memory.
    out
        What a byte of the output holds.
    columns
        Elements of a row of the tile.
    role
        The role that stores.
    buffers
        Images in flight of each warp.
    """

    def __init__(self, w: Writer, *, out: DType, columns: int, role: Role, buffers: int) -> None:
        self.out, self.tile = out, self.image(out, columns)
        self.pieces = -(-columns // (self.tile.slice_k * out.packed))
        self.buffers = min(buffers, self.pieces)
        (declared,) = self.declared(out, columns, warps=len(role.warps), buffers=buffers)
        self.images = w.shared.place(declared)
        self.storer = TmaStorer(
            w,
            matrix="d",
            name="d",
            columns=self.tile.slice_k,
            rows=WARP_ROWS,
            batched=False,
            swizzle=MAP_SWIZZLES[self.tile.swizzle_bytes],
        )

    @staticmethod
    def image(out: DType, columns: int) -> OperandTile:
        """One image: a warp's rows, as wide as one copy moves them."""
        swizzle = next(size for size in SWIZZLES if columns // out.packed % size == 0)
        return OperandTile("output", out, WARP_ROWS, "k", swizzle_bytes=swizzle)

    @classmethod
    def declared(cls, out: DType, columns: int, *, warps: int, buffers: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the images: of a tile, those that differ."""
        tile = cls.image(out, columns)
        count = min(buffers, columns // out.packed // tile.row_bytes)
        return (SharedDeclaration("output.rows", count * tile.slice_bytes, warps, tile.alignment, "tile"),)

    def bind(self, w: Writer, group: Warpgroup) -> BoundRowImages:
        """Prepare a thread's row; once a role."""
        return BoundRowImages(w, self, group)


class BoundRowImages:
    """`RowImages` in a role."""

    def __init__(self, w: Writer, images: RowImages, group: Warpgroup) -> None:
        self._r, tile = images, images.tile
        lane = w.lane()
        self.columns = tile.slice_k * images.out.packed
        self._first_row = group.warp * WARP_ROWS
        self._image = w.shared_base + group.warp * images.images.stride + images.images.offset
        first = self._image + lane * tile.row_bytes + tile.swizzled(w.constant(U32, 0), lane)
        self._chunks = [first, *(first ^ byte for byte in range(CHUNK, tile.row_bytes, CHUNK))]
        self._storer = images.storer.bind(w)
        self._stores = lane == 0

    @contextmanager
    def piece(self, w: Writer, tile: Tile, index: int) -> Iterator[Keep]:
        """What keeps the elements of piece `index` of the tile's rows, which then leave; by whole warps."""
        images = self._r
        start = index % images.buffers * images.tile.slice_bytes
        with w.when(self._stores):
            w.ptx.tma.wait_stores_read(pending=stores_since(index, images.pieces, images.buffers))
        w.warp_sync()

        def keep(left: int, values: Sequence[Value]) -> None:
            words = pack_narrow(w, images.out, values)
            chunk = left % self.columns // images.out.packed // CHUNK
            for first in range(0, len(words), 4):
                address = self._chunks[chunk + first // 4] + start
                w.isa.memory.store_shared_b32x4(address=address, values=RegisterTile(words[first : first + 4]))

        yield keep
        w.ptx.tma.fence_shared()
        w.warp_sync()
        with w.when(self._stores):
            column = tile.column // images.out.packed + index * images.tile.slice_k
            row = tile.row + self._first_row
            self._storer.store(w, self._image + start, column=column, row=row, batch=0)
            w.ptx.tma.commit_stores()

    def finish(self, w: Writer) -> None:
        """Wait until the stores have read the CTA's shared memory, which goes away."""
        with w.when(self._stores):
            w.ptx.tma.wait_stores_read(pending=0)
        w.warp_sync()
