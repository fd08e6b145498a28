"""The order of attention's tiles: which queries of which head a CTA takes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.claims import TileClaims
from tilekit.tile_schedule.divisor import Divisor
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.heads import HeadCall, HeadTile

MOST_SHARES = 64
"""CTAs that share a tile's keys, at most."""

PART_KEYS = 9
"""Keys that a CTA goes through in the time of adding one part of a shared tile: 0.065 microseconds on an H200."""

L2_BYTES = 32 << 20
"""Keys and values that CTAs go through at the same time, so that L2 keeps them: half of an H200's."""


@component
class HeadScheduler:
    """Persistent CTAs over tiles of queries: sections of heads whose keys and values L2 holds, in them tiles by length.

    Where tiles are of different lengths (`uneven`), those of the last queries, the longest, come first, and every
    second round goes backwards: who had the longest of one round has the shortest of the next.

    Parameters
    ----------
    w
        The writer; counts are kernel parameters.
    queries
        Of a tile.
    uneven
        Whether tiles of later queries have more keys.
    group
        Heads that share keys and are rows of one tile; 1 where each has tiles of its own.
    shares
        Whether CTAs share a tile's keys: as many as let all of them work.
    keys
        Of a block: a share has at least one.
    claims
        The role that claims tiles from a counter in device memory, a single thread, and the role that it tells them;
        None where every CTA has its tiles from the beginning.
    """

    yields_early = True

    def initialise(self, w: Writer) -> None:
        """Prepare the barriers of claims (one thread)."""
        if self.claims is not None:
            self.claims.initialise(w)

    def __init__(
        self,
        w: Writer,
        *,
        queries: Count,
        uneven: bool,
        group: Count = 1,
        shares: bool = False,
        keys: Count = 1,
        claims: tuple[Role, Role] | None = None,
    ) -> None:
        self.queries, self.uneven, self.packed, self.keys = queries, uneven, group, keys
        self.claims = None if claims is None else TileClaims(w, *claims)
        self.shares = w.parameter("shares", U32, self._shares) if shares else None
        self.count = w.parameter("tiles", U32, lambda call: fits("tiles", self._work(call), 31, "TK-ATT-004"))
        self.heads = w.parameter("heads", U32, self._heads)
        self.rows = w.parameter("row_tiles", U32, self._row_tiles)
        self.section = w.parameter("section", U32, self._section) if uneven else None
        self._by_share = Divisor(w, "by_share", self._shares) if shares else None
        self._by_section = Divisor(w, "by_section", lambda call: self._section(call) * self._row_tiles(call))
        self._by_heads = Divisor(w, "by_heads", self._heads)
        self._by_group = Divisor(w, "by_group", lambda call: self._heads(call) // _heads_of_keys(call))
        if uneven:
            self._all_heads = w.parameter("all_heads", U32, self._pairs)
            self._by_pairs = [
                Divisor(w, "by_pairs", self._section),
                Divisor(w, "by_last_pairs", lambda call: (self._pairs(call) - 1) % self._section(call) + 1),
            ]

    def _row_tiles(self, call: Call) -> int:
        return -(-call.m // self.queries)

    def tile_count(self, call: Call) -> int:
        """Tiles, shares aside."""
        return self._row_tiles(call) * _q(call)[0] * self._heads(call)

    def _heads(self, call: Call) -> int:
        """Heads, or groups of heads, with tiles of their own."""
        return _q(call)[2] // self.packed

    def _pairs(self, call: Call) -> int:
        """Pairs of a batch entry and a head."""
        return _q(call)[0] * self._heads(call)

    def _shares(self, call: Call) -> int:
        """How many CTAs share a tile: the count with which the last to finish has the least to do.

        A share costs, beside its blocks, about what two of them do, and adding up what PART_KEYS keys do for each part.
        """
        assert isinstance(call, HeadCall)
        tiles, blocks = self.tile_count(call), max(1, -(-call.k // self.keys))

        def cost(shares: int) -> float:
            whole = -(-tiles * shares // call.resident) * (-(-blocks // shares) + 2)
            return whole + (shares * PART_KEYS / self.keys if shares > 1 else 0)

        return min(range(1, min(blocks, MOST_SHARES) + 1), key=cost)

    def _work(self, call: Call) -> int:
        return self.tile_count(call) * (1 if self.shares is None else self._shares(call))

    def _section(self, call: Call) -> int:
        """Heads of a section: of equal tiles one, whose keys its tiles share."""
        assert isinstance(call, HeadCall)
        batch, heads = _q(call)[0], self._heads(call)
        if not self.uneven:
            return 1
        k, v = call.heads["k"], call.heads["v"]
        size = max(1, call.k * (k.shape[3] + v.shape[3]) * k.dtype.bytes)
        return min(batch * heads, max(1, L2_BYTES // size) * (heads // k.shape[2]))

    def schedule(self, call: Call) -> Schedule:
        """A CTA for each that runs at once, or for each tile where there are fewer."""
        tiles = self._work(call)
        return Schedule(min(call.resident, tiles), tiles)

    def tiles(self, w: Writer, role: Role) -> Iterator[HeadTile]:
        """Device loop over this CTA's tiles."""
        cta, ctas = w.cta(), w.cta_count()
        if self.claims is not None and self.claims.claims(role):
            for index in self.claims.claimed(w, self.count):
                with w.when(index < self.count):
                    yield self._tile(w, index)
        elif self.claims is not None:
            for index, more in self.claims.told(w, self.count):
                yield self._tile(w, index, more)
        elif not self.uneven:
            for index in w.range(self.count, start=cta, step=ctas, name="tile"):

                def more(index: Value = index) -> Value:
                    return index + ctas < self.count

                yield self._tile(w, index, more)
        else:
            back = w.variable(U32, cta, "place")
            for first in w.range(self.count, step=ctas, name="round"):
                index = first + back
                back.assign(ctas - 1 - back)

                def another(first: Value = first) -> Value:
                    return first + ctas + back < self.count

                with w.when(index < self.count):
                    yield self._tile(w, index, another)

    def _tile(self, w: Writer, index: Value, more: Callable[[], Value] | None = None) -> HeadTile:
        """The tile, or share of one, of that number: the shares of a tile follow each other."""
        share = number = None
        if self.shares is not None and self._by_share is not None:
            number = self._by_share.divide(w, index)
            share = index - number * self.shares
            index = number
        section, heads = self._by_section.divide(w, index), self.section
        if heads is None:  # a section is one head
            pair, tile = section, index - section * self.rows
        else:
            tile, pair = self._in_section(w, section * heads, index - section * (heads * self.rows), heads)
            tile = self.rows - 1 - tile
        batch = self._by_heads.divide(w, pair)
        head = pair - batch * self.heads
        return HeadTile(tile * self.queries, head, self._by_group.divide(w, head), batch, share, number, more)

    def _in_section(self, w: Writer, first: Value, within: Value, section: Value) -> tuple[Value, Value]:
        """Tile of a head, and head of all, of number `within` of the section that begins with head `first`."""
        heads = w.minimum(self._all_heads - first, section)
        whole, last = (divisor.divide(w, within) for divisor in self._by_pairs)
        tile = w.select(heads == section, whole, last)
        return tile, first + (within - tile * heads)


def _heads_of_keys(call: Call) -> int:
    assert isinstance(call, HeadCall)
    return call.heads["k"].shape[2]


def _q(call: Call) -> tuple[int, int, int, int]:
    assert isinstance(call, HeadCall)
    return call.heads["q"].shape
