"""Payloads: what one stage of a pipeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import Count, illegal
from tilekit.assembly.shared import SharedArray, SharedDeclaration, SharedMemory
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


@component
class Payload:
    """Any tiles.

    Parameters
    ----------
    tiles
        Of a stage, in the order they lie in shared memory.
    k
        Elements of K in a stage: the k-block of its operands' tiles, or of one of them.
    """

    def __init__(self, tiles: Sequence[StageTile], *, k: Count) -> None:
        names = [tile.name for tile in tiles]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise illegal("Payload", "tiles", names, "tiles of different names", f"{name}{index}")
        blocks = {tile.name: tile.k for tile in tiles if isinstance(tile, OperandTile)}
        if blocks and k not in blocks.values():
            legal = "the k-block of its tiles, " + ", ".join(f"{block} in {name!r}" for name, block in blocks.items())
            raise illegal("Payload", "k", k, legal, min(blocks.values(), key=lambda block: abs(block - k)))
        self.tiles = tuple(tiles)
        self.k = k

    @property
    def stage_bytes(self) -> int:
        """Bytes of the images of one stage."""
        return sum(tile.bytes for tile in self.tiles)

    @property
    def transfer_bytes(self) -> int:
        """Bytes of one stage that count on its barrier where the copy engine loads all tiles."""
        return sum(tile.transfer_bytes if isinstance(tile, OperandTile) else tile.bytes for tile in self.tiles)

    def declared(self, name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of `stages` copies of every tile, at what its image's address is a multiple of."""
        return tuple(
            SharedDeclaration(f"{name}.{tile.name}", tile.bytes, stages, tile.alignment, "tile") for tile in self.tiles
        )

    @checked
    def allocate(self, shared: SharedMemory, name: str, stages: Count) -> dict[str, SharedArray]:
        """Reserve `stages` copies of every tile."""
        places = map(shared.place, self.declared(name, stages))
        return {tile.name: place for tile, place in zip(self.tiles, places, strict=True)}


@component
class StandardPayload(Payload):
    """A tile of A and a tile of B, and perhaps others.

    Parameters
    ----------
    a, b
        The operand tiles of one stage.
    adjacent
        Whether B lies right behind A in a stage, for an instruction that reads more rows than A has: those that come
        next are B's, which are as complete as A's when the stage is full.
    further
        Tiles beside the two, behind them.
    """

    def __init__(
        self, a: OperandTile, b: OperandTile, *, adjacent: bool = False, further: Sequence[StageTile] = ()
    ) -> None:
        if a.k != b.k:
            legal = f"a tile with the k-block of {a.name!r}, {a.k} elements; {b.name!r} has {b.k}"
            slices = a.k // b.slice_k
            raise illegal("StandardPayload", "b", b, legal, f"slices={slices}" if slices * b.slice_k == a.k else None)
        super().__init__((a, b, *further), k=a.k)
        self.a = a
        self.b = b
        self.adjacent = adjacent

    def declared(self, name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of `stages` copies of every tile; adjacent ones are one object."""
        every = super().declared(name, stages)
        if not self.adjacent:
            return every
        alignment, size = max(self.a.alignment, self.b.alignment), self.a.bytes + self.b.bytes
        return SharedDeclaration(name, size, stages, alignment, "tile"), *every[2:]

    @checked
    def allocate(self, shared: SharedMemory, name: str, stages: Count) -> dict[str, SharedArray]:
        """Reserve `stages` copies of every tile."""
        if not self.adjacent:
            return super().allocate(shared, name, stages)
        both, *others = map(shared.place, self.declared(name, stages))
        found = {
            tile.name: replace(both, name=f"{name}.{tile.name}", offset=both.offset + before)
            for tile, before in ((self.a, 0), (self.b, self.a.bytes))
        }
        return found | {tile.name: place for tile, place in zip(self.tiles[2:], others, strict=True)}
