"""TileIO through registers on AMD chips: the load role's threads load from a buffer and write to the image.

The image is the one TMA makes. A buffer's descriptor covers the rows of one tile, so that what lies behind the
operand's last row is 0 without a comparison. Where a k-block ends inside the operand and rows begin at multiples of 4
bytes, a thread loads pieces of 16 bytes, else element by element: any K and any pitch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, GMEM, SMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.targets import Target
from tilekit.tile_io.pieces import PIECE, PIECES, BoundPieces
from tilekit.tiles.call import Call, fits
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage, Step

WORD: Final = 4

AT_ONCE: Final = 8
"""Pieces that a thread has in registers."""

ELEMENTS_AT_ONCE: Final = 8
"""Elements that a thread has in registers."""

OFFSETS: Final = 1 << 16
"""Bytes that an LDS write reaches behind its address."""

OUTSIDE: Final = 0xFFFF_FFF0
"""A place behind the end of every buffer."""


class BufferOperand:
    """An operand whose tiles are loaded from buffers: its parameters, and who loads what.

    A line of the image is 128 bytes; the role's threads load so many lines at once.

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
    lines
        How many lines at once.
    batched
        Whether the operand has a batch dimension.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a tile that the role's threads cannot share out.
    """

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    contiguous: Literal["k", "mn"] = "k"
    """Which extent of the operand is contiguous in memory."""

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, lines: int, batched: bool) -> None:
        self.tile = tile
        self.batched = batched
        self.first_thread = w.lanes * role.warps.start
        self.lines_apart = lines
        self._check(role)
        name = tile.name
        w.uses(self, "tile", name, dtype=tile.dtype, contiguous=self.contiguous)
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.inner = w.parameter(f"{name}_inner", U32, self._inner)
        self.outer = w.parameter(f"{name}_outer", U32, self._outer)
        self.pitch = w.parameter(f"{name}_pitch", U32, self._pitch)
        self.batch_pitch = None
        if batched:
            self.batch_pitch = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)

    def _check(self, role: Role) -> None:
        tile, kind = self.tile, type(self).__name__
        if tile.major != "k" or tile.swizzle_bytes != SWIZZLE_BYTES or tile.bits not in (8, 16):
            raise TraceError(
                f"{kind} fills images of elements of 8 or 16 bits, K contiguous, swizzled over {SWIZZLE_BYTES} "
                f"bytes; tile {tile.name!r} has elements of {tile.bits} bits, major={tile.major!r} and "
                f"swizzle_bytes={tile.swizzle_bytes}",
                code="TK-TRACE-017",
            )
        if role.one_thread or tile.rows % self.lines_apart:
            nearest = -(-tile.rows // self.lines_apart) * self.lines_apart
            raise TraceError(
                f"{'one thread' if role.one_thread else f'{len(role.warps)} warps'} of role {role.name!r} load "
                f"{self.lines_apart} rows of tile {tile.name!r} at once, and it has {tile.rows}; nearest: "
                f"{'one_thread=False' if role.one_thread else f'{nearest} rows, or fewer warps'}",
                code="TK-TRACE-017",
            )

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return self.tile.bits // 8

    def _inner(self, call: Call) -> int:
        matrix = call.matrix(self.tile.name)
        return fits(f"{matrix.name}'s extent along its rows", matrix.extents[0])

    def _outer(self, call: Call) -> int:
        matrix = call.matrix(self.tile.name)
        return fits(f"{matrix.name}'s extent across its rows", matrix.extents[1])

    def _pitch(self, call: Call) -> int:
        """The pitch: the rows of a tile are to be within a buffer, whose size is counted in 32 bits."""
        matrix = call.matrix(self.tile.name)
        most = OUTSIDE // (self.tile.rows * self.element)
        if matrix.row_pitch > most:
            raise ArgumentError(
                f"{matrix.name} has rows {matrix.row_pitch} elements apart, and {self.tile.rows} of them exceed the "
                f"4 GB of a buffer; nearest: {most} elements",
                code="TK-LOAD-001",
            )
        return matrix.row_pitch

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    @property
    def steps(self) -> list[tuple[int, int]]:
        """What a thread loads of a stage: slice by slice along K, the lines that are `lines_apart`."""
        return [(block, step) for block in range(self.tile.slices) for step in range(self.turns)]

    def steps_of(self, part: int, parts: int) -> list[tuple[int, int]]:
        """Those of one of so many equal parts of the tile's rows.

        Raises
        ------
        TraceError
            ``TK-TRACE-017`` for a tile that has no such parts.
        """
        if self.turns % parts:
            raise TraceError(
                f"tile {self.tile.name!r} is loaded in {parts} parts, and {self.lines_apart} rows of its "
                f"{self.tile.rows} are at once; nearest: {parts * self.lines_apart} rows",
                code="TK-TRACE-017",
            )
        own = self.turns // parts
        return [(block, step) for block, step in self.steps if step // own == part]

    @property
    def turns(self) -> int:
        """Lines of a slice that a thread loads of."""
        return self.tile.rows // self.lines_apart

    def offset(self, block: int, step: int) -> int:
        """Bytes of the image before one of `steps`."""
        return block * self.tile.slice_bytes + self.tile.offset_of(step * self.lines_apart)


@dataclass(frozen=True)
class Finding:
    """A value found in steps of a few instructions each, between which others may stand.

    Attributes
    ----------
    before
        What comes first.
    last
        Emits the rest, and returns the value.
    """

    before: tuple[Step, ...]
    last: Callable[[], Value]

    def whole(self) -> Value:
        """All of it at once."""
        for step in self.before:
            step()
        return self.last()


class TileBuffer:
    """The rows of one tile as a buffer, and a thread's places in it; once a tile.

    Parameters
    ----------
    w
        The writer.
    operand
        What is loaded.
    row, batch
        The tile's first row of M or N, and its matrix.
    line, along
        The thread's first line of the tile, and the first of its bytes in each.

    Attributes
    ----------
    words
        The descriptor.
    """

    def __init__(
        self, w: Writer, operand: BufferOperand, row: Value, batch: Operand, *, line: Value, along: Value
    ) -> None:
        self._operand = operand
        element = operand.element
        matrix = operand.address
        if operand.batch_pitch is not None and isinstance(batch, Value):
            matrix = matrix + w.widen_multiply(batch, operand.batch_pitch) * element
        base = (matrix + w.widen_multiply(row, operand.pitch) * element).retyped(GMEM)
        pitch = operand.pitch * element
        rows = w.minimum(operand.outer - row, operand.tile.rows)
        # The last row ends where the operand does, not where the next one would begin.
        size = (rows - 1) * pitch + operand.inner * element
        self.words = w.gcn.buffer.descriptor(base=base, bytes=size)
        self._base, self._pitch = base, pitch
        self._column = along // element
        self._places = [line * pitch + along]
        for _ in range(operand.turns - 1):
            self._places.append(self._places[-1] + pitch * operand.lines_apart)

    def aligned(self) -> Value:
        """Whether all rows begin at multiples of 4 bytes, a predicate."""
        return ((self._base & (WORD - 1)) == 0) & ((self._pitch & (WORD - 1)) == 0)

    def inside(self, step: int, k: Value) -> Value:
        """Place of the thread's bytes of a line from element `k` of the row on, where its row has them."""
        return self._places[step] + k * self._operand.element

    def first(self, step: int) -> Value:
        """Place of the thread's bytes of a line where the row begins."""
        return self._places[step]

    def find_bytes(self, w: Writer, k: Value) -> Finding:
        """From where rows begin to their element `k`; 0 where they do not have it."""
        inside: list[Value] = []
        return Finding(
            (lambda: inside.append(k < self._operand.inner),),
            lambda: w.select(inside[0], k * self._operand.element, 0),
        )

    def find_outside(self, w: Writer, k: Value) -> Finding:
        """Bits that move a place out of the buffer where the row ends before the thread's bytes, else 0."""
        inner, found = self._operand.inner, list[Value]()
        return Finding(
            (
                lambda: found.append(inner - w.minimum(k, inner)),
                lambda: found.append(self._column < found[0]),
            ),
            lambda: w.select(found[1], 0, OUTSIDE),
        )

    def place(self, w: Writer, step: int, k: Value) -> Value:
        """The same where the row may end before them: then outside of the buffer."""
        return w.select(self._column + k < self._operand.inner, self.inside(step, k), OUTSIDE)


