"""TileIO through registers on AMD chips: the load role's threads load from a buffer and write to the image.

The image is the one TMA makes. A buffer's descriptor covers the rows of one tile, so that what lies behind the
operand's last row is 0 without a comparison. Where a k-block ends inside the operand and rows begin at multiples of 4
bytes, a thread loads pieces of 16 bytes, else element by element: any K and any pitch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, GMEM, SMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.tiles.call import Call, Matrix, fits
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

PIECE: Final = 16
"""Bytes that the swizzle keeps together."""

WORD: Final = 4

PIECES: Final = SWIZZLE_BYTES // PIECE
"""Pieces of a line of the image."""

ELEMENT: Final = 2
"""Bytes of an element."""

OFFSETS: Final = 1 << 16
"""Bytes that an LDS write reaches behind its address."""

OUTSIDE: Final = 0xFFFF_FFF0
"""A place behind the end of every buffer."""


class BufferLoader:
    """Loads one operand's tiles from global memory through registers to LDS, zeros where the operand ends.

    Parameters
    ----------
    w
        The writer. The operand's address (``<name>``), its extents along the contiguous dimension and the other one
        (``<name>_inner``, ``<name>_outer``) and its pitch (``<name>_pitch``, all in elements) become kernel parameters;
        with a batch also ``<name>_batch_pitch``.
    tile
        The image to fill.
    role
        The role that loads, all of its threads.
    batched
        Whether the operand has a batch dimension.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a tile that the role's threads cannot share out.
    """

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, batched: bool = False) -> None:
        self.tile = tile
        self.batched = batched
        self.threads = w.lanes * len(role.warps)
        self.first_thread = w.lanes * role.warps.start
        self.lines_apart = self.threads // PIECES
        self._check(role)
        name = tile.name
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.inner = w.parameter(
            f"{name}_inner", U32, lambda call: fits(f"{name}'s rows", call.matrix(name).extents[0])
        )
        self.outer = w.parameter(
            f"{name}_outer", U32, lambda call: fits(f"{name}'s extent", call.matrix(name).extents[1])
        )
        self.pitch = w.parameter(f"{name}_pitch", U32, self._pitch)
        self.batch_pitch = None
        if batched:
            self.batch_pitch = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)

    def _check(self, role: Role) -> None:
        tile = self.tile
        if tile.major != "k" or tile.swizzle_bytes != SWIZZLE_BYTES or tile.bits != 8 * ELEMENT:
            raise TraceError(
                f"BufferLoader fills images of {8 * ELEMENT}-bit elements, K contiguous, swizzled over {SWIZZLE_BYTES} "
                f"bytes; tile {tile.name!r} has elements of {tile.bits} bits, major={tile.major!r} and "
                f"swizzle_bytes={tile.swizzle_bytes}",
                code="TK-TRACE-017",
            )
        if role.one_thread or tile.rows % self.lines_apart:
            nearest = -(-tile.rows // self.lines_apart) * self.lines_apart
            raise TraceError(
                f"{'one thread' if role.one_thread else f'{self.threads} threads'} of role {role.name!r} copy "
                f"{self.lines_apart} rows of tile {tile.name!r} at once, and it has {tile.rows}; nearest: "
                f"{'one_thread=False' if role.one_thread else f'{nearest} rows, or fewer warps'}",
                code="TK-TRACE-017",
            )

    def _pitch(self, call: Call) -> int:
        """The pitch: the rows of a tile are to be within a buffer, whose size is counted in 32 bits."""
        matrix: Matrix = call.matrix(self.tile.name)
        most = OUTSIDE // (self.tile.rows * ELEMENT)
        if matrix.row_pitch > most:
            raise ArgumentError(
                f"{matrix.name} has rows {matrix.row_pitch} elements apart, and {self.tile.rows} of them exceed the "
                f"4 GB of a buffer; nearest: {most} elements",
                code="TK-LOAD-001",
            )
        return matrix.row_pitch

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundBufferLoader:
        """Prepare this thread's places in a stage; once a role."""
        assert multicast is None, "threads write to their own CTA's shared memory"
        return BoundBufferLoader(w, self, stages)


