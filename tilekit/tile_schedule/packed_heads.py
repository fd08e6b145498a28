"""The order of attention's tiles where sequences are packed: each has its own number of queries, and of keys.

How many there are is known on the device alone, so the tiles of sequences are counted as one goes. Where they are
claimed, the thread that claims does so, and tells the others what it has found; where not, every role does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.claims import Listener, Teller, TileClaims
from tilekit.tile_schedule.divisor import Divisor
from tilekit.tile_schedule.heads import L2_BYTES
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.heads import HeadArrayName, HeadCall, HeadTile, PackedSequence


@component
class PackedHeadScheduler:
    """Persistent CTAs over the tiles of packed sequences, one sequence behind the other.

    Where tiles of later queries have more keys (`uneven`), these come first, of as many heads as have their keys in L2;
    else the tiles of a head follow each other.

    Where sequences begin may be anything: none is taken to begin before the one ahead ends, or to end behind the last
    position. Bad starts make sequences empty or shorter, nothing outside the arrays is read or written, and every role
    sees the same tiles.

    Parameters
    ----------
    w
        The writer; the addresses of the starts, one s32 a sequence and the end of the last, and counts are kernel
        parameters.
    queries
        Of a tile.
    all_queries, all_keys
        Positions of the arrays, u32.
    uneven
        Whether tiles of later queries have more keys.
    claims
        The role that claims tiles from a counter in device memory, a single thread, and the role that it tells them;
        None where every CTA has its tiles from the beginning, every second round of them backwards.
    """

    yields_early = True
    shares = None

    def __init__(
        self,
        w: Writer,
        *,
        queries: Count,
        all_queries: Value,
        all_keys: Value,
        uneven: bool,
        claims: tuple[Role, Role] | None = None,
    ) -> None:
        self.queries, self.uneven = queries, uneven
        self.claims = None if claims is None else TileClaims(w, *claims, words=_Search.WORDS)
        self.heads = w.parameter("heads", U32, lambda call: _heads(call, "q"))
        self.count = w.parameter("sequences", U32, _sequences)
        self.of_queries = _Starts(w, "query_starts", all_queries)
        self.of_keys = _Starts(w, "key_starts", all_keys)
        self._by_group = Divisor(w, "by_group", _group)
        if uneven:
            self.group = w.parameter("group", U32, _group)
            self.section_keys = w.parameter("section_keys", U32, _section_keys)

    def initialise(self, w: Writer) -> None:
        """Prepare the barriers of claims (one thread)."""
        if self.claims is not None:
            self.claims.initialise(w)

    def schedule(self, call: Call) -> Schedule:
        """At most a CTA for each tile that there can be: a sequence has one that is not whole."""
        tiles = (call.m // self.queries + _sequences(call)) * _heads(call, "q")
        return Schedule(min(call.resident, fits("tiles", tiles, 31, "TK-ATT-004")), tiles)

    def tiles(self, w: Writer, role: Role) -> Iterator[HeadTile]:
        """Device loop over this CTA's tiles."""
        if self.claims is None:
            yield from self._own(w, role)
        elif self.claims.claims(role):
            yield from self._claimed(w, self.claims)
        else:
            yield from self._told(w, self.claims)

    def _own(self, w: Writer, role: Role) -> Iterator[HeadTile]:
        """Those that a CTA has from the beginning."""
        search, cta, ctas = _Search(w, self, role), w.cta(), w.cta_count()
        first, back = w.variable(U32, 0, "round"), w.variable(U32, cta, "place")
        for turn in w.repeat("tile", uniform=not role.one_thread):
            found = search.find(first + back)
            with w.when(found):
                yield self._tile(w, *search.words)
            first.assign(first + ctas)
            back.assign(ctas - 1 - back)
            turn.again = found

    def _claimed(self, w: Writer, claims: TileClaims) -> Iterator[HeadTile]:
        """Those that the thread claims; the last one that it tells the others has no queries."""
        search, teller = _Search(w, self, None), Teller(w, claims)
        index, ctas = w.variable(U32, w.cta(), "claimed"), w.cta_count()
        for turn in w.repeat("claim", uniform=False):
            found = search.find(index)
            teller.tell(*search.words)
            with w.when(found):
                # Asked for ahead of the tile's loads, which the answer does not hold up: tiles may be short.
                taken = claims.take(w)
                yield self._tile(w, *search.words)
                index.assign(taken + ctas)
            with w.when(~found & ((index - ctas) == (search.before - 1))):
                claims.set_back(w)
            turn.again = found

    def _told(self, w: Writer, claims: TileClaims) -> Iterator[HeadTile]:
        """Those that another thread claims."""
        listener = Listener(w, claims)
        for turn in w.repeat("told", uniform=True):
            tile = self._tile(w, *listener.hear())
            assert tile.sequence is not None
            there = tile.sequence.queries > 0
            with w.when(there):
                yield tile
            turn.again = there

    def _tile(
        self, w: Writer, row: Value, head: Value, first_query: Value, queries: Value, first_key: Value, keys: Value
    ) -> HeadTile:
        sequence = PackedSequence(first_query, queries, first_key, keys)
        return HeadTile(row, head, self._by_group.divide(w, head), w.constant(U32, 0), sequence=sequence)


