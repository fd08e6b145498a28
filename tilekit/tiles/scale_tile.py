"""The image of the scales of an operand's tile: a power of two for each 32 elements of a row, four in a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import require_protocol
from tilekit.assembly.legal import require_symbol
from tilekit.tiles.operand import OperandTile

BLOCK: Final = 32
"""Elements of a row with a scale of their own."""

WORD_BYTES: Final = 4
"""Scales of a word: those of 128 elements."""


@call_checked
@dataclass(frozen=True)
class ScaleTile:
    """Scales of the rows of a tile, one k-block deep: words of all rows, those of the next 128 elements behind them.

    Attributes
    ----------
    name
        Of the scales, as callers know them.
    of
        The tile that they are of; two e2m1 are an element of 8 bits of it.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a k-block that is not whole words of scales, ``TK-FIT-001`` for what is no tile.
    """

    name: str
    of: OperandTile

    def __post_init__(self) -> None:
        require_symbol("ScaleTile", "name", self.name)
        require_protocol("ScaleTile", "of", self.of, OperandTile)
        if self.of.k % (self.covered * WORD_BYTES):
            raise TraceError(
                f"tile {self.of.name!r} holds {self.of.k} elements of K, and a word of its scales {self.name!r} is of "
                f"{self.covered * WORD_BYTES}; nearest: slices={self.of.slices + 1}",
                code="TK-TRACE-017",
            )

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.of.rows

    @property
    def covered(self) -> int:
        """Elements of the tile, as it counts them, that a scale is of."""
        return BLOCK // 2 if self.of.dtype.name == "e2m1x2" else BLOCK

    @property
    def words(self) -> int:
        """Words of a row."""
        return self.of.k // (self.covered * WORD_BYTES)

    @property
    def bytes(self) -> int:
        """Of the image."""
        return self.words * self.rows * WORD_BYTES

    @property
    def alignment(self) -> int:
        """What the image's address is a multiple of."""
        return 16

    def offset(self, word: int, row: int) -> int:
        """Bytes of the image before a row's word."""
        return (word * self.rows + row) * WORD_BYTES