@component
class BufferLoader(BufferOperand):
    """Loads one operand's tiles from global memory through registers to LDS, zeros where the operand ends.

    Parameters
    ----------
    w
        The writer. The operand's parameters are those of a `BufferOperand`.
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

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, batched: bool = False) -> None:
        super().__init__(w, tile, role=role, lines=w.lanes * len(role.warps) // PIECES, batched=batched)

    @staticmethod
    def lane_writes(tile: OperandTile, target: Target) -> tuple[int, bool, list[list[int]]]:
        """Bytes a lane, that it writes, and where the lanes of a wave write the first lines of the image."""
        lanes = range(target.lanes)
        return (
            PIECE,
            True,
            [
                [
                    lane // PIECES * SWIZZLE_BYTES + tile.swizzled_byte(lane % PIECES * PIECE, lane // PIECES)
                    for lane in lanes
                ]
            ],
        )

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundBufferLoader:
        """Prepare this thread's places in a stage; once a role."""
        require_alone(self, self.tile.name, multicast)
        return BoundBufferLoader(w, self, stages)


class BoundBufferLoader(BoundPieces):
    """A `BufferLoader` in a role."""

    writer = None

    def __init__(self, w: Writer, loader: BufferLoader, stages: SharedArray) -> None:
        self.loader = loader
        super().__init__(w, loader.first_thread, PIECE, stages)

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> BufferTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return BufferTile(w, self, row, batch)


