"""TileIO on AMD chips for operands with M or N contiguous: elements loaded from a buffer, turned round in registers.

The image is the one that `BufferLoader` makes, K contiguous. A thread has one row of it, and loads what a piece of 16
bytes holds, element by element from as many rows of memory; its neighbours' elements lie beside its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, SMEM
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.targets import Target
from tilekit.tile_io.buffer import OFFSETS, OUTSIDE, WORD, BufferOperand, packed
from tilekit.tile_io.pieces import PIECE, PIECES
from tilekit.tiles.call import Call
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

ELEMENTS_AT_ONCE: Final = 32
"""Elements that a thread has on their way, each in a register."""

WORDS: Final = PIECE // WORD
"""Registers of a piece."""


class BufferAcrossLoader(BufferOperand):
    """Loads the tiles of an operand whose rows in memory lie along M or N; zeros where K ends.

    Parameters
    ----------
    w
        The writer. The operand's parameters are those of a `BufferOperand`.
    tile
        The image to fill, K contiguous.
    role
        The role that loads, all of its threads.
    batched
        Whether the operand has a batch dimension.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a tile that the role's threads cannot share out.
    """

    contiguous = "mn"

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, batched: bool = False) -> None:
        self.threads = w.lanes * len(role.warps)
        super().__init__(w, tile, role=role, lines=self.threads // PIECES, batched=batched)
        # Rows of the image that neighbouring threads have: as many as all of them can go over in whole turns.
        self.run = min(w.lanes, tile.rows & -tile.rows)

    def _pitch(self, call: Call) -> int:
        """The pitch: the rows of a k-block are to be within a buffer, whose size is counted in 32 bits."""
        matrix = call.matrix(self.tile.name)
        most = OUTSIDE // (self.tile.k * self.element)
        if matrix.row_pitch > most:
            raise ArgumentError(
                f"{matrix.name} has rows {matrix.row_pitch} elements apart, and {self.tile.k} of them exceed the 4 GB "
                f"of a buffer; nearest: {most} elements",
                code="TK-LOAD-001",
            )
        return matrix.row_pitch

    @property
    def depth(self) -> int:
        """Elements along K of a piece."""
        return PIECE // self.element

    @property
    def pieces_at_once(self) -> int:
        """Pieces of a row that the threads have at once."""
        return min(PIECES, self.threads // self.run)

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """What a thread loads of a stage: slice, rows behind its first one, pieces behind its first one."""
        rows_at_once = self.threads // self.pieces_at_once
        return [
            (block, row, piece)
            for block in range(self.tile.slices)
            for row in range(0, self.tile.rows, rows_at_once)
            for piece in range(0, PIECES, self.pieces_at_once)
        ]

    @staticmethod
    def lane_writes(tile: OperandTile, target: Target) -> tuple[int, bool, list[list[int]]]:
        """Bytes a lane, that it writes, and where the lanes of a wave write the first pieces of their rows."""
        run = min(target.lanes, tile.rows & -tile.rows)
        lanes = [(lane % run, lane // run * PIECE) for lane in range(target.lanes)]
        return PIECE, True, [[row * SWIZZLE_BYTES + tile.swizzled_byte(byte, row) for row, byte in lanes]]

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundBufferAcross:
        """Prepare this thread's places in a stage; once a role."""
        assert multicast is None, "threads write to their own CTA's shared memory"
        return BoundBufferAcross(w, self, stages)


