"""Tiles for chips of several dies, each with an L2 of its own: neighbours of the raster fall to CTAs of one die.

CTA c of a grid runs on die ``c % dies`` (AMD's CDNA3 and CDNA4, 8 XCDs: workgroups go to them in turn).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


@dataclass(frozen=True)
class DieOrder:
    """Turns a number that CTAs take in turn into a tile of the raster: each die has a range of it.

    Of `total` numbers those with the same remainder by `dies` get neighbouring tiles, in their order; where `total` is
    no multiple, the first dies have one more.

    Attributes
    ----------
    dies
        Dies of the chip.
    """

    dies: int

    def tile(self, index: int, total: int) -> int:
        """Return the tile that number `index` of `total` stands for."""
        die = index % self.dies
        return die * (total // self.dies) + min(die, total % self.dies) + index // self.dies

    def place(self, w: Writer, index: Value, total: Value) -> Value:
        """The same on the device."""
        die = index % self.dies
        return die * (total // self.dies) + w.minimum(die, total % self.dies) + index // self.dies

    def clusters(self, wanted: int, tiles: int, resident: int) -> int:
        """Clusters to launch where `wanted` would do: a CTA that goes round stays with the same remainder."""
        if wanted >= tiles:
            return wanted
        rounded = -(-wanted // self.dies) * self.dies
        return rounded if rounded <= min(resident, tiles) else wanted
