"""What a kernel brings into L2 before it is loaded: as the kernel ahead ends, and all along a tile."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.payload_loader import (
    BoundTileLoader,
    PayloadLoader,
    PrefetchedCopies,
    TileLoader,
    require_prefetch,
)
from tilekit.tiles.stage import AsyncWriter, Stage
from tilekit.tiles.tile import Side, Tile


class FirstTile(Protocol):
    """A scheduler that knows before the kernel ahead is complete where a CTA begins."""

    def first(self, w: Writer) -> Tile:
        """Where a CTA begins."""


@dataclass(frozen=True)
class L2Prefetch:
    """The first k-blocks of one operand that this CTA will load, brought into L2.

    Of weights, which the kernel ahead does not write; of anything else it would be right as well (L2 is where writes of
    other SMs land), and useless.

    Attributes
    ----------
    scheduler, loader
        The kernel's: what comes first, and how it is loaded.
    operand
        The name of its tile: of one that is loaded by TMA.
    blocks
        How many k-blocks.
    k_block
        Elements of K in one.
    """

    scheduler: FirstTile
    loader: PayloadLoader
    operand: str
    blocks: int
    k_block: int

    def issue(self, w: Writer) -> None:
        """Start the copies; one thread.

        Blocks behind the CTA's range of K are left out: the copy engine takes 2 us to find that a box of 256 by 32
        elements lies outside of its tensor (6x4176x320 on an H200: 4.7 us for 2.4).
        """
        tile = self.scheduler.first(w)
        copies = self.loader.tile_at(w, self.operand, tile)
        copies.prefetch(w, tile.k_first)
        for block in range(1, self.blocks):
            k = tile.k_first + block * self.k_block
            with w.when(tile.k_end > k):
                copies.prefetch(w, k)


@dataclass(frozen=True)
class L2Ahead:
    """A `TileLoader` that brings into L2, with each k-block that it loads, a later one.

    A ring hides as much of DRAM's latency as its stages hold; behind it L2 holds what comes next. For an operand that
    one CTA reads, or few: weights under few rows.

    Attributes
    ----------
    loader
        Loads the tile; one that `prefetches`.
    elements
        Of K: how much later.

    Raises
    ------
    TraceError
        ``TK-TRACE-012`` for a loader that cannot.
    """

    loader: TileLoader
    elements: int

    def __post_init__(self) -> None:
        require_prefetch(self.loader, "l2_ahead=0")

    @property
    def name(self) -> str:
        """Of the tile."""
        return self.loader.name

    @property
    def prefetches(self) -> bool:
        """Whether its copies can bring a tile into L2 alone."""
        return self.loader.prefetches

    @property
    def side(self) -> Side | None:
        """Along what of the output it goes, where the loader says."""
        return getattr(self.loader, "side", None)

    @property
    def brings(self) -> int | None:
        """Bytes that the copy engine brings to a stage; None where the loader does not say."""
        return getattr(self.loader, "brings", None)

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""
        self.loader.prefetch(w)

    def bind(self, w: Writer, stages: SharedArray) -> _BoundAhead:
        """Prepare addresses of the tile's images in `stages`; once a role."""
        return _BoundAhead(self.loader.bind(w, stages), self.elements)


@dataclass(frozen=True)
class _BoundAhead:
    loader: BoundTileLoader
    elements: int

    @property
    def writer(self) -> AsyncWriter | None:
        return self.loader.writer

    def at(self, w: Writer, tile: Tile) -> _CopiesAhead:
        return _CopiesAhead(cast(PrefetchedCopies, self.loader.at(w, tile)), self.elements, tile.k_end)


@dataclass(frozen=True)
class _CopiesAhead:
    copies: PrefetchedCopies
    elements: int
    k_end: Value

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        self.copies.load(w, stage, k)
        later = k + self.elements
        with w.when(stage.leader) if stage.leader is not None else nullcontext(), w.when(self.k_end > later):
            self.copies.prefetch(w, later)

    def prefetch(self, w: Writer, k: Value) -> None:
        self.copies.prefetch(w, k)
