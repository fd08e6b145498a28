"""What threads hold of rows and columns in a Python epilogue: the values of their own, and their totals so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.assembly.values import Operand, Value
from tilekit.epilogue.column_totals import ColumnTotal
from tilekit.epilogue.row_sums import RowTotals
from tilekit.epilogue.vectors import Pair


@dataclass(frozen=True)
class Line:
    """A row or a column in a thread's hands.

    Attributes
    ----------
    values
        By the places of their steps.
    index
        Which one.
    inside
        Whether the output has it.
    starts
        Of a row: its address in each matrix that threads reach, by the matrix's name.
    """

    values: dict[int, Value]
    index: Value
    inside: Value | None = None
    starts: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Two rows, and their totals."""

    lines: tuple[Line, Line]
    batch: Operand
    totals: dict[int, RowTotals]


@dataclass(frozen=True)
class Columns:
    """Two columns, and the pieces of their totals."""

    lines: tuple[Line, Line]
    totals: dict[int, ColumnTotal]


@dataclass(frozen=True)
class Spread:
    """What the lanes of a warp hold of columns.

    Attributes
    ----------
    values
        By the places of steps.
    batch
        The matrix.
    room
        How many columns the output has from this lane's first one on, where that is asked.
    """

    values: dict[int, Pair]
    batch: Operand
    room: Value | None
