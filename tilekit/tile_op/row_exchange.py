"""Numbers of rows from one role to another: a pair of f32 a row, through shared memory."""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import mbarriers
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import Warpgroup, require_warpgroups

_PAIR = 8


@component
class RowExchange:
    """Each thread of a giving warpgroup hands a pair to the thread of its number in the one that takes.

    Parameters
    ----------
    w
        The writer; pairs and barriers are allocated in its shared memory.
    tiles
        Warpgroups that give, each to the one that takes.
    gives, takes
        The roles: of the first a warpgroup a tile, of the second one.

    Raises
    ------
    TraceError
        ``TK-PART-001`` for roles of other warps.
    """

    def __init__(self, w: Writer, *, tiles: Count, gives: Role, takes: Role) -> None:
        require_warpgroups(w, "RowExchange", gives=(gives, tiles), takes=(takes, 1))
        self.tiles = tiles
        threads, waves = w.target.matrix_threads, w.target.matrix_waves
        self._pairs = w.shared.allocate("rows.pairs", size=_PAIR * threads, count=tiles)
        full, empty = mbarriers("rows", ("full", "empty"), tiles)
        self._full = w.shared.place(full, arrive=(gives.name,), wait=(takes.name,), arrivals=waves)
        self._empty = w.shared.place(empty, arrive=(takes.name,), wait=(gives.name,), arrivals=waves)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread."""
        for array in (self._full, self._empty):
            for tile in range(self.tiles):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + tile * array.stride), count=array.arrivals)
        w.ptx.mbarrier.fence_init()

    def giver(self, w: Writer, group: Warpgroup) -> RowGiver:
        """A thread that gives; once a role."""
        return RowGiver(w, self, group)

    def taker(self, w: Writer, group: Warpgroup) -> RowTaker:
        """A thread that takes; once a role."""
        return RowTaker(w, self, group)


class RowGiver:
    """What a role may do that gives pairs."""

    def __init__(self, w: Writer, owner: RowExchange, group: Warpgroup) -> None:
        self._w = w
        pairs = owner._pairs
        self._place = w.shared_base + pairs.offset + group.index * pairs.stride + group.thread * _PAIR
        self._full, self._empty = owner._full.at(w, group.index), owner._empty.at(w, group.index)
        self._first_lane = w.lane() == 0
        self._parity = w.variable(U32, 1, "rows_phase")

    def give(self, first: Value, second: Value) -> None:
        """Hand a pair over, when the last one has been taken."""
        w = self._w
        w.ptx.mbarrier.wait_parity(bar=self._empty, parity=self._parity)
        self._parity.assign(self._parity ^ 1)
        w.isa.memory.store_shared_f32x2(address=self._place, low=first, high=second)
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=self._full, active=self._first_lane)


class RowTaker:
    """What a role may do that takes pairs: of every tile as often, in the same order."""

    def __init__(self, w: Writer, owner: RowExchange, group: Warpgroup) -> None:
        self._w, self._owner = w, owner
        self._place = w.shared_base + owner._pairs.offset + group.thread * _PAIR
        self._first_lane = w.lane() == 0
        self._parity = w.variable(U32, 0, "rows_phase")

    def take(self, tile: int) -> tuple[Value, Value]:
        """Wait for a tile's pair and take it."""
        w, owner = self._w, self._owner
        w.ptx.mbarrier.wait_parity(bar=owner._full.at(w, tile), parity=self._parity)
        low, high = w.isa.memory.load_shared_f32x2(address=self._place + tile * owner._pairs.stride)
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=owner._empty.at(w, tile), active=self._first_lane)
        return low, high

    def advance(self) -> None:
        """Go on to the next pairs, when every tile's has been taken."""
        self._parity.assign(self._parity ^ 1)
