"""Which scores of a warpgroup's rows a thread has in its registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.values import Value


@dataclass(frozen=True)
class ScoreLayout:
    """How scores lie in registers.

    Attributes
    ----------
    rows
        Rows of which a thread holds scores.
    apart
        How far those are from each other.
    sharing
        What a lane's number differs by from those that share its rows, bits of it.
    group_rows
        Rows of a warpgroup, an equal part each warp's.
    row_of, column_of
        Of register i: which of the thread's rows, and the column, from the thread's first on.
    first_row, first_column
        A lane's, from its warp's on.
    """

    rows: int
    apart: int
    sharing: tuple[int, ...]
    group_rows: int
    row_of: Callable[[int], int]
    column_of: Callable[[int], int]
    first_row: Callable[[Value], Value]
    first_column: Callable[[Value], Value | int]


QUADS = ScoreLayout(
    rows=2,
    apart=8,
    sharing=(1, 2),
    group_rows=64,
    row_of=lambda index: index // 2 % 2,
    column_of=lambda index: index // 4 * 8 + index % 2,
    first_row=lambda lane: lane >> 2,
    first_column=lambda lane: (lane & 3) * 2,
)
"""Accumulators of ``wgmma``: rows r and r + 8 of the warp's 16, each shared by four neighbouring lanes."""

LANES = ScoreLayout(
    rows=1,
    apart=32,
    sharing=(),
    group_rows=128,
    row_of=lambda index: 0,
    column_of=lambda index: index,
    first_row=lambda lane: lane,
    first_column=lambda lane: 0,
)
"""Lanes of tensor memory: each thread has one row, all of it."""
