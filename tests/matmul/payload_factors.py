"""Factors of rows and of columns for payloads of tests: staged or read ahead, for each batch or group or for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tilekit.compose as tk

BLOCK = 64
"""Elements of K of a stage, two bytes each."""

TILE_COLUMNS = 64
"""Columns of the tiles that these factors are for."""


@dataclass(frozen=True)
class Side:
    """Values for the rows or the columns of a tile.

    Attributes
    ----------
    name, shape
        Of the array.
    staged
        Whether they come into the stages.
    """

    name: str
    shape: str
    staged: bool

    @property
    def own(self) -> bool:
        """Whether each batch or group has its own."""
        return self.shape[0] in "bg"

    @property
    def along_k(self) -> bool:
        """Whether those that lie behind each other go along with K."""
        return self.shape.endswith("j")


class Values:
    """A thread's values of one side."""

    def __init__(self, w: tk.Writer, side: Side, staged: Mapping[str, Any]) -> None:
        self.staged = self.ahead = None
        if side.staged:
            self.staged = tk.StagedValues(staged[side.name], block=BLOCK if side.along_k else 0)
        else:
            self.ahead = tk.Ahead(w, side.name, block=BLOCK, grouped=side.own)

    def turn(self, w: tk.Writer, tile: tk.Tile, corner: Any, within: Any, offsets: Any) -> None:
        """Turn to those at `within` a tile that begins at `corner`."""
        self.within, self.offsets = within, offsets
        if self.staged is not None:
            self.staged.turn(w, tile)
        if self.ahead is not None:
            self.ahead.turn(w, tile, corner + within, offsets)

    def take(self, w: tk.Writer, stage: tk.Stage) -> None:
        """Read what the next k-block's stage holds."""
        if self.staged is not None:
            self.found = self.staged.take(w, stage, self.within, self.offsets)

    def advance(self, w: tk.Writer) -> None:
        """Turn to the next k-block's, where they were read ahead."""
        if self.ahead is not None:
            self.found = self.ahead.take(w)


class RowsAndColumns:
    """The product of a value for the row and one for the column."""

    k_block, registers = BLOCK, TILE_COLUMNS // 2

    def __init__(self, rows: Side, columns: Side, w: tk.Writer, layout: Any, staged: Mapping[str, Any]) -> None:
        self.layout = layout
        self.rows, self.columns = (Values(w, side, staged) for side in (rows, columns))

    def bind(self, w: tk.Writer, group: tk.Warpgroup) -> None:
        """Find this thread's first row and column."""
        fragment, (row, column) = self.layout.fragment, self.layout.corner(w, group.thread)
        self.row = fragment.row(group.thread) + row + group.part * self.layout.tile_rows
        self.column = fragment.column(group.thread) + column

    def turn(self, w: tk.Writer, tile: tk.Tile) -> None:
        """Turn to an output tile."""
        across = [8 * eight + odd for eight in range(self.layout.columns // 8) for odd in (0, 1)]
        self.rows.turn(w, tile, tile.row, self.row, self.layout.rows_of_a_thread)
        self.columns.turn(w, tile, tile.column, self.column, across)

    def take(self, w: tk.Writer, stage: tk.Stage) -> None:
        """Of both."""
        self.rows.take(w, stage)
        self.columns.take(w, stage)

    def advance(self, w: tk.Writer) -> None:
        """Of both."""
        self.rows.advance(w)
        self.columns.advance(w)

    def factors(self, w: tk.Writer, block: int) -> Callable[[int, int], Any]:
        """Of four sums: two columns of a row, then of the row eight below."""

        def four(fragment: int, eight: int) -> tuple[tk.Value, ...]:
            first = 2 * (block * self.layout.fragments + fragment)
            across = self.columns.found[2 * eight : 2 * eight + 2]
            return tuple(row * column for row in self.rows.found[first : first + 2] for column in across)

        return four


def payload(rows: Side, columns: Side, *, wrong: bool | None = None) -> tk.OwnPayload:
    """A payload of both; `wrong` stands for what the loaders are told of batches."""
    sides = {side.name: side for side in (rows, columns) if side.staged}

    def tiles(tile_rows: int, tile_columns: int) -> list[tk.ValueTile]:
        counts = {rows.name: tile_rows, columns.name: tile_columns}
        return [tk.ValueTile(name, counts[name], along_k=side.along_k) for name, side in sides.items()]

    def load(w: tk.Writer, tile: tk.ValueTile) -> tk.ValueLoader:
        own = sides[tile.name].own if wrong is None else wrong
        first = (lambda of: of.row) if tile.name == rows.name else lambda of: of.column
        return tk.ValueLoader(w, tile, block=BLOCK, first=first, batched=own)

    return tk.OwnPayload(
        inputs=tuple(tk.Input(side.name, tk.F32, side.shape) for side in (rows, columns)),
        blocks=(tk.Blocks("j", "k", BLOCK),),
        factors=partial(RowsAndColumns, rows, columns),
        tiles=tiles if sides else None,
        loader=load if sides else None,
        registers=RowsAndColumns.registers,
    )