class _Search:
    """A role's way through the sequences, on which it finds tiles whose numbers grow.

    Parameters
    ----------
    w
        The writer.
    order
        What is searched.
    role
        Whose it is; None of one thread.

    Attributes
    ----------
    before
        Tiles of the sequences that lie behind, in the end all of them.
    words
        What has been found: row and head, and where queries and keys of the sequence begin and how many it has; no
        queries where there is no such tile.
    """

    WORDS = 6

    def __init__(self, w: Writer, order: PackedHeadScheduler, role: Role | None) -> None:
        self._w, self._order = w, order
        self._uniform = role is not None and not role.one_thread
        self._sequence, self.before, self._rows = (
            w.variable(U32, 0, name) for name in ("sequence", "before", "row_tiles")
        )
        self._first = w.variable(U32, order.of_queries.read(w, self._sequence, order.count), "first_query")
        self._end = w.variable(U32, self._first, "end_query")
        self._row, self._head, self._queries, self._first_key, self._keys = (
            w.variable(U32, 0, name) for name in ("row", "head", "queries", "first_key", "keys")
        )

    @property
    def words(self) -> tuple[Value, ...]:
        """As the class says."""
        return self._row, self._head, self._first, self._queries, self._first_key, self._keys

    def find(self, index: Value) -> Value:
        """Find tile `index`, and say whether there is one."""
        w, order = self._w, self._order
        for step in w.repeat("sequence", uniform=self._uniform):
            step.again = self._pass_over(index)
        found: Value = self._sequence < order.count
        self._queries.assign(0)
        with w.when(found):
            first, end = (order.of_keys.read(w, self._sequence + more, order.count) for more in (0, 1))
            self._queries.assign(self._end - self._first)
            self._first_key.assign(first)
            self._keys.assign(w.select(end > first, end - first, 0))
            tile, head = self._place(index - self.before)
            self._row.assign((self._rows - 1 - tile) * order.queries)
            self._head.assign(head)
        return found

    def _pass_over(self, index: Value) -> Value:
        """Look at a sequence; go on to the next one where tile `index` lies behind it, and say so."""
        w, order, sequence, first, before = self._w, self._order, self._sequence, self._first, self.before
        valid: Value = sequence < order.count
        bound = order.of_queries.read(w, sequence + 1, order.count)
        self._end.assign(w.select(valid & (bound > first), bound, first))
        self._rows.assign((self._end - first + (order.queries - 1)) // order.queries)
        tiles = self._rows * order.heads
        beyond: Value = valid & ((index - before) >= tiles)
        before.assign(w.select(beyond, before + tiles, before))
        sequence.assign(w.select(beyond, sequence + 1, sequence))
        first.assign(w.select(beyond, self._end, first))
        return beyond

    def _place(self, within: Value) -> tuple[Value, Value]:
        """Tile of a head, counted from the last, and head, of number `within` of the sequence."""
        w, order, rows = self._w, self._order, self._rows
        if not order.uneven:
            head = within // rows
            return within - head * rows, head
        together = w.minimum(order.section_keys // w.select(self._keys > 0, self._keys, 1), order.heads)
        heads = w.minimum(w.select(together > 0, together, 1) * order.group, order.heads)
        section = within // (heads * rows)
        first = section * heads
        heads, within = w.minimum(order.heads - first, heads), within - first * rows
        tile = within // heads
        return tile, first + (within - tile * heads)


class _Starts:
    """Where sequences begin in an array, and at last where they end."""

    def __init__(self, w: Writer, name: str, positions: Value) -> None:
        self._positions = positions
        self._address = w.parameter(name, GMEM, lambda call: call.address(name))

    def read(self, w: Writer, sequence: Value, count: Value) -> Value:
        """The start of a sequence, not behind the last position; 0 behind the end of the last of `count`."""
        address = (self._address + w.widen_multiply(sequence, 4)).retyped(GMEM)
        return w.minimum(w.isa.memory.load_count(address=address, valid=sequence <= count), self._positions)


def _sequences(call: Call) -> int:
    return fits("sequences", int(call.number("sequences")), 31, "TK-ATT-004")


def _group(call: Call) -> int:
    """Heads that share keys."""
    return _heads(call, "q") // _heads(call, "k")


def _section_keys(call: Call) -> int:
    """Keys and values of a head of keys that L2 keeps."""
    assert isinstance(call, HeadCall)
    k, v = call.heads["k"], call.heads["v"]
    return L2_BYTES // ((k.shape[3] + v.shape[3]) * k.dtype.bytes)


def _heads(call: Call, name: HeadArrayName) -> int:
    assert isinstance(call, HeadCall)
    return call.heads[name].shape[2]
