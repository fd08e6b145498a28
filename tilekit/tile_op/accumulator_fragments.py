"""Which rows and columns of a tile the accumulators of a thread are: a map that belongs to the matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilekit.assembly.values import RegisterTile, Value
from tilekit.tiles.interleave import INTERLEAVED

FOUR: Final = 4
"""Accumulators that an epilogue takes together: two rows by two neighbouring columns."""

ACROSS: Final = 4
"""Lanes across the columns of a fragment."""


@dataclass(frozen=True)
class AccumulatorFragment:
    """How the lanes of a warp hold `rows` of a tile: `columns` at once, and the next ones in further registers.

    A lane has two rows, half of `rows` apart, and in each a quarter of the columns, neighbours.

    Attributes
    ----------
    rows, columns
        Extents.
    row_lanes, column_lanes
        Lanes from one row to the next, and from one lane's columns to those of the next.
    """

    rows: int
    columns: int
    row_lanes: int
    column_lanes: int

    @property
    def apart(self) -> int:
        """How far apart a lane's two rows are."""
        return self.rows // 2

    @property
    def neighbours(self) -> int:
        """Columns that a lane has of `columns`."""
        return self.columns // ACROSS

    def row(self, thread: Value) -> Value:
        """The first of a thread's two rows."""
        return (thread // self.row_lanes) & (self.apart - 1)

    def column(self, thread: Value) -> Value:
        """The first of a thread's columns."""
        return ((thread // self.column_lanes) & (ACROSS - 1)) * self.neighbours

    def among(self, lane: Value, rows: int) -> Value:
        """Whether the first of a lane's rows is one of so many first ones."""
        if self.row_lanes > self.column_lanes:  # lanes of a row are neighbours
            return lane < rows * self.row_lanes
        return self.row(lane) < rows

    @property
    def masks_across(self) -> tuple[int, ...]:
        """Exchanges by which the lanes across a row combine what they have of it."""
        return tuple(self.column_lanes << bit for bit in range(ACROSS.bit_length() - 1))

    @property
    def masks_down(self) -> tuple[int, ...]:
        """Exchanges by which the lanes down a column combine what they have of it."""
        return tuple(self.row_lanes << bit for bit in range(self.apart.bit_length() - 1))

    def left(self, four: int) -> int:
        """Columns from those of a thread's first four registers to those of another four."""
        piece, pair = divmod(four, self.neighbours // 2)
        return piece * self.columns + 2 * pair

    def fours(self, registers: RegisterTile) -> RegisterTile:
        """The accumulators in fours: two columns of the upper row, then of the lower.

        The instruction has for all `columns` those of the upper row, then those of the lower.
        """
        own = self.neighbours
        order = [own * lower + pair + odd for pair in range(0, own, 2) for lower in range(2) for odd in range(2)]
        return RegisterTile([registers[first + i] for first in range(0, len(registers), 2 * own) for i in order])


FRAGMENT_ROWS: Final = 16
"""Rows of a `QUAD_FRAGMENT`: what a warp holds of an m64 wgmma, and what one 16x256b load from tensor memory brings."""

QUAD_FRAGMENT: Final = AccumulatorFragment(rows=FRAGMENT_ROWS, columns=8, row_lanes=4, column_lanes=1)
"""Four lanes a row: thread t of a warp has in its i-th four registers the rows ``t / 4`` and ``+ 8`` and the columns
``8 i + 2 (t % 4)`` and ``+ 1`` (PTX ISA, wgmma D fragment; the 16x256b shape of tcgen05.ld is the same)."""


@dataclass(frozen=True)
class InterleavedFragment(AccumulatorFragment):
    """The same where an instruction has 8 columns, and those of the next ones lie between them.

    Registers come in fours already: two columns of the upper row, and of the lower.
    """

    def fours(self, registers: RegisterTile) -> RegisterTile:
        """The accumulators as they are."""
        return registers


INTERLEAVED_FRAGMENT: Final = InterleavedFragment(rows=FRAGMENT_ROWS, columns=INTERLEAVED, row_lanes=4, column_lanes=1)
"""Four lanes a row, each with 8 neighbours of 32 columns: instruction j of four multiplies the columns
``8 (c / 2) + 2 j + c % 2`` as its columns c (`interleaved_row`): thread t has ``8 (t % 4) + 2 j`` and ``+ 1``."""
