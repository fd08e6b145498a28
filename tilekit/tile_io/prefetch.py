"""What a kernel brings into L2 while the kernel before it in the stream ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.writer import Writer
from tilekit.tile_io.payload_loader import PayloadLoader
from tilekit.tiles.tile import Tile


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
