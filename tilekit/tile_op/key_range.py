"""Which keys a query attends to: blocks that a tile goes through, and the masks of those that are not whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import cast

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.types import F32, S32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.key_lengths import WholeLengths
from tilekit.tile_op.score_layout import QUADS, ScoreLayout
from tilekit.tiles.call import Call, fits
from tilekit.tiles.heads import HeadCall, HeadTile


@dataclass(frozen=True)
class KeyLimits:
    """What bounds the keys of a tile's queries.

    Attributes
    ----------
    count
        Keys of the tile's batch entry or sequence, u32.
    right, left
        The bounds as they count from a query's own number, s32; None where there are none.
    queries
        How many of its batch entry or sequence there are, u32.
    first
        Where the first key lies among the positions of the array, u32.
    """

    count: Value
    right: Value | None
    left: Value | None
    queries: Value
    first: Value | int


@dataclass(frozen=True)
class KeyBlocks:
    """The blocks of keys of a tile, from the last to the first.

    Attributes
    ----------
    last, count
        The one with the last keys, and how many there are: at least one, whose keys may all be masked.
    upper, plain, lower
        How many of those before it the right bound goes through, no bound, and the left bound alone; u32.
    limits
        Of the tile's keys.
    """

    last: Value
    count: Value
    upper: Value
    plain: Value
    lower: Value | None
    limits: KeyLimits

    def masked(self, *, right: bool) -> list[tuple[Value, bool, bool]]:
        """The counts of those before the last one, with whether the right and the left bound go through them.

        Where there is no bound to the `right`, nothing but the last block is on that side.
        """
        counts = [(self.upper, True, True)] if right else []
        counts.append((self.plain, False, False))
        return counts if self.lower is None else [*counts, (self.lower, False, True)]


@component
class KeyRange:
    """Query i attends to key j where j is one of the call's keys, ``j <= i + right`` and ``j >= i + left``.

    Parameters
    ----------
    w
        The writer; the numbers of queries and keys and the bounds are kernel parameters.
    queries, keys
        Of a tile, and of a block.
    group
        Rows of a query: heads that share keys.
    shares
        How many CTAs share a tile's keys, where several may; u32.
    left, right
        Whether there are such bounds. They count from the diagonal on which the last query meets the last key.
    lengths
        How many queries and keys a tile's batch entry or sequence has; by default all have those of the call.
    """

    def __init__(
        self,
        w: Writer,
        *,
        queries: Count,
        keys: Count,
        left: bool,
        right: bool,
        group: Count = 1,
        shares: Value | None = None,
        lengths: WholeLengths | None = None,
    ) -> None:
        self.lengths = WholeLengths() if lengths is None else lengths
        self.queries, self.keys, self.group, self.shares = queries, keys, group, shares
        self.query_count = w.parameter("queries", U32, lambda call: fits("queries", call.m, 31, "TK-ATT-004"))
        self.key_count = w.parameter("keys", U32, lambda call: fits("keys", call.k, 31, "TK-ATT-004"))
        bound = partial(_bound, lengths=self.lengths)
        self.right = w.parameter("right", U32, partial(bound, "right")).retyped(S32) if right else None
        self.left = w.parameter("left", U32, partial(bound, "left")).retyped(S32) if left else None

    def limits(self, w: Writer, tile: HeadTile) -> KeyLimits:
        """What bounds the keys of a tile's queries."""
        own = self.lengths.of(w, tile, self.query_count, self.key_count)
        right, left = (None if bound is None else bound + own.apart for bound in (self.right, self.left))
        return KeyLimits(own.keys, right, left, own.queries, own.first_key)

    def blocks(self, w: Writer, tile: HeadTile) -> KeyBlocks:
        """The blocks of a tile of queries, or of a share of them."""
        limits = self.limits(w, tile)
        first_row, keys = tile.row.retyped(S32), limits.count.retyped(S32)
        nought = w.constant(U32, 0)
        end = keys
        whole: Value | None = None
        if limits.right is not None:
            # The last row's bound; the last one among those of the tile that there are.
            rows = w.minimum(first_row + self.queries, limits.queries.retyped(S32))
            end = _positive(w, w.minimum(keys, rows + limits.right))
            whole = _positive(w, first_row + limits.right + 1).retyped(U32) // self.keys
        ends = (end.retyped(U32) + (self.keys - 1)) // self.keys
        begin, upto = nought, nought
        if limits.left is not None:
            begin = _positive(w, first_row + limits.left).retyped(U32) // self.keys
            last_row = first_row + (self.queries - 1)
            upto = (_positive(w, last_row + limits.left).retyped(U32) + (self.keys - 1)) // self.keys
        if self.shares is not None and tile.share is not None:
            return self._share(w, begin, ends, tile.share, self.shares, limits)
        count = w.select(ends > begin, ends - begin, 1)
        last = begin + count - 1
        top = last  # blocks from here on are masked on the right
        if whole is not None:
            top = w.minimum(last, w.select(whole > begin, whole, begin))
        upper = last - top
        if limits.left is None:
            return KeyBlocks(last, count, upper, top - begin, None, limits)
        # The last block, and those that the right bound goes through, are masked on both sides.
        bottom = w.minimum(top, w.select(upto > begin, upto, begin))
        return KeyBlocks(last, count, upper, top - bottom, bottom - begin, limits)

    def _share(self, w: Writer, begin: Value, ends: Value, share: Value, shares: Value, limits: KeyLimits) -> KeyBlocks:
        """An equal share of the blocks; where there are too few, one behind the last key, of which nothing is seen."""
        blocks = w.select(ends > begin, ends - begin, 0)
        first, end = blocks * share // shares, blocks * (share + 1) // shares
        some = end > first
        last = w.select(some, begin + end - 1, (limits.count + (self.keys - 1)) // self.keys)
        count = w.select(some, end - first, 1)
        none = w.constant(U32, 0)
        if limits.left is None and limits.right is None:
            return KeyBlocks(last, count, none, count - 1, None, limits)
        if limits.right is None:
            return KeyBlocks(last, count, none, none, count - 1, limits)
        return KeyBlocks(last, count, count - 1, none, None, limits)

    def bind(self, w: Writer, group: Warpgroup, layout: ScoreLayout = QUADS) -> BoundKeyRange:
        """Prepare a thread's place in its warpgroup's rows; once a role."""
        return BoundKeyRange(w, self, group, layout)


class BoundKeyRange:
    """A `KeyRange` in a role."""

    def __init__(self, w: Writer, owner: KeyRange, group: Warpgroup, layout: ScoreLayout) -> None:
        self._owner = owner
        self._layout = layout
        lane = w.lane()
        warp_rows = layout.group_rows // group.waves
        self.row = group.part * layout.group_rows + group.warp * warp_rows + layout.first_row(lane)
        self._column = layout.first_column(lane)

    def partial(self, w: Writer, block: Value, limits: KeyLimits) -> Value | None:
        """Whether a block goes beyond the last key, where the others need no mask; None where they do."""
        return (block + 1) * self._owner.keys > limits.count

    def masked(
        self,
        w: Writer,
        scores: list[Value],
        *,
        tile: HeadTile,
        block: Value,
        limits: KeyLimits,
        end: bool,
        right: bool,
        left: bool,
    ) -> list[Value]:
        """A block's scores, minus infinity where a query of the tile does not attend to the key.

        `end`, `right` and `left` say which of the three conditions may not hold in the block.
        """
        owner, row = self._owner, tile.row
        first = (block * owner.keys + self._column).retyped(S32)
        places = [self.row + self._layout.apart * half for half in range(self._layout.rows)]
        ends: list[list[Value]] = []
        lows: list[list[Value]] = []
        for half in range(self._layout.rows):
            at = (places[half] // owner.group + row if owner.group > 1 else places[half] + row).retyped(S32)
            limit = [limits.count.retyped(S32) - first] if end else []
            if right and limits.right is not None:
                limit.append(at + limits.right + 1 - first)
            ends.append([w.minimum(limit[0], limit[1])] if len(limit) == 2 else limit)
            lows.append([at + limits.left - first] if left and limits.left is not None else [])
        result = []
        for index, score in enumerate(scores):
            half, column = self._layout.row_of(index), self._layout.column_of(index)
            for limit_value in ends[half]:
                score = w.select(limit_value > column, score, -inf, F32)
            for low in lows[half]:
                score = w.select(low <= column, score, -inf, F32)
            result.append(score)
        return result


def _positive(w: Writer, value: Value) -> Value:
    """The larger of a signed number and 0."""
    return w.select(value > 0, value, 0, S32)


def _bound(name: str, call: Call, *, lengths: WholeLengths) -> int:
    """A bound as it counts from the query's own number, in 32 bits; what a tile's own `lengths` add comes later."""
    call = cast(HeadCall, call)
    return (int(call.number(name)) + lengths.known_apart(call)) & 0xFFFF_FFFF