class BufferTile:
    """The copies of one tile: what its k-blocks have in common."""

    def __init__(self, w: Writer, bound: BoundBufferLoader, row: Value, batch: Operand) -> None:
        self._bound = bound
        self._buffer = TileBuffer(w, bound.loader, row, batch, line=bound.line, along=bound.along)
        self._aligned = self._buffer.aligned()

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's pieces to `stage` from element `k` on."""
        bound, loader = self._bound, self._bound.loader
        image = bound.image(w, stage.index)
        whole = (k + loader.tile.k <= loader.inner) & self._aligned
        with w.when(whole):
            self._copy(w, image, k, self._piece)
        with w.when(~whole):
            self._copy(w, image, k, self._elements)

    def _copy(self, w: Writer, image: Value, k: Value, load: Callable[[Writer, int, Value], RegisterTile]) -> None:
        """Have as many pieces on their way as registers allow before the first one is written."""
        loader = self._bound.loader
        for first in range(0, len(loader.steps), AT_ONCE):
            steps = loader.steps[first : first + AT_ONCE]
            pieces = [load(w, step, k + block * loader.tile.slice_k) for block, step in steps]
            for (block, step), piece in zip(steps, pieces, strict=True):
                far, offset = divmod(loader.offset(block, step), OFFSETS)
                w.gcn.lds.write_b32x4(address=(image + far * OFFSETS).retyped(SMEM), values=piece, offset=offset)

    def fetch(self, w: Writer, k: Value, into: RegisterTile) -> None:
        """Load this thread's pieces from element `k` on into registers: four for each of the loader's `steps`."""
        loader, buffer = self._bound.loader, self._buffer
        whole = (k + loader.tile.k <= loader.inner) & self._aligned
        with w.when(whole):
            for values, (block, step) in self._held(into):
                place = buffer.inside(step, k + block * loader.tile.slice_k)
                w.gcn.buffer.refill_b32x4(buffer=buffer.words, place=place, values=values, offset=0)
        with w.when(~whole):
            for values, (block, step) in self._held(into):
                found = self._elements(w, step, k + block * loader.tile.slice_k)
                for register, value in zip(values, found, strict=True):
                    register.assign(value)

    def put(self, w: Writer, stage: Value, pieces: RegisterTile) -> None:
        """Write the pieces that were fetched to a stage."""
        loader = self._bound.loader
        image = self._bound.image(w, stage)
        for values, (block, step) in self._held(pieces):
            far, offset = divmod(loader.offset(block, step), OFFSETS)
            w.gcn.lds.write_b32x4(address=(image + far * OFFSETS).retyped(SMEM), values=values, offset=offset)

    def registers(self, w: Writer) -> RegisterTile:
        """Registers for all of a stage's pieces."""
        return w.tile(B32, len(self._bound.loader.steps) * PIECE // WORD, self._bound.loader.tile.name)

    def _held(self, registers: RegisterTile) -> Iterator[tuple[RegisterTile, tuple[int, int]]]:
        """The registers of each step."""
        words = PIECE // WORD
        for index, step in enumerate(self._bound.loader.steps):
            yield registers[words * index : words * (index + 1)], step

    def _piece(self, w: Writer, step: int, k: Value) -> RegisterTile:
        """Load a piece that lies in the operand, or in rows that it does not have."""
        buffer = self._buffer
        piece: RegisterTile = w.gcn.buffer.load_b32x4(buffer=buffer.words, place=buffer.inside(step, k), offset=0)
        return piece

    def _elements(self, w: Writer, step: int, k: Value) -> RegisterTile:
        """Load a piece element by element; those behind the end of their row are 0."""
        buffer, size = self._buffer, self._bound.loader.element
        load = w.gcn.buffer.load_b8 if size == 1 else w.gcn.buffer.load_b16
        words: list[Value] = []
        for first in range(0, PIECE // size, ELEMENTS_AT_ONCE):
            places = [buffer.place(w, step, k + first + index) for index in range(ELEMENTS_AT_ONCE)]
            words += packed([load(buffer=buffer.words, place=place, offset=0) for place in places], size)
        return RegisterTile(words)


def packed(parts: list[Value], size: int) -> RegisterTile:
    """Words of elements of so many bytes, each in a register of its own."""
    while size < WORD:
        parts = [low | (high << (8 * size)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
        size *= 2
    return RegisterTile([part.retyped(B32) for part in parts])
