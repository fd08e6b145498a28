"""Payloads: what one stage of a pipeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tilekit.assembly.shared import SharedArray, SharedMemory
from tilekit.tiles.operand import OperandTile


class StageTile(Protocol):
    """The image of one tile in a stage."""

    @property
    def name(self) -> str:
        """Of the tile, and of its images in maps and reports."""

    @property
    def bytes(self) -> int:
        """Of the image."""

    @property
    def alignment(self) -> int:
        """What the image's address is a multiple of."""


class Payload:
    """Any tiles.

    Parameters
    ----------
    tiles
        Of a stage, in the order they lie in shared memory.
    k
        Elements of K in a stage.
    """

    def __init__(self, tiles: Sequence[StageTile], *, k: int) -> None:
        self.tiles = tuple(tiles)
        self.k = k

    @property
    def stage_bytes(self) -> int:
        """Bytes of the images of one stage."""
        return sum(tile.bytes for tile in self.tiles)

    def allocate(self, shared: SharedMemory, name: str, stages: int) -> dict[str, SharedArray]:
        """Reserve `stages` copies of every tile at what its image's address is a multiple of."""
        return {
            tile.name: shared.allocate(
                f"{name}.{tile.name}", size=tile.bytes, count=stages, alignment=tile.alignment, kind="tile"
            )
            for tile in self.tiles
        }


class StandardPayload(Payload):
    """A tile of A and a tile of B.

    Parameters
    ----------
    a, b
        The operand tiles of one stage.
    adjacent
        Whether B lies right behind A in a stage, for an instruction that reads more rows than A has: those that come
        next are B's, which are as complete as A's when the stage is full.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, adjacent: bool = False) -> None:
        super().__init__((a, b), k=a.k)
        self.a = a
        self.b = b
        self.adjacent = adjacent

    @property
    def transfer_bytes(self) -> int:
        """Bytes of one stage that count on its barrier where the copy engine loads both tiles."""
        return self.a.transfer_bytes + self.b.transfer_bytes

    def allocate(self, shared: SharedMemory, name: str, stages: int) -> dict[str, SharedArray]:
        """Reserve `stages` copies of both tiles."""
        if not self.adjacent:
            return super().allocate(shared, name, stages)
        alignment = max(tile.alignment for tile in self.tiles)
        both = shared.allocate(name, size=self.stage_bytes, count=stages, alignment=alignment, kind="tile")
        return {
            tile.name: replace(both, name=f"{name}.{tile.name}", offset=both.offset + before)
            for tile, before in ((self.a, 0), (self.b, self.a.bytes))
        }
