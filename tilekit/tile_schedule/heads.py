"""The order of attention's tiles: which queries of which head a CTA takes next."""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.fit import Count, component
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tiles.call import Call, Schedule, fits
from tilekit.tiles.heads import HeadCall, HeadTile

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
    """

    yields_early = True

    def __init__(self, w: Writer, *, queries: Count, uneven: bool) -> None:
        self.queries, self.uneven = queries, uneven
        self.count = w.parameter("tiles", U32, lambda call: fits("tiles", self._tiles(call), 31, "TK-ATT-004"))
        self.heads = w.parameter("heads", U32, lambda call: _q(call)[2])
        self.all_heads = w.parameter("all_heads", U32, lambda call: _q(call)[0] * _q(call)[2])
        self.group = w.parameter("group", U32, lambda call: _q(call)[2] // call.heads["k"].shape[2])
        self.section = w.parameter("section", U32, self._section)
        self.rows = w.parameter("row_tiles", U32, self._row_tiles)

    def _row_tiles(self, call: Call) -> int:
        return -(-call.m // self.queries)

    def _tiles(self, call: Call) -> int:
        return self._row_tiles(call) * _q(call)[0] * _q(call)[2]

    def _section(self, call: Call) -> int:
        """Heads of a section: of equal tiles one, whose keys its tiles share."""
        assert isinstance(call, HeadCall)
        batch, _, heads, _ = _q(call)
        if not self.uneven:
            return 1
        k, v = call.heads["k"], call.heads["v"]
        size = max(1, call.k * (k.shape[3] + v.shape[3]) * k.dtype.bytes)
        return min(batch * heads, max(1, L2_BYTES // size) * (heads // k.shape[2]))

    def schedule(self, call: Call) -> Schedule:
        """A CTA for each that runs at once, or for each tile where there are fewer."""
        tiles = self._tiles(call)
        return Schedule(min(call.resident, tiles), tiles)

    def tiles(self, w: Writer, role: Role) -> Iterator[HeadTile]:
        """Device loop over this CTA's tiles."""
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
        """The tile of that number."""
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
        return HeadTile(tile * self.queries, head, head // self.group, batch)


def _q(call: Call) -> tuple[int, int, int, int]:
    assert isinstance(call, HeadCall)
    return call.heads["q"].shape
