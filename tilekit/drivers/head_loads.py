"""The loads of attention's tiles: queries, then a block of keys ahead of each block of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.heads import GroupLoader, HeadLoader, KeyLoader
from tilekit.tile_io.key_cache import CacheLoader
from tilekit.tile_op.key_range import KeyBlocks
from tilekit.tile_pipeline.ring import Producer, TilePipeline
from tilekit.tiles.heads import HeadTile

Loaders: TypeAlias = tuple[HeadLoader | GroupLoader, KeyLoader | CacheLoader, KeyLoader | CacheLoader]
"""What fills the rings of queries, keys and values."""


class HeadLoads:
    """A load role's rings, which it fills tile by tile, from the last block of keys to the first.

    Parameters
    ----------
    w
        The writer.
    queries
        A ring for each part of a tile's queries, one behind the other.
    keys, values
        The other rings.
    loaders
        What fills them, in this order.
    block_keys
        Keys of a block.
    """

    def __init__(
        self,
        w: Writer,
        queries: Sequence[TilePipeline],
        keys: TilePipeline,
        values: TilePipeline,
        loaders: Loaders,
        block_keys: int,
    ) -> None:
        self._w = w
        *self._queries, self._keys, self._values = (ring.producer(w) for ring in (*queries, keys, values))
        *self._query_places, self._key_place, self._value_place = map(only_place, (*queries, keys, values))
        self._loaders, self._block_keys = loaders, block_keys

    def load(self, tile: HeadTile, blocks: KeyBlocks) -> None:
        """Start the copies of a tile."""
        w, block_keys = self._w, self._block_keys
        load_query = self._loaders[0]
        row = w.variable(U32, blocks.last * block_keys, "key")
        for part, (ring, place) in enumerate(zip(self._queries, self._query_places, strict=True)):
            with ring.acquire() as stage:
                first = tile.position + part * load_query.tile.rows if part else tile.position
                load_query.load(w, place, stage, row=first, head=tile.head, batch=tile.batch)
        self._load_keys(row, tile, blocks)
        for _ in w.range(blocks.count, start=1, name="block"):
            self._load_keys(row, tile, blocks, before=block_keys)
            self._load_values(row, tile, blocks)
            row.assign(row - block_keys)
        self._load_values(row, tile, blocks)

    def _load_keys(self, row: Value, tile: HeadTile, blocks: KeyBlocks, before: int = 0) -> None:
        self._fill(self._keys, self._key_place, self._loaders[1], row, tile, blocks, before)

    def _load_values(self, row: Value, tile: HeadTile, blocks: KeyBlocks) -> None:
        self._fill(self._values, self._value_place, self._loaders[2], row, tile, blocks, 0)

    def _fill(
        self,
        ring: Producer,
        place: SharedArray,
        loader: KeyLoader | CacheLoader,
        row: Value,
        tile: HeadTile,
        blocks: KeyBlocks,
        before: int,
    ) -> None:
        """Start the copies of a block that is `before` so many keys ahead of `row`."""
        w = self._w
        limits = blocks.limits
        places = loader.find(w, row=row, before=before, end=limits.count, first=limits.first, batch=tile.batch)
        with ring.acquire() as stage:
            loader.load_keys(w, place, stage, places=places, head=tile.kv_head)

    def finish(self) -> None:
        """Wait for stages whose release may come late."""
        for ring in (*self._queries, self._keys, self._values):
            ring.finish()


def only_place(ring: TilePipeline) -> SharedArray:
    """Where the one tile of a ring's stages lies."""
    (place,) = ring.tiles.values()
    return place
