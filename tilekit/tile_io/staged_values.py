"""TileIO of single values: f32 in global memory that go along with K, which the copy engine brings into the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import gcd
from typing import Annotated

from tilekit.assembly.fit import component, require_call
from tilekit.assembly.legal import Count, Whole, require_symbol
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import F32
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.tile_io.ahead import require_batches, require_block, require_offsets
from tilekit.tile_io.tma import MAX_BOX, SHARED_ALIGNMENT, TMA_ALIGNMENT, TmaBox
from tilekit.tiles.call import Call
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

UNIT = TMA_ALIGNMENT // F32.bytes
"""Values that a box has at least along its contiguous dimension, and that it begins at a multiple of."""


@component
@dataclass(frozen=True)
class ValueTile:
    """The image of a k-block's values in a stage.

    Attributes
    ----------
    name
        Of the array in global memory.
    values
        Those of a k-block, for rows or columns of the tile.
    along_k
        Whether values that lie behind each other go along with K: each then comes in its place among `UNIT`.
    """

    name: str
    values: Count
    along_k: bool

    def __post_init__(self) -> None:
        require_symbol("ValueTile", "name", self.name)

    @property
    def bytes(self) -> int:
        """Of the image."""
        return self.values * self.step

    @property
    def copied(self) -> int:
        """How many values one copy brings."""
        return self.values if self.values <= MAX_BOX else gcd(self.values, MAX_BOX)

    @property
    def step(self) -> int:
        """Bytes from one value to the next."""
        return F32.bytes * (UNIT if self.along_k else 1)

    @property
    def alignment(self) -> int:
        """Of the image."""
        return SHARED_ALIGNMENT


@component
class ValueLoader:
    """Loads the values of each k-block by TMA.

    Parameters
    ----------
    w, tile
        The writer, and the image to fill; the values' tensor map becomes a kernel parameter.
    block
        Elements of K that share a value.
    first
        Which of the values is a tile's first one.
    batched
        Whether each batch, or group, has its own.
    """

    prefetches = False

    def __init__(
        self, w: Writer, tile: ValueTile, *, block: Count, first: Callable[[Tile], Value], batched: bool
    ) -> None:
        require_call("ValueLoader", "first", first, "tile")
        self.name, self.tile, self.block, self.first, self.batched = tile.name, tile, block, first, batched
        extents = (UNIT, tile.copied) if tile.along_k else (tile.copied, 1)
        box = TmaBox((*extents, 1) if batched else extents, None)

        def described(call: Call) -> TensorMap:
            require_block("ValueLoader", tile.name, block, call)
            require_batches("ValueLoader", "batched", batched, tile.name, call)
            return box.describe(call, tile.name)

        self.map = w.tensor_map(f"{tile.name}_map", described)

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundValueLoader:
        """Prepare the addresses; once a role."""
        return BoundValueLoader(w, self, stages)


class BoundValueLoader:
    """A `ValueLoader` in a role, turned to a tile."""

    writer = None

    def __init__(self, w: Writer, loader: ValueLoader, stages: SharedArray) -> None:
        self._loader, self._stride, self._base = loader, stages.stride, w.shared_base + stages.offset

    def at(self, w: Writer, tile: Tile) -> BoundValueLoader:
        """Turn to an output tile."""
        self._first, self._batch = self._loader.first(tile), tile.batch
        return self

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start loading the values of the k-block that begins at element `k`."""
        loader, tile, full = self._loader, self._loader.tile, stage.counting("the ValueLoader")
        load, more = (w.ptx.tma.load_3d, {"z": self._batch}) if loader.batched else (w.ptx.tma.load_2d, {})
        with w.when(stage.leader) if stage.leader is not None else nullcontext():
            for done in range(0, tile.values, tile.copied):
                block, first = k // loader.block, self._first + done
                x, y = (block // UNIT * UNIT, first) if tile.along_k else (first, block)
                target = self._base + (stage.index * self._stride + tile.step * done)
                load(dst=target, map=loader.map, full=full, x=x, y=y, **more)


@component
class StagedValues:
    """A thread's values of the k-block in a stage.

    Parameters
    ----------
    place
        Where they lie.
    block
        Elements of K that share a value, where those that lie behind each other go along with K; else 0.
    even
        Whether a thread's first value is an even one of the image, so that two neighbours may be read at once.
    """

    def __init__(self, place: SharedArray, *, block: Annotated[int, Whole(0)] = 0, even: bool = True) -> None:
        self._place, self._block, self._even = place, block, even

    def turn(self, w: Writer, tile: Tile) -> None:
        """Turn to an output tile."""
        self._k = w.variable(U32, tile.k_first // self._block, "k_block") if self._block else None

    def take(self, w: Writer, stage: Stage, first: Value, offsets: Sequence[int]) -> list[Value]:
        """Read those of the next k-block at `first` and `offsets` behind it, two that are neighbours at once."""
        require_offsets("StagedValues", offsets)
        at = w.shared_base + stage.index * self._place.stride + self._place.offset
        if self._k is None:
            at = at + first * F32.bytes
            return list(self._rows(w, at, offsets))
        at = at + (first * UNIT + self._k % UNIT) * F32.bytes
        self._k.assign(self._k + 1)
        step = F32.bytes * UNIT
        return [w.isa.memory.load_shared_f32(address=at + step * offset) for offset in offsets]

    def _rows(self, w: Writer, at: Value, offsets: Sequence[int]) -> Iterator[Value]:
        pairs = self._even and offsets[1:2] == [offsets[0] + 1]
        for offset in offsets[:: 2 if pairs else 1]:
            if pairs:
                yield from w.isa.memory.load_shared_f32x2(address=at + F32.bytes * offset)
            else:
                yield w.isa.memory.load_shared_f32(address=at + F32.bytes * offset)
