"""One output tile, or a share of one: what a scheduler hands to every role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilekit.assembly.values import Operand, Value

Side = Literal["rows", "columns"]
"""Of an output tile: what the rows of an operand, or of accumulators, go along with."""


Groups = Literal["ends", "counts"]
"""How groups of rows are told: by where each ends that lie behind each other, or by how many rows each has of so many.
"""


@dataclass(frozen=True)
class Share:
    """What a piece of work knows where several share a tile's sum.

    Attributes
    ----------
    slot
        A place in the workspace, u32.
    stores
        Whether this one comes last and stores the tile, a predicate.
    """

    slot: Value
    stores: Value


@dataclass(frozen=True)
class SplitShare(Share):
    """One of the shares that a tile's range of K is split into; the last stores the tile.

    Attributes
    ----------
    others
        Shares before this one, u32.
    first
        The slot of the first of them.
    step
        How far the slots of a tile's shares are apart, u32.
    """

    others: Value
    first: Value
    step: Value

    def before(self, other: Value) -> Value:
        """The slot of share `other`, from 0 on."""
        return self.first + other * self.step


@dataclass(frozen=True)
class Tile:
    """One output tile of this CTA, or a share of one.

    Attributes
    ----------
    row, column, batch
        Its first row and column in elements, and its batch index.
    k_first, k_end
        Its elements of K; `k_end` need not be a whole number of k-blocks away.
    share
        Where the sum is shared.
    row_first, row_end
        Where rows of the output come in groups: the first of the tile's group, and the first that is none of it. Of a
        kernel that computes the transpose these lie along the tile's columns.
    """

    row: Value
    column: Value
    batch: Operand
    k_first: Operand
    k_end: Value
    share: Share | None = None
    row_first: Value | None = None
    row_end: Value | None = None

    def k_blocks(self, k: int) -> Value:
        """Blocks of `k` elements in its range of K."""
        return (self.k_end - self.k_first + (k - 1)) // k
