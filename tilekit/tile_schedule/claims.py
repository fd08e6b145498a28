"""Tiles that CTAs claim as they come to them, from a counter in device memory: who has had short ones claims more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilekit.assembly.shared import mbarriers
from tilekit.assembly.types import GMEM, PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition

_SLOTS = 2


class TileClaims:
    """Numbers of tiles: a CTA's own first, then those that its claiming thread gets, which the readers are told.

    The counter goes from 0 up to the number of tiles, and the CTA that takes the last number sets it back for the next
    launch. A number beyond the tiles says that there are no more.

    Parameters
    ----------
    w
        The writer; the counter is a kernel parameter, memory of the launch's own.
    claimer, reader
        The role of one thread that claims, and the role that is told.
    """

    def __init__(self, w: Writer, claimer: Role, reader: Role) -> None:
        self._claimer, self._reader = claimer, reader
        self.counter = w.parameter("attention_claims", GMEM, lambda call: call.allocate("attention_claims", 4))
        self._numbers = w.shared.allocate("claims.numbers", size=4, count=_SLOTS, alignment=4)
        full, empty = mbarriers("claims", ("full", "empty"), _SLOTS)
        sides = (claimer.name,), (reader.name,)
        self._full = w.shared.place(full, arrive=sides[0], wait=sides[1], arrivals=1)
        self._empty = w.shared.place(empty, arrive=sides[1], wait=sides[0], arrivals=reader.arrivals)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers and publish them; one thread."""
        for array in (self._full, self._empty):
            for slot in range(_SLOTS):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + slot * array.stride), count=array.arrivals)
        w.ptx.mbarrier.fence_init()

    def claims(self, role: Role) -> bool:
        """Whether a role is the one that claims."""
        return role.name == self._claimer.name

    def claimed(self, w: Writer, count: Value) -> Iterator[Value]:
        """Device loop over this CTA's numbers in the role that claims; the last one is not below `count`."""
        place, always = RingPosition(w, _SLOTS, fills=True), w.constant(PRED, True)
        index = w.variable(U32, w.cta(), "claimed")
        following = w.variable(U32, 0, "following")
        for turn in w.repeat("claim", uniform=False):
            w.ptx.mbarrier.wait_parity(bar=self._empty.at(w, place.stage), parity=place.phase)
            address = w.shared_base + self._numbers.offset + place.stage * self._numbers.stride
            w.isa.memory.store_shared_b32(address=address, value=index)
            w.ptx.mbarrier.arrive(bar=self._full.at(w, place.stage), active=always)
            place.advance()
            there = index < count
            yield index
            # Asked for when the tile's last loads have been started, whose blocks are worked at when the answer comes;
            # earlier, and a CTA would hold a tile for which another has time.
            with w.when(there):
                taken = w.isa.memory.count_gpu(address=self.counter, value=1)
                following.assign(taken + w.cta_count())
                with w.when(taken == count - 1):
                    w.isa.memory.acquire_gpu()  # every other CTA has counted before
                    w.isa.memory.store_global_b32(address=self.counter, value=0)
            again = index < count
            index.assign(following)
            turn.again = again

    def told(self, w: Writer, count: Value) -> Iterator[tuple[Value, Callable[[], Value]]]:
        """Device loop over this CTA's numbers in the other role, with what asks, once, whether there is another."""
        place, first = RingPosition(w, _SLOTS), w.lane() == 0
        index = w.variable(U32, self._next(w, place, first), "told")
        following = w.variable(U32, 0, "following")
        for turn in w.repeat("told", uniform=True):
            asked: list[Value] = []

            def more(asked: list[Value] = asked) -> Value:
                following.assign(self._next(w, place, first))
                asked.append(following < count)
                return asked[0]

            yield index, more
            turn.again = asked[0] if asked else more()
            index.assign(following)

    def _next(self, w: Writer, place: RingPosition, first: Value) -> Value:
        """The number that is told next."""
        w.ptx.mbarrier.wait_parity(bar=self._full.at(w, place.stage), parity=place.phase)
        address = w.shared_base + self._numbers.offset + place.stage * self._numbers.stride
        found = w.isa.memory.load_shared_b32(address=address).retyped(U32)
        number = w.broadcast(found, lane=0)
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=self._empty.at(w, place.stage), active=first)
        place.advance()
        return number
