"""Scores that a function of yours changes by query, key and head: further masks, and what is added to scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component, require_call
from tilekit.assembly.types import F32, S32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.key_range import BoundKeyRange, KeyBlocks, KeyLimits, KeyRange
from tilekit.tile_op.score_layout import QUADS, ScoreLayout
from tilekit.tiles.heads import HeadTile

Change = Callable[[Writer, Value, Value, Value, Value], Value]
"""Of the writer, a score (f32, before the call's scale), its query and key (s32) and its head (u32): the new score."""


class ChangedBlocks(KeyBlocks):
    """The blocks of a tile, all of which are masked: any score may be changed."""

    def masked(self, *, right: bool) -> list[tuple[Value, bool, bool]]:
        """All but the last block, with both bounds."""
        return [(self.count - 1, True, True)]


@component
class ChangedScores(KeyRange):
    """The keys of another range, with scores that `change` has changed.

    It is asked for every score of every block. Minus infinity hides a key; a query that sees none has the output 0.

    Parameters
    ----------
    within
        Which blocks there are, and their bounds.
    change
        Traced once a score: ``change(w, score, query, key, head)`` returns the new score, an f32. Scores are multiplied
        by the call's scale after it.
    """

    def __init__(self, within: KeyRange, change: Change) -> None:
        require_call("ChangedScores", "change", change, "w", "score", "query", "key", "head")
        self.within, self.change = within, change
        self.queries, self.keys, self.group, self.shares = within.queries, within.keys, within.group, within.shares
        self.query_count, self.key_count = within.query_count, within.key_count
        self.right, self.left, self.lengths = within.right, within.left, within.lengths

    def blocks(self, w: Writer, tile: HeadTile) -> KeyBlocks:
        """The blocks of a tile of queries."""
        found = self.within.blocks(w, tile)
        return ChangedBlocks(found.last, found.count, found.upper, found.plain, found.lower, found.limits)

    def bind(self, w: Writer, group: Warpgroup, layout: ScoreLayout = QUADS) -> BoundKeyRange:
        """Prepare a thread's place in its warpgroup's rows; once a role."""
        return _BoundChange(w, self, group, layout)


@dataclass(frozen=True)
class _Place:
    """A row of a thread: its query, and its head."""

    query: Value
    head: Value


class _BoundChange(BoundKeyRange):
    """`ChangedScores` in a role."""

    def __init__(self, w: Writer, owner: ChangedScores, group: Warpgroup, layout: ScoreLayout) -> None:
        super().__init__(w, owner, group, layout)
        self._within = owner.within.bind(w, group, layout)
        self._change = owner.change

    def partial(self, w: Writer, block: Value, limits: KeyLimits) -> None:
        """Any score of any block may be changed."""

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
        """A block's scores, changed, and then masked as those of the range within."""
        first = (block * self._owner.keys + self._column).retyped(S32)
        places = [self._place(tile, half) for half in range(self._layout.rows)]
        changed = []
        for index, score in enumerate(scores):
            place = places[self._layout.row_of(index)]
            found = self._change(w, score, place.query, first + self._layout.column_of(index), place.head)
            if not isinstance(found, Value) or found.type is not F32:
                raise TraceError(
                    f"ChangedScores: change returned {found!r}; legal: an f32 value of the trace, a score",
                    code="TK-PART-001",
                )
            changed.append(found)
        sides = {"end": end, "right": right, "left": left}
        return self._within.masked(w, changed, tile=tile, block=block, limits=limits, **sides)

    def _place(self, tile: HeadTile, half: int) -> _Place:
        row, group = self.row + self._layout.apart * half, self._owner.group
        if group == 1:
            return _Place((row + tile.row).retyped(S32), tile.head)
        query = row // group
        return _Place((query + tile.row).retyped(S32), tile.head * group + (row - query * group))
