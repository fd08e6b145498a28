"""The order of attention's tiles where sequences are packed: each has its own number of queries, and of keys.

How many there are is known on the device alone, so every role counts the tiles as it goes, as of groups of rows: the
tiles of a sequence follow each other head by head, and a CTA takes every so many-th of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.fit import Count, component
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.divisor import Divisor
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.heads import HeadArrayName, HeadCall, HeadTile, PackedSequence


@component
class PackedHeadScheduler:
    """Persistent CTAs over the tiles of packed sequences; in a head those of the last queries come first.

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
    """

    yields_early = True
    shares = None

    def __init__(self, w: Writer, *, queries: Count, all_queries: Value, all_keys: Value) -> None:
        self.queries = queries
        self.heads = w.parameter("heads", U32, lambda call: _heads(call, "q"))
        self._count = w.parameter("sequences", U32, _sequences)
        self._of_queries = _Starts(w, "query_starts", all_queries)
        self._of_keys = _Starts(w, "key_starts", all_keys)
        self._by_group = Divisor(w, "by_group", lambda call: _heads(call, "q") // _heads(call, "k"))

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def schedule(self, call: Call) -> Schedule:
        """At most a CTA for each tile that there can be: a sequence has one that is not whole."""
        tiles = (call.m // self.queries + _sequences(call)) * _heads(call, "q")
        return Schedule(min(call.resident, fits("tiles", tiles, 31, "TK-ATT-004")), tiles)

    def tiles(self, w: Writer, role: Role) -> Iterator[HeadTile]:
        """Device loop over this CTA's tiles."""
        uniform = not role.one_thread
        index, ctas = w.variable(U32, w.cta(), "tile"), w.cta_count()
        sequence, before, rows = (w.variable(U32, 0, name) for name in ("sequence", "before", "row_tiles"))
        first = w.variable(U32, self._of_queries.read(w, sequence, self._count), "first_query")
        end = w.variable(U32, first, "end_query")
        for turn in w.repeat("tile", uniform=uniform):
            for step in w.repeat("sequence", uniform=uniform):
                step.again = self._seek(w, index, sequence, before, first, end, rows)
            found = sequence < self._count
            with w.when(found):
                within = index - before
                head = within // rows
                row = (rows - 1 - (within - head * rows)) * self.queries
                first_key = self._of_keys.read(w, sequence, self._count)
                end_key = self._of_keys.read(w, sequence + 1, self._count)
                keys = w.select(end_key > first_key, end_key - first_key, 0)
                yield HeadTile(
                    row,
                    head,
                    self._by_group.divide(w, head),
                    w.constant(U32, 0),
                    sequence=PackedSequence(first, end - first, first_key, keys),
                )
            index.assign(index + ctas)
            turn.again = found

    def _seek(
        self, w: Writer, index: Value, sequence: Value, before: Value, first: Value, end: Value, rows: Value
    ) -> Value:
        """Look at `sequence`; go on to the next one where tile `index` lies behind it, and say so."""
        valid: Value = sequence < self._count
        bound = self._of_queries.read(w, sequence + 1, self._count)
        end.assign(w.select(valid & (bound > first), bound, first))
        rows.assign((end - first + (self.queries - 1)) // self.queries)
        tiles = rows * self.heads
        beyond: Value = valid & ((index - before) >= tiles)
        before.assign(w.select(beyond, before + tiles, before))
        sequence.assign(w.select(beyond, sequence + 1, sequence))
        first.assign(w.select(beyond, end, first))
        return beyond


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


def _heads(call: Call, name: HeadArrayName) -> int:
    assert isinstance(call, HeadCall)
    return call.heads[name].shape[2]
