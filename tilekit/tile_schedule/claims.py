"""Tiles that CTAs claim as they come to them, from a counter in device memory: a CTA with short tiles claims more.

A CTA's first number is its own. Each further one is the next of the counter, and the first that is no tile's ends the
loop. All CTAs together claim as often as there are tiles; the thread that makes the last claim sets the counter back
for the next launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilekit.assembly.legal import Count
from tilekit.assembly.shared import mbarriers
from tilekit.assembly.types import GMEM, PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition

_SLOTS = 2


class TileClaims:
    """Numbers of tiles: a CTA's own first, then those that its claiming thread gets, which the readers are told.

    Parameters
    ----------
    w
        The writer; the counter is a kernel parameter, memory of the launch's own.
    claimer, reader
        The role of one thread that claims, and the role that is told.
    words
        In which a tile is told: its number, or all that a scheduler has found of it.
    """

    def __init__(self, w: Writer, claimer: Role, reader: Role, *, words: Count = 1) -> None:
        self._claimer, self._reader, self.words = claimer, reader, words
        self.counter = w.parameter("attention_claims", GMEM, lambda call: call.allocate("attention_claims", 4))
        self._told = w.shared.allocate("claims.numbers", size=4 * words, count=_SLOTS, alignment=4)
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
        teller = Teller(w, self)
        index = w.variable(U32, w.cta(), "claimed")
        following = w.variable(U32, 0, "following")
        for turn in w.repeat("claim", uniform=False):
            teller.tell(index)
            there = index < count
            yield index
            # Asked for when the tile's last loads have been started, whose blocks are worked at when the answer comes;
            # earlier, and a CTA would hold a tile for which another has time.
            with w.when(there):
                taken = self.take(w)
                following.assign(taken + w.cta_count())
                with w.when(taken == count - 1):
                    self.set_back(w)
            again = index < count
            index.assign(following)
            turn.again = again

    def told(self, w: Writer, count: Value) -> Iterator[tuple[Value, Callable[[], Value]]]:
        """Device loop over this CTA's numbers in the other role, with what asks, once, whether there is another."""
        listener = Listener(w, self)
        index = w.variable(U32, listener.hear()[0], "told")
        following = w.variable(U32, 0, "following")
        for turn in w.repeat("told", uniform=True):
            asked: list[Value] = []

            def more(asked: list[Value] = asked) -> Value:
                following.assign(listener.hear()[0])
                asked.append(following < count)
                return asked[0]

            yield index, more
            turn.again = asked[0] if asked else more()
            index.assign(following)

    def take(self, w: Writer) -> Value:
        """Claim: how many claims there were before."""
        taken: Value = w.isa.memory.count_gpu(address=self.counter, value=1)
        return taken

    def set_back(self, w: Writer) -> None:
        """Set the counter back; by the thread that made the last claim."""
        w.isa.memory.acquire_gpu()  # every other CTA has counted before
        w.isa.memory.store_global_b32(address=self.counter, value=0)

    def slot(self, w: Writer, place: RingPosition) -> Value:
        """The address of the words at a place."""
        return w.shared_base + self._told.offset + place.stage * self._told.stride

    def await_slot(self, w: Writer, place: RingPosition, *, full: bool) -> None:
        """Wait until a place is full, or empty."""
        bar = (self._full if full else self._empty).at(w, place.stage)
        w.ptx.mbarrier.wait_parity(bar=bar, parity=place.phase)

    def pass_on(self, w: Writer, place: RingPosition, active: Value, *, full: bool) -> None:
        """Say that a place is full, or empty, and go on to the next."""
        w.ptx.mbarrier.arrive(bar=(self._full if full else self._empty).at(w, place.stage), active=active)
        place.advance()


class Teller:
    """The thread that claims, telling tiles.

    Parameters
    ----------
    w
        The writer.
    claims
        Whose it is.
    """

    def __init__(self, w: Writer, claims: TileClaims) -> None:
        self._w, self._claims = w, claims
        self._place, self._always = RingPosition(w, _SLOTS, fills=True), w.constant(PRED, True)

    def tell(self, *words: Value) -> None:
        """Tell of a tile, once there is room."""
        w, claims, place = self._w, self._claims, self._place
        claims.await_slot(w, place, full=False)
        address = claims.slot(w, place)
        for number, word in enumerate(words):
            w.isa.memory.store_shared_b32(address=address + 4 * number, value=word)
        claims.pass_on(w, place, self._always, full=True)


class Listener:
    """The warps of the role that is told.

    Parameters
    ----------
    w
        The writer.
    claims
        Whose it is.
    """

    def __init__(self, w: Writer, claims: TileClaims) -> None:
        self._w, self._claims = w, claims
        self._place, self._first = RingPosition(w, _SLOTS), w.lane() == 0

    def hear(self) -> tuple[Value, ...]:
        """The words that are told next, the same in all lanes."""
        w, claims, place = self._w, self._claims, self._place
        claims.await_slot(w, place, full=True)
        address = claims.slot(w, place)
        found = [
            w.isa.memory.load_shared_b32(address=address + 4 * number).retyped(U32) for number in range(claims.words)
        ]
        words = tuple(w.broadcast(word, lane=0) for word in found)
        w.warp_sync()
        claims.pass_on(w, place, self._first, full=False)
        return words
