"""Columns of a vector that a warp fetches together, where four lanes have a row.

A thread then has a quarter of the columns, and the seven threads below it the same. Each by itself loads 16 pairs for
64 columns, of which registers allow a few on their way at once. Together they load a pair each, at once and ahead,
and take what they need from the lane that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.fusion import Spreading
from tilekit.epilogue.vectors import Pair

SPREAD = 64
"""Columns that a warp's lanes hold together, two each."""


def spread_column(w: Writer, column: Value) -> Value:
    """The first of the two columns that this lane fetches of `SPREAD` from `column` on."""
    return column + w.lane() * 2


def taken(w: Writer, spread: Pair, at: int) -> Pair:
    """Of what the lanes hold: that of columns ``at + 2 (lane % 4)`` and the one after it; by all lanes of the warp."""
    left, right = (w.ptx.warp.take_f32(value=value, first=at // 2) for value in spread)
    return left, right


class SpreadColumns:
    """The columns of a tile in runs of `SPREAD`, each fetched by a warp together, ahead of the piece that it is for.

    N is even, since the rows of what the copy engine stores are whole units of 16 bytes.
    """

    def __init__(
        self, w: Writer, functions: Spreading, column: Value, batch: Operand, pieces: Sequence[tuple[int, int]]
    ) -> None:
        self._functions = functions
        self._column, self._batch = column, batch
        self._held: dict[int, Any] = {}
        # The pieces, as they will come: a run that the piece before has, too, is fetched once.
        self._ahead: list[int] = []
        before: list[int] = []
        for left, columns in pieces:
            mine = self._starts(left, columns)
            self._ahead += [start for start in mine if start not in before]
            before = mine
        self._next = self._fetch(w)

    @staticmethod
    def _starts(left: int, columns: int) -> list[int]:
        return list(range(left // SPREAD * SPREAD, left + columns, SPREAD))

    def enter(self, w: Writer, left: int, columns: int) -> None:
        """Come to a piece."""
        held = {}
        for start in self._starts(left, columns):
            if start in self._held:
                held[start] = self._held[start]
            else:
                held[start], self._next = self._next, (self._fetch(w) if self._ahead else None)
        self._held = held

    def pair(self, w: Writer, left: int, column: Value) -> Any:
        """What this lane's columns need, of the eight from `left` on in the tile: `column` and the one after it."""
        start = left // SPREAD * SPREAD
        return self._functions.spread_pair(w, self._held[start], left - start, column)

    def _fetch(self, w: Writer) -> Any:
        return self._functions.spread(w, self._column + self._ahead.pop(0), batch=self._batch)