class BoundBufferLoader:
    """A `BufferLoader` in a role.

    A line of the image is 128 bytes, eight pieces. Thread t has piece t % 8 of lines t / 8, t / 8 + threads / 8, …,
    which are whole swizzles apart: the swizzle moves its piece alike in all of them.
    """

    writer = None

    def __init__(self, w: Writer, loader: BufferLoader, stages: SharedArray) -> None:
        self.loader = loader
        thread = w.thread() - loader.first_thread
        piece = thread % PIECES
        self.line = thread // PIECES
        self.along = piece * PIECE
        self._stages = stages
        self._image = self.line * SWIZZLE_BYTES + (piece ^ (self.line % ATOM_ROWS)) * PIECE

    def image(self, w: Writer, stage: Value) -> Value:
        """Where this thread's first piece lies in a stage."""
        return self._stages.at(w, stage) + self._image

    def at(self, w: Writer, row: Value, batch: Operand) -> BufferTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return BufferTile(w, self, row, batch)


class BufferTile:
    """The copies of one tile: what its k-blocks have in common."""

    def __init__(self, w: Writer, bound: BoundBufferLoader, row: Value, batch: Operand) -> None:
        loader = bound.loader
        self._bound = bound
        matrix = loader.address
        if loader.batch_pitch is not None and isinstance(batch, Value):
            matrix = matrix + w.widen_multiply(batch, loader.batch_pitch) * ELEMENT
        base = matrix + w.widen_multiply(row, loader.pitch) * ELEMENT
        pitch = loader.pitch * ELEMENT
        rows = w.minimum(loader.outer - row, loader.tile.rows)
        # The last row ends where the operand does, not where the next one would begin.
        size = (rows - 1) * pitch + loader.inner * ELEMENT
        self._buffer = w.gcn.buffer.descriptor(base=base.retyped(GMEM), bytes=size)
        first, step = bound.line * pitch + bound.along, pitch * loader.lines_apart
        self._places = [first]
        while len(self._places) < loader.tile.rows // loader.lines_apart:
            self._places.append(self._places[-1] + step)
        self._aligned = ((base.retyped(GMEM) & (WORD - 1)) == 0) & ((pitch & (WORD - 1)) == 0)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's pieces to `stage` from element `k` on."""
        bound, loader = self._bound, self._bound.loader
        image = bound.image(w, stage.index)
        whole = (k + loader.tile.k <= loader.inner) & self._aligned
        with w.when(whole):
            self._copy(w, image, k, self._piece)
        with w.when(~whole):
            self._copy(w, image, k, self._elements)

    def _copy(self, w: Writer, image: Value, k: Value, load: Callable[[Writer, Value, Value], RegisterTile]) -> None:
        """Have every piece on its way before the first one is written."""
        loader, tile = self._bound.loader, self._bound.loader.tile
        places = [(block, step) for block in range(tile.slices) for step in range(tile.rows // loader.lines_apart)]
        pieces = [load(w, self._places[step], k + block * tile.slice_k) for block, step in places]
        for (block, step), piece in zip(places, pieces, strict=True):
            far, offset = divmod(block * tile.slice_bytes + tile.offset_of(step * loader.lines_apart), OFFSETS)
            address = (image + far * OFFSETS).retyped(SMEM)
            w.gcn.lds.write_b32x4(address=address, values=piece, offset=offset)

    def _piece(self, w: Writer, place: Value, k: Value) -> RegisterTile:
        """Load a piece that lies in the operand, or in rows that it does not have."""
        piece: RegisterTile = w.gcn.buffer.load_b32x4(buffer=self._buffer, place=place + k * ELEMENT, offset=0)
        return piece

    def _elements(self, w: Writer, place: Value, k: Value) -> RegisterTile:
        """Load a piece element by element; those behind the end of their row are 0."""
        first, inner = k + self._bound.along // ELEMENT, self._bound.loader.inner
        elements = []
        for index in range(PIECE // ELEMENT):
            inside = w.select(first + index < inner, place + (k + index) * ELEMENT, OUTSIDE)
            elements.append(w.gcn.buffer.load_b16(buffer=self._buffer, place=inside, offset=0))
        words = (low | (high << 16) for low, high in zip(elements[::2], elements[1::2], strict=True))
        return RegisterTile([word.retyped(B32) for word in words])
