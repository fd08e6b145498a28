"""What attention's components say to each other: arrays of heads, tiles of queries, and a call of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilekit.annotations import call_checked
from tilekit.assembly.values import Value
from tilekit.dtypes import DType
from tilekit.tiles.call import Call

HeadArrayName = Literal["q", "k", "v", "o"]
"""As components call the queries, the keys, the values and the output."""


REPEATABLE = {"batch": 0, "head": 2}
"""Axes of queries, keys and values whose stride may be 0: every entry is then the first."""


@dataclass(frozen=True)
class HeadArray:
    """An array (batch, position, head, element), elements contiguous.

    Attributes
    ----------
    name
        The caller's argument.
    dtype
        Element type.
    shape, strides
        In elements; the last stride is 1.
    """

    name: str
    dtype: DType
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]

    @property
    def stored(self) -> tuple[int, int, int, int]:
        """Its extents in memory: 1 where all entries of an axis are the first."""
        batch, positions, heads, elements = self.shape
        return (
            batch if self.strides[0] else min(1, batch),
            positions,
            heads if self.strides[2] else min(1, heads),
            elements,
        )


@dataclass(frozen=True)
class HeadCall(Call):
    """One launch of attention: `m` queries and `k` keys a head, `n` elements of a head's values.

    Attributes
    ----------
    heads
        Queries, keys, values and output, by the names that components give them.
    """

    heads: Mapping[str, HeadArray] = field(default_factory=dict)


@dataclass(frozen=True)
class PackedSequence:
    """Where the queries and keys of one sequence lie among those of all, which lie behind each other; u32.

    Attributes
    ----------
    first_query, queries
        Its first query, and how many it has.
    first_key, keys
        Likewise.
    """

    first_query: Value
    queries: Value
    first_key: Value
    keys: Value


@call_checked
@dataclass(frozen=True)
class HeadTile:
    """Queries of one head.

    Attributes
    ----------
    row
        The first query, of its batch entry or sequence.
    head, kv_head, batch
        Whose queries they are, and whose keys and values they attend to; u32. Of packed heads `head` is the group.
    share
        Which of the tile's shares of the keys, where there are several.
    number
        Of the tile, shares aside; where there are several.
    more
        Says, where the order can tell a reader, whether this CTA has another tile behind: a predicate.
    sequence
        Whose queries they are where sequences are packed into one batch entry; None where each is one.
    """

    row: Value
    head: Value
    kv_head: Value
    batch: Value
    share: Value | None = None
    number: Value | None = None
    more: Callable[[], Value] | None = None
    sequence: PackedSequence | None = None

    @property
    def position(self) -> Value:
        """The first query, as arrays count positions."""
        return self.row if self.sequence is None else self.row + self.sequence.first_query
