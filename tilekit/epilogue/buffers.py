"""Where an epilogue writes the pieces of a tile that the copy engine stores: buffers of its own, or its source's."""

from __future__ import annotations

from typing import Protocol

from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.source_ring import SourceConsumer
from tilekit.epilogue.subtiles import SubtileAccess, stores_since


class PieceBuffers(Protocol):
    """What the epilogue asks for each piece: first `begin_tile`, then `take`, `written`, `stored` and `advance`."""

    access: SubtileAccess
    """How a thread reaches its elements, at offsets from `first` on."""
    first: Value
    """The address of the first buffer."""

    def begin_tile(self, w: Writer) -> None:
        """A tile begins; by the thread that stores."""

    def take(self, w: Writer, index: int) -> tuple[Value | int, Value | None]:
        """Wait for a buffer for piece `index` of the tile; return its offset, and that of the source's subtile."""

    def written(self, w: Writer) -> None:
        """The source has been read, and the piece written."""

    def stored(self, w: Writer, index: int) -> None:
        """Piece `index` is being stored; by the thread that does."""

    def advance(self) -> None:
        """Go on to the next piece."""


class OwnBuffers:
    """Buffers in a turn that begins anew with each tile: one is free when the store before has read it.

    Parameters
    ----------
    first
        Address of the warpgroup's first one.
    access
        How a thread reaches its elements there.
    buffers, size
        How many there are, and bytes from one to the next.
    pieces
        Of a tile.
    barrier, threads
        Where the warpgroup meets.
    source
        The second matrix, in subtiles of its own.
    """

    def __init__(
        self,
        first: Value,
        access: SubtileAccess,
        *,
        buffers: int,
        size: int,
        pieces: int,
        barrier: Value | int,
        threads: int,
        source: SourceConsumer | None,
    ) -> None:
        self.first, self.access = first, access
        self._buffers, self._size, self._pieces = buffers, size, pieces
        self._barrier, self._threads = barrier, threads
        self._source = source

    def begin_tile(self, w: Writer) -> None:
        """Wait for the first buffer."""
        self._claim(w, 0)

    def take(self, w: Writer, index: int) -> tuple[int, Value | None]:
        """Wait until the storing thread has found the buffer free, and for the source."""
        w.barrier(id=self._barrier, threads=self._threads)
        return index % self._buffers * self._size, None if self._source is None else self._source.acquire(w)

    def written(self, w: Writer) -> None:
        """Give the source's subtile back."""
        if self._source is not None:
            self._source.release(w)

    def stored(self, w: Writer, index: int) -> None:
        """Wait for the next piece's buffer."""
        if index + 1 < self._pieces:
            self._claim(w, index + 1)

    def advance(self) -> None:
        """Nothing: buffers follow from the piece."""

    def _claim(self, w: Writer, index: int) -> None:
        """Wait in the storing thread until the store that last used the buffer of piece `index` has read it."""
        w.ptx.tma.wait_stores_read(pending=stores_since(index, self._pieces, self._buffers))


class SourceBuffers:
    """The source's own subtiles: what becomes of one is written over it, and it is given back when it has been stored.

    Where a source is full it was free before, so nobody waits for stores ahead of writing.
    """

    def __init__(self, source: SourceConsumer) -> None:
        self.first, self.access = source.first, source.access
        self._source = source

    def begin_tile(self, w: Writer) -> None:
        """Give back what the tile before has left."""
        self._source.begin_tile(w)

    def take(self, w: Writer, index: int) -> tuple[Value, Value]:
        """Wait until the source is there."""
        offset = self._source.acquire(w)
        return offset, offset

    def written(self, w: Writer) -> None:
        """Nothing: the subtile leaves from here."""

    def stored(self, w: Writer, index: int) -> None:
        """Give back what has been stored."""
        self._source.stored(w, index)

    def advance(self) -> None:
        """Go on to the next subtile."""
        self._source.advance()
