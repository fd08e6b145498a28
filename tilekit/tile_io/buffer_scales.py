"""TileIO of block scales on AMD chips: the load role's threads bring a word of four scales for each row to LDS."""

from __future__ import annotations

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, SMEM, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import ArgumentError
from tilekit.tile_io.buffer import OUTSIDE
from tilekit.tiles.call import Call, fits
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.scale_tile import WORD_BYTES, ScaleTile
from tilekit.tiles.stage import Stage


@component
class BufferScaleLoader:
    """Loads the scales of one operand's tiles, zeros (2^-127) where the operand ends.

    Parameters
    ----------
    w
        The writer. The scales' address (``<name>``), bytes of a row (``<name>_inner``), rows (``<name>_outer``) and
        pitch (``<name>_pitch``) become kernel parameters.
    tile
        The image to fill.
    role
        The role that loads, all of its threads.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a role of a single thread; ``TK-TRACE-013`` where CTAs are to share a tile.
    """

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    batched = False

    def __init__(self, w: Writer, tile: ScaleTile, *, role: Role) -> None:
        if role.one_thread:
            raise TraceError(
                f"one thread of role {role.name!r} loads scales {tile.name!r}; nearest: one_thread=False",
                code="TK-TRACE-017",
            )
        self.tile = tile
        self.first_thread = w.lanes * role.warps.start
        self.threads = w.lanes * len(role.warps)
        name = tile.name
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.inner = w.parameter(f"{name}_inner", U32, self._inner)
        self.outer = w.parameter(f"{name}_outer", U32, lambda call: call.matrix(name).extents[1])
        self.pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)

    def _inner(self, call: Call) -> int:
        """Bytes of a row: whole words, one for each 128 elements of the operand's rows."""
        tile = self.tile
        matrix, address = call.matrix(tile.name), call.address(tile.name)
        elements = call.matrix(tile.of.name).extents[0]
        if matrix.extents[0] * tile.covered != elements or (matrix.extents[0] | matrix.pitch | address) % WORD_BYTES:
            step = tile.covered * WORD_BYTES
            raise ArgumentError(
                f"{matrix.name} at address {address:#x} has rows of {matrix.extents[0]} scales, {matrix.pitch} bytes "
                f"apart, for rows of {elements} elements: a scale is of {tile.covered}, and rows are whole words of "
                f"{WORD_BYTES}; nearest: rows of {-(-elements // step) * step} elements",
                code="TK-LOAD-001",
            )
        return fits(f"{matrix.name}'s extent along its rows", matrix.extents[0])

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundBufferScaleLoader:
        """Prepare this thread's rows; once a role."""
        require_alone(self, self.tile.name, multicast)
        return BoundBufferScaleLoader(self, w.thread() - self.first_thread, stages)


class BoundBufferScaleLoader:
    """A `BufferScaleLoader` in a role: thread t has the words of rows t, t + threads, …."""

    writer = None

    def __init__(self, loader: BufferScaleLoader, thread: Value, stages: SharedArray) -> None:
        self.loader, self.thread, self.stages = loader, thread, stages

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> BufferScaleTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        return BufferScaleTile(w, self, row)


class BufferScaleTile:
    """The loads of one tile."""

    def __init__(self, w: Writer, bound: BoundBufferScaleLoader, row: Value) -> None:
        self._bound = bound
        loader = bound.loader
        base = (loader.address + w.widen_multiply(row, loader.pitch)).retyped(GMEM)
        size = (w.minimum(loader.outer - row, loader.tile.rows) - 1) * loader.pitch + loader.inner
        self._words = w.gcn.buffer.descriptor(base=base, bytes=size)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's words to `stage` from element `k` on."""
        bound, loader = self._bound, self._bound.loader
        tile, first = loader.tile, k // loader.tile.covered
        image = bound.stages.at(w, stage.index) + bound.thread * WORD_BYTES
        for left in range(0, tile.rows, loader.threads):
            row = bound.thread + left
            places = [
                w.select(
                    first + word * WORD_BYTES < loader.inner, row * loader.pitch + first + word * WORD_BYTES, OUTSIDE
                )
                for word in range(tile.words)
            ]
            values = [w.gcn.buffer.load_b32(buffer=self._words, place=place, offset=0) for place in places]
            with w.when(row < tile.rows):
                for word, value in enumerate(values):
                    place = (image + tile.offset(word, left)).retyped(SMEM)
                    w.gcn.lds.write_b32(address=place, value=value, offset=0)
