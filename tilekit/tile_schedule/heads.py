"""The order of attention's tiles: which queries of which head a CTA takes next."""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.fit import Count, component
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.claims import TileClaims
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.heads import HeadCall, HeadTile

MOST_SHARES = 64
"""CTAs that share a tile's keys, at most."""

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
        self.all_heads = w.parameter("all_heads", U32, lambda call: _q(call)[0] * self._heads(call))
        self.group = w.parameter("group", U32, lambda call: self._heads(call) // call.heads["k"].shape[2])
        self.section = w.parameter("section", U32, self._section)
        self.rows = w.parameter("row_tiles", U32, self._row_tiles)

    def _row_tiles(self, call: Call) -> int:
        return -(-call.m // self.queries)

    def tile_count(self, call: Call) -> int:
        """Tiles, shares aside."""
        return self._row_tiles(call) * _q(call)[0] * self._heads(call)

    def _heads(self, call: Call) -> int:
        """Heads, or groups of heads, with tiles of their own."""
        return _q(call)[2] // self.packed

    def _shares(self, call: Call) -> int:
        """How many CTAs share a tile: the count with which the last to finish has the least to do.

        A share costs, beside its blocks, about what two of them do.
        """
        assert isinstance(call, HeadCall)
        tiles, blocks = self.tile_count(call), max(1, -(-call.k // self.keys))

        def cost(shares: int) -> int:
            return -(-tiles * shares // call.resident) * (-(-blocks // shares) + 2)

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
        if self.claims is not None:
            for index in self.claims.numbers(w, role, self.count):
                with w.when(index < self.count):
                    yield self._tile(w, index)
            return
        cta, ctas = w.cta(), w.cta_count()
        if not self.uneven:
            for index in w.range(self.count, start=cta, step=ctas, name="tile"):
                yield self._tile(w, index)
            return
        back = w.variable(U32, cta, "place")
        for first in w.range(self.count, step=ctas, name="round"):
            index = first + back
            back.assign(ctas - 1 - back)
            with w.when(index < self.count):
                yield self._tile(w, index)

    def _tile(self, w: Writer, index: Value) -> HeadTile:
        """The tile, or share of one, of that number: the shares of a tile follow each other."""
        share = number = None
        if self.shares is not None:
            number = index // self.shares
            share = index - number * self.shares
            index = number
        whole = self.section * self.rows
        section = index // whole
        within = index - section * whole
        first = section * self.section
        heads = w.minimum(self.all_heads - first, self.section)
        tile = within // heads
        pair = first + (within - tile * heads)
        batch = pair // self.heads
        head = pair - batch * self.heads
        if self.uneven:
            tile = self.rows - 1 - tile
        return HeadTile(tile * self.queries, head, head // self.group, batch, share, number)


def _q(call: Call) -> tuple[int, int, int, int]:
    assert isinstance(call, HeadCall)
    return call.heads["q"].shape
