"""Who loads first: the operands of a CTA's first tile, before what its epilogue reads.

Both come through the same copy engine. The matrix instructions wait for operands from the start, the epilogue for its
own only once they are done. Later the ring of operands is full and keeps itself ahead, so the order is for the first
tile alone (as in CUTLASS, whose load-order barrier this is).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.shared import MBARRIER_BYTES, SharedDeclaration
from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_io.payload_loader import TileCopies
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

if TYPE_CHECKING:
    from tilekit.drivers.warp_specialized import BoundLoader, BoundSource

_NEVER = (1 << 32) - 1
"""No k-block begins at this element."""


class LoadOrder:
    """One mbarrier, with one phase: the load role arrives once it has filled the ring, or loaded its first tile.

    Parameters
    ----------
    w
        The writer; the barrier is allocated in its shared memory.
    stages, k_block
        Stages of the ring of operands, and elements of K in one.
    loads, waits
        The role that loads operands, one thread, and the one that loads for the epilogue.
    """

    def __init__(self, w: Writer, *, stages: int, k_block: int, loads: Role, waits: Role) -> None:
        self.stages = stages
        self.k_block = k_block
        (barrier,) = self.declared()
        self.barrier = w.shared.place(barrier, arrive=(loads.name,), wait=(waits.name,), arrivals=loads.arrivals)

    @staticmethod
    def declared() -> tuple[SharedDeclaration, ...]:
        """Shared memory of the barrier."""
        return (SharedDeclaration("load_order", MBARRIER_BYTES, kind="mbarrier"),)

    def initialise(self, w: Writer) -> None:
        """Initialise the barrier; one thread."""
        w.ptx.mbarrier.init(bar=self.address(w), count=self.barrier.arrivals)

    def address(self, w: Writer) -> Value:
        """Where the barrier is."""
        return w.shared_base + self.barrier.offset

    def first(self, w: Writer, loader: BoundLoader) -> FirstLoads:
        """The loader of the role that loads operands, which announces its first loads."""
        return FirstLoads(w, self, loader)

    def behind(self, source: BoundSource) -> LoadsBehind:
        """The source of the role that loads for the epilogue, which waits for them."""
        return LoadsBehind(self, source)


class FirstLoads:
    """A `BoundLoader` that says when its first loads are on their way."""

    def __init__(self, w: Writer, order: LoadOrder, loader: BoundLoader) -> None:
        self.writer = loader.writer
        self._order = order
        self._loader = loader
        self._bar = order.address(w)
        self._owing = w.new(PRED, "owing", uniform=False)
        self._owing.assign(True)
        self._last = w.variable(U32, _NEVER, "last_first")

    def at(self, w: Writer, tile: Tile) -> FirstCopies:
        """Turn to `tile`: of the first, work out which k-block is the last of the first loads."""
        copies, order = self._loader.at(w, tile), self._order
        length = tile.k_end - tile.k_first
        if isinstance(tile.k_first, Value):  # the last shares of a short K begin behind it
            length = w.select(tile.k_end > tile.k_first, length, 0, U32)
        span = w.minimum(length, order.stages * order.k_block)
        last = ((span - 1) & -order.k_block % (1 << 32)) + tile.k_first
        self._last.assign(w.select(self._owing, last, _NEVER))
        w.ptx.mbarrier.arrive(bar=self._bar, active=self._owing & (span == 0))  # an empty sum loads nothing
        self._owing.assign(False)
        return FirstCopies(copies, self._bar, self._last)


class FirstCopies:
    """The copies of a tile that may be the first."""

    def __init__(self, copies: TileCopies, bar: Value, last: Value) -> None:
        self._copies = copies
        self._bar = bar
        self._last = last

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start the copies that fill `stage` from element `k` on, and arrive behind the last of the first ones."""
        self._copies.load(w, stage, k)
        w.ptx.mbarrier.arrive(bar=self._bar, active=k == self._last)


class LoadsBehind:
    """A `BoundSource` that waits for the first loads; of the second tile on it waits no longer."""

    def __init__(self, order: LoadOrder, source: BoundSource) -> None:
        self._order = order
        self._source = source

    def load(self, w: Writer, tile: Tile) -> None:
        """Load what the epilogue reads of `tile`."""
        w.ptx.mbarrier.wait_parity(bar=self._order.address(w), parity=0)
        self._source.load(w, tile)
