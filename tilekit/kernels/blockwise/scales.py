"""Scales of blocks of 128 elements of K: in a stage beside the operands, or read a k-block ahead; and their products.

A's are one a row and k-block, and lie in a stage where the copy engine can load them. B's are one for 128 columns and a
k-block, a few for a tile, and are read by the threads that need them. What the instruction takes as its A may be either
(`swapped`), so the one are told from the other as fine and coarse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import gcd

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.ahead import Ahead
from tilekit.tile_io.staged_values import UNIT, StagedValues, ValueLoader, ValueTile
from tilekit.tile_op.accumulators import AccumulatorLayout, Warpgroup
from tilekit.tile_op.scaled_accumulators import Four
from tilekit.tile_op.wgmma import ATOM_ROWS
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Groups, Tile

BLOCK = 128
"""Elements of K, and columns of B, that share a scale."""


def group_rows(w: Writer) -> Value:
    """Declare how far apart groups begin."""
    return w.parameter("scale_a_rows", U32, lambda call: call.number("group_rows"))


def coarse_blocks(extent: int) -> tuple[int, int]:
    """How far into a block of B's columns a tile of so many may begin, and how many blocks it may touch."""
    most = (BLOCK - gcd(extent, BLOCK)) % BLOCK
    return most, -(-(most + extent) // BLOCK)


def fine_tile(rows: int, *, shifted: bool) -> ValueTile:
    """The image of A's scales for so many rows, that may begin up to three behind the image's first one (`shifted`)."""
    count = -(-(rows + shifted * (UNIT - 1)) // ATOM_ROWS) * ATOM_ROWS
    return ValueTile("scale_a", count, along_k=False)


def coarse_tile(columns: int) -> ValueTile:
    """The image of B's scales for so many columns."""
    return ValueTile("scale_b", coarse_blocks(columns)[1], along_k=True)


def loader(w: Writer, tile: ValueTile, *, swapped: bool, groups: Groups | None) -> ValueLoader:
    """The loader of an image of scales; `swapped` and `groups` are as of `BlockScales`."""
    rows = group_rows(w) if groups == "counts" and not tile.along_k else None

    def first(of: Tile) -> Value:
        if tile.along_k:
            return (of.row if swapped else of.column) // BLOCK
        row = (of.column if swapped else of.row) - (0 if rows is None else of.batch * rows)
        return row // UNIT * UNIT if groups == "ends" else row

    batched = rows is not None or (groups is not None and tile.along_k)
    return ValueLoader(w, tile, block=BLOCK, first=first, batched=batched)


class BlockScales:
    """The factors of a thread's accumulators, k-block by k-block.

    Parameters
    ----------
    w, layout
        The writer, and how a warpgroup holds a tile.
    swapped
        Whether B's columns are the tile's rows.
    staged
        Where scales lie in a stage, by name; those that do not are read from global memory.
    groups
        As of a `MatmulSpec`; each has scales of B of its own.
    """

    k_block = BLOCK

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        *,
        swapped: bool,
        staged: Mapping[str, SharedArray],
        groups: Groups | None,
    ) -> None:
        self.layout, self.swapped = layout, swapped
        ways = {"scale_a": 0, "scale_b": BLOCK}
        self._shifted = groups == "ends"
        self._staged = {
            name: StagedValues(staged[name], block=along, even=not self._shifted)
            for name, along in ways.items()
            if name in staged
        }
        read = {"scale_a": groups == "counts", "scale_b": groups is not None}
        ahead = {name: Ahead(w, name, block=BLOCK, grouped=of) for name, of in read.items() if name not in staged}
        self._fine, self._coarse = ahead.get("scale_a"), ahead.get("scale_b")
        self._rows = group_rows(w) if groups == "counts" and self._fine is not None else None
        pairs = [8 * i + odd for i in range(layout.columns // 8) for odd in (0, 1)]
        self._offsets = pairs if swapped else layout.rows_of_a_thread
        self.registers = len(pairs) * (1 if self._fine is None else 2) * swapped
        self._most, self._blocks = coarse_blocks(layout.tile_rows if swapped else layout.columns)

    def bind(self, w: Writer, group: Warpgroup) -> None:
        """Find this thread's rows and columns; once a role."""
        fragment, (row, column) = self.layout.fragment, self.layout.corner(w, group.thread)
        self._part = group.part * self.layout.tile_rows
        self._row, self._column = fragment.row(group.thread) + row + self._part, column
        self._across = fragment.column(group.thread) + column

    def turn(self, w: Writer, tile: Tile) -> None:
        """Turn to an output tile."""
        coarse = tile.row + self._part if self.swapped else tile.column + self._column
        self._offset, self._block = coarse % BLOCK, coarse // BLOCK
        rows = tile.column if self.swapped else tile.row
        self._shift = rows % UNIT if self._shifted else 0
        for values in self._staged.values():
            values.turn(w, tile)
        if self._coarse is not None:
            self._coarse.turn(w, tile, self._block, range(self._blocks))
        else:
            self._block = self._block - (tile.row if self.swapped else tile.column) // BLOCK
        if self._fine is not None:
            first = rows - (0 if self._rows is None else tile.batch * self._rows)
            self._fine.turn(w, tile, first + (self._across if self.swapped else self._row), self._offsets)

    def take(self, w: Writer, stage: Stage) -> None:
        """Read the scales in the `stage` of the next k-block."""
        if self._fine is None:
            first = (self._across if self.swapped else self._row) + self._shift
            self._a = self._staged["scale_a"].take(w, stage, first, self._offsets)
        if self._coarse is None:
            self._b = self._staged["scale_b"].take(w, stage, self._block, range(self._blocks))

    def advance(self, w: Writer) -> None:
        """Turn to the next k-block's scales that were read ahead."""
        if self._coarse is not None:
            self._b = self._coarse.take(w)
        if self._fine is not None:
            self._a = self._fine.take(w)

    def factors(self, w: Writer, block: int) -> Callable[[int, int], Four]:
        """The factors of four accumulators of a block: by their fragment and, in eights, their columns."""

        @cache
        def coarse(position: int) -> Value:
            low, high = position // BLOCK, (position + self._most) // BLOCK
            if low == high:
                return self._b[low]
            return w.select(self._offset >= BLOCK * high - position, self._b[high], self._b[low], F32)

        @cache
        def product(index: int, position: int) -> Value:
            return self._a[index] * coarse(position)

        step = gcd(self.layout.columns, BLOCK)

        def four(fragment: int, eight: int) -> Four:
            if self.swapped:
                left, right = (product(2 * eight + odd, block * self.layout.rows) for odd in (0, 1))
                return left, right, left, right
            first = 2 * (block * self.layout.fragments + fragment)
            upper, lower = (product(first + which, 8 * eight // step * step) for which in (0, 1))
            return upper, upper, lower, lower

        return four
