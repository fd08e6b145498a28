"""The loads of attention's tiles: queries, then a block of keys ahead of each block of values."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.tile_io.heads import GroupLoader, HeadLoader
from tilekit.tile_op.key_range import KeyBlocks
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tiles.heads import HeadTile


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
        loaders: tuple[HeadLoader | GroupLoader, HeadLoader, HeadLoader],
        block_keys: int,
    ) -> None:
        self._w = w
        *self._queries, self._keys, self._values = (ring.producer(w) for ring in (*queries, keys, values))
        *self._query_places, self._key_place, self._value_place = map(only_place, (*queries, keys, values))
        self._loaders, self._block_keys = loaders, block_keys

    def load(self, tile: HeadTile, blocks: KeyBlocks) -> None:
        """Start the copies of a tile."""
        w, block_keys = self._w, self._block_keys
        load_query, load_key, load_value = self._loaders
        own = {"head": tile.kv_head, "batch": tile.batch}
        row = w.variable(U32, blocks.last * block_keys, "key")
        for part, (ring, place) in enumerate(zip(self._queries, self._query_places, strict=True)):
            with ring.acquire() as stage:
                first = tile.row + part * load_query.tile.rows if part else tile.row
                load_query.load(w, place, stage, row=first, head=tile.head, batch=tile.batch)
        with self._keys.acquire() as stage:
            load_key.load(w, self._key_place, stage, row=row, **own)
        for _ in w.range(blocks.count, start=1, name="block"):
            with self._keys.acquire() as stage:
                load_key.load(w, self._key_place, stage, row=row - block_keys, **own)
            with self._values.acquire() as stage:
                load_value.load(w, self._value_place, stage, row=row, **own)
            row.assign(row - block_keys)
        with self._values.acquire() as stage:
            load_value.load(w, self._value_place, stage, row=row, **own)

    def finish(self) -> None:
        """Wait for stages whose release may come late."""
        for ring in (*self._queries, self._keys, self._values):
            ring.finish()


def only_place(ring: TilePipeline) -> SharedArray:
    """Where the one tile of a ring's stages lies."""
    (place,) = ring.tiles.values()
    return place