class BoundBufferAcross:
    """A `BufferAcrossLoader` in a role: thread t has row t % run of a run, and piece t / run of it."""

    writer = None

    def __init__(self, w: Writer, loader: BufferAcrossLoader, stages: SharedArray) -> None:
        self.loader = loader
        thread = w.thread() - loader.first_thread
        turn = thread // loader.run
        self.row = thread % loader.run + (turn // loader.pieces_at_once) * loader.run
        self.piece = turn % loader.pieces_at_once
        self._stages = stages
        turned = self.piece ^ (self.row % ATOM_ROWS)
        # Pieces that come later differ in higher bits than its own: those of its place do, too.
        self._images = {
            piece: self.row * SWIZZLE_BYTES + (turned ^ piece) * PIECE
            for piece in range(0, PIECES, loader.pieces_at_once)
        }

    def image(self, w: Writer, stage: Value) -> dict[int, Value]:
        """Where this thread's pieces of its first row lie in a stage."""
        base = self._stages.at(w, stage)
        return {piece: base + offset for piece, offset in self._images.items()}

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> BufferAcrossTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return BufferAcrossTile(w, self, row, batch)


class BufferAcrossTile:
    """The copies of one tile: what its k-blocks have in common."""

    def __init__(self, w: Writer, bound: BoundBufferAcross, row: Value, batch: Operand) -> None:
        self._bound = bound
        loader = bound.loader
        self._element = element = loader.element
        self._matrix = loader.address
        if loader.batch_pitch is not None and isinstance(batch, Value):
            self._matrix = self._matrix + w.widen_multiply(batch, loader.batch_pitch) * element
        self._pitch = loader.pitch * element
        along = bound.piece * loader.depth * self._pitch
        # Rows of the image that the operand does not have are as its last one: no sum of theirs is stored.
        last = loader.inner - 1
        self._columns = {
            first: along + w.minimum(row + bound.row + first, last) * element
            for first in sorted({place[1] for place in loader.places})
        }

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's pieces to `stage` from element `k` on."""
        image = self._bound.image(w, stage.index)
        for place, values in self._loaded(w, k):
            self._write(w, image, place, values)

    def registers(self, w: Writer) -> RegisterTile:
        """Registers for all of a stage's pieces."""
        loader = self._bound.loader
        return w.tile(B32, len(loader.places) * WORDS, loader.tile.name)

    def fetch(self, w: Writer, k: Value, into: RegisterTile) -> None:
        """Load this thread's pieces from element `k` on into registers, some at a time, and turn them round there."""
        for index, (_, values) in enumerate(self._loaded(w, k)):
            for register, value in zip(into[WORDS * index : WORDS * (index + 1)], values, strict=True):
                register.assign(value)

    def put(self, w: Writer, stage: Value, pieces: RegisterTile) -> None:
        """Write the pieces that were fetched to a stage."""
        image = self._bound.image(w, stage)
        for index, place in enumerate(self._bound.loader.places):
            self._write(w, image, place, pieces[WORDS * index : WORDS * (index + 1)])

    def _loaded(self, w: Writer, k: Value) -> Iterator[tuple[tuple[int, int, int], RegisterTile]]:
        """Go through this thread's pieces from element `k` on: as many are on their way at once as registers allow."""
        loader, element = self._bound.loader, self._element
        base = (self._matrix + w.widen_multiply(k, loader.pitch) * element).retyped(loader.address.type)
        rows = w.minimum(loader.outer - k, loader.tile.k)
        # The last row ends where the operand does, not where the next one would begin.
        buffer = w.gcn.buffer.descriptor(base=base, bytes=(rows - 1) * self._pitch + loader.inner * element)
        at_once = ELEMENTS_AT_ONCE // loader.depth
        for first in range(0, len(loader.places), at_once):
            places = loader.places[first : first + at_once]
            loaded = [self._piece(w, buffer, *place) for place in places]
            yield from zip(places, loaded, strict=True)

    def _write(self, w: Writer, image: dict[int, Value], place: tuple[int, int, int], values: RegisterTile) -> None:
        """Write a piece to a stage."""
        block, row, piece = place
        tile = self._bound.loader.tile
        far, offset = divmod(block * tile.slice_bytes + tile.offset_of(row), OFFSETS)
        address = (image[piece] + far * OFFSETS).retyped(SMEM)
        w.gcn.lds.write_b32x4(address=address, values=values, offset=offset)

    def _piece(self, w: Writer, buffer: RegisterTile, block: int, row: int, piece: int) -> RegisterTile:
        """Load a piece's elements, each from a row of memory of its own."""
        loader, wide = self._bound.loader, self._element
        load = w.gcn.buffer.load_b8 if wide == 1 else w.gcn.buffer.load_b16
        place = self._columns[row] + self._pitch * (block * loader.tile.slice_k + piece * loader.depth)
        parts = []
        for _ in range(loader.depth):
            parts.append(load(buffer=buffer, place=place, offset=0))
            place = place + self._pitch
        return packed(parts, wide)
