"""Payloads: what one stage of a pipeline holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tilekit.assembly.shared import SharedArray, SharedMemory
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.operand import OperandTile

TILE_ALIGNMENT = 1024
"""Bytes of the swizzle atom: 8 rows of 128."""


@dataclass(frozen=True)
class Stage:
    """One stage in the hands of a role.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    full
        Address of the barrier that the stage's bytes count on.
    leader
        In a role of many threads: the one that starts what one thread does for all, a predicate.
    """

    index: Value
    full: Value
    leader: Value | None = None


@dataclass
class HeldStage:
    """A stage whose asynchronous reads are done, until it is given back.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    full
        Address of the barrier that the stage's bytes counted on.
    """

    index: Value
    full: Value
    _give_back: Callable[[], None] | None

    def release(self) -> None:
        """Give the stage back; what its holder does not give back earlier goes when the k-block ends."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


Promote = Callable[[Writer, HeldStage], None]
"""What accumulators do with a k-block whose reads are done, while its stage is held."""


class StageTile(Protocol):
    """The image of one tile in a stage."""

    @property
    def name(self) -> str:
        """Of the tile, and of its images in maps and reports."""

    @property
    def bytes(self) -> int:
        """Of the image."""


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
        """Bytes of one stage, which are also the bytes its full barrier expects."""
        return sum(tile.bytes for tile in self.tiles)

    def allocate(self, shared: SharedMemory, name: str, stages: int) -> dict[str, SharedArray]:
        """Reserve `stages` copies of every tile; the swizzle atom of 1024 bytes sets the alignment."""
        return {
            tile.name: shared.allocate(
                f"{name}.{tile.name}", size=tile.bytes, count=stages, alignment=TILE_ALIGNMENT, kind="tile"
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

    def allocate(self, shared: SharedMemory, name: str, stages: int) -> dict[str, SharedArray]:
        """Reserve `stages` copies of both tiles."""
        if not self.adjacent:
            return super().allocate(shared, name, stages)
        both = shared.allocate(name, size=self.stage_bytes, count=stages, alignment=TILE_ALIGNMENT, kind="tile")
        return {
            tile.name: replace(both, name=f"{name}.{tile.name}", offset=both.offset + before)
            for tile, before in ((self.a, 0), (self.b, self.a.bytes))
        }
