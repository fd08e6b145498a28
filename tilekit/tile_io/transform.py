"""TileIO with a change of type on the way: the load role's threads copy, and pass what has landed on to the image.

Each thread copies pieces of the matrix to places of its own in shared memory (``cp.async``), several stages ahead. When
a stage's copies have landed, it reads its pieces, passes them through a function, and stores what comes out where the
swizzle has it, 16 bytes a piece. No thread reads what another one has copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import DType
from tilekit.errors import ArgumentError
from tilekit.tile_io.copy_plan import SWIZZLE_LINES
from tilekit.tile_io.cp_async import CopyWriter
from tilekit.tile_io.pieces import PIECE, PIECES
from tilekit.tiles.call import Call, fits
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

SIZES = (4, 8, 16)
"""Bytes that one asynchronous copy moves."""

Transform = Callable[[Writer, Sequence[Value]], Sequence[Value]]
"""Makes the four words (b32) of 16 bytes of the image from the words of as many elements of the matrix."""


@component
class TransformLoader:
    """Loads one operand's tiles through a function of yours; zeros where the operand ends are passed through it too.

    Parameters
    ----------
    w
        The writer. The operand's address (``<name>``), its extents along the contiguous dimension and the other one
        (``<name>_inner``, ``<name>_outer``) and its pitch (``<name>_pitch``, all in elements) become kernel parameters,
        the stages of raw pieces shared memory.
    tile
        The image to fill.
    source
        Element type of the matrix, contiguous along the dimension that the tile's `major` names.
    transform
        Makes words of the image from words of the matrix, lowest address first.
    stages
        Stages of the ring.
    role
        The role that loads.

    Raises
    ------
    TraceError
        ``TK-LOAD-002`` for a `source` or a `role` whose threads cannot share the tile out in whole pieces.
    """

    batched = False
    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    def __init__(
        self, w: Writer, tile: OperandTile, *, source: DType, transform: Transform, stages: Count, role: Role
    ) -> None:
        self.tile = tile
        self.source = source
        self.transform = transform
        self.elements = 8 * PIECE // tile.dtype.bits
        self.copied = self.elements * source.bytes
        self.threads = w.lanes * len(role.warps)
        self.first_thread = w.lanes * role.warps.start
        self.pieces = tile.bytes // PIECE // self.threads
        self.block_lines = tile.image_rows if tile.major == "k" else tile.slice_k
        self.lines_apart = self.threads // PIECES
        if self.copied not in SIZES:
            raise TraceError(
                f"{tile.name}: {self.elements} elements of {source} are {self.copied} bytes, which no copy moves; it "
                f"moves {', '.join(map(str, SIZES))}",
                code="TK-LOAD-002",
            )
        if role.one_thread or self.threads % (PIECES * SWIZZLE_LINES) or self.block_lines % self.lines_apart:
            raise TraceError(
                f"{tile.name}: the {'one thread' if role.one_thread else f'{self.threads} threads'} of role "
                f"{role.name!r} cannot share out {tile.bytes // PIECE} pieces of its tile in equal parts; nearest: a "
                "role of four warps, one_thread=False",
                code="TK-LOAD-002",
            )
        if tile.swizzle_bytes != SWIZZLE_BYTES:
            raise TraceError(
                f"{tile.name}: its image is swizzled over {tile.swizzle_bytes} bytes, and a TransformLoader writes "
                f"images swizzled over {SWIZZLE_BYTES}; nearest: swizzle_bytes={SWIZZLE_BYTES}",
                code="TK-LOAD-002",
            )
        name = tile.name
        w.uses(self, "source", name, dtype=source, contiguous=tile.major)
        self.address = w.parameter(name, GMEM, self._address)
        self.inner = w.parameter(f"{name}_inner", U32, partial(self._extent, 0))
        self.outer = w.parameter(f"{name}_outer", U32, partial(self._extent, 1))
        self.pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)
        self.raw = w.shared.allocate(
            f"inputs.{name}_raw",
            size=tile.bytes // PIECE * self.copied,
            count=stages,
            alignment=SWIZZLE_BYTES,
            kind="tile",
        )

    def _address(self, call: Call) -> int:
        matrix, address = call.matrix(self.tile.name), call.address(self.tile.name)
        unit = self.copied
        if (address | matrix.pitch) % unit and 0 not in matrix.extents:
            raise ArgumentError(
                f"{matrix.name} at address {address:#x}, with rows {matrix.pitch} bytes apart, cannot be copied {unit} "
                f"bytes at a time; nearest: rows padded to {-(-matrix.pitch // unit) * unit} bytes",
                code="TK-LOAD-001",
            )
        return address

    def _extent(self, axis: int, call: Call) -> int:
        matrix = call.matrix(self.tile.name)
        # Threads count to the end of a tile beyond the last element.
        return fits(f"{matrix.name}'s extent {axis}", matrix.extents[axis] + self.tile.bytes) - self.tile.bytes

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundTransformLoader:
        """Prepare this thread's places in a stage; once a role.

        Raises
        ------
        TraceError
            ``TK-LOAD-002`` in a cluster whose CTAs share the tile: threads write to their own CTA's shared memory.
        """
        if multicast is not None:
            raise TraceError(
                f"{self.tile.name}: {multicast.participants} CTAs of the cluster share the tile, but threads write to "
                "their own CTA's shared memory alone; nearest: a cluster of one CTA along that dimension",
                code="TK-LOAD-002",
            )
        return BoundTransformLoader(w, self, stages)


class BoundTransformLoader:
    """A `TransformLoader` in a role.

    A line of the image is 128 bytes, eight pieces. Thread t has piece t % 8 of lines t / 8, t / 8 + threads / 8, …,
    which are whole swizzles apart: the swizzle moves its piece alike in all of them.

    Attributes
    ----------
    loader
        What is loaded.
    line, along
        This thread's first line, and the elements before its piece in a line.
    """

    completes = True

    def __init__(self, w: Writer, loader: TransformLoader, stages: SharedArray) -> None:
        self.loader = loader
        self._stages = stages
        thread = w.thread() - loader.first_thread
        self.line = thread // PIECES
        piece = thread % PIECES
        self.along = piece * loader.elements
        self._raw = thread * loader.copied
        self._swizzled = (piece ^ (self.line % SWIZZLE_LINES)) * PIECE
        self.writer = CopyWriter((self,))

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> TransformTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return TransformTile(self, row)

    def raw(self, w: Writer, stage: Value, index: int) -> Value:
        """Address of this thread's piece `index` in a stage, as the matrix has it."""
        loader = self.loader
        return loader.raw.at(w, stage) + self._raw + index * loader.threads * loader.copied

    def complete(self, w: Writer, stage: Value) -> None:
        """Pass this thread's pieces, which have landed, through the function and into the image."""
        loader, image = self.loader, self._stages.at(w, stage) + self.line * SWIZZLE_BYTES + self._swizzled
        for index in range(loader.pieces):
            words = loader.transform(w, self._words(w, self.raw(w, stage, index)))
            self._check(words)
            w.isa.memory.store_shared_b32x4(
                address=image + index * loader.lines_apart * SWIZZLE_BYTES, values=RegisterTile(tuple(words))
            )

    def _words(self, w: Writer, address: Value) -> Sequence[Value]:
        match self.loader.copied:
            case 4:
                return (w.isa.memory.load_shared_b32(address=address),)
            case 8:
                return tuple(w.isa.memory.load_shared_b32x2(address=address))
            case _:
                return tuple(w.isa.memory.load_shared_b32x4(address=address))

    def _check(self, words: Sequence[Value]) -> None:
        good = isinstance(words, (list, tuple)) and all(isinstance(word, Value) for word in words)
        if (
            not good
            or len(words) != PIECE // 4
            or any(word.type.kind not in ("bits", "unsigned", "signed") or word.type.bits != 32 for word in words)
        ):
            loader = self.loader
            name = getattr(loader.transform, "__qualname__", repr(loader.transform))
            raise TraceError(
                f"{name} made {words!r} of {loader.elements} elements of {loader.source}; it must return the "
                f"{PIECE // 4} words (b32) of as many elements of {loader.tile.dtype}",
                code="TK-LOAD-003",
            )


class TransformTile:
    """The copies of one tile."""

    def __init__(self, bound: BoundTransformLoader, row: Value) -> None:
        self._bound = bound
        self._row = row

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this thread's copies to `stage` from element `k` on; they are in its open group."""
        bound, loader = self._bound, self._bound.loader
        tile, size = loader.tile, loader.source.bytes
        copy = getattr(w.ptx.cp_async, f"copy_{loader.copied}")
        for index in range(loader.pieces):
            block, first = divmod(index * loader.lines_apart, loader.block_lines)
            if tile.major == "k":  # blocks are slices of K
                line, element = self._row + first, k + block * tile.slice_k
            else:  # blocks are chunks of M or N in slices of K
                part, chunk = divmod(block, tile.image_rows // tile.chunk)
                line, element = k + (part * tile.slice_k + first), self._row + chunk * tile.chunk
            line, element = line + bound.line, element + bound.along
            left = w.select(element < loader.inner, w.minimum(loader.inner - element, loader.elements), 0)
            there = w.select(line < loader.outer, left * size, 0)
            start = loader.address + w.widen_multiply(line, loader.pitch) * size + w.widen_multiply(element, size)
            copy(dst=bound.raw(w, stage.index, index), src=start.retyped(GMEM), bytes=there)
