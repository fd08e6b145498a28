"""TileIO of caches: keys and values of which every batch entry has its own number in use, perhaps in blocks of a table.

What a cache holds beyond an entry's keys may be anything, and may be no number: it is never read of values, whose
weights of 0 would not hide it, and is masked of keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import gcd
from typing import cast

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_io.heads import KeyPlaces, describe_heads
from tilekit.tiles.call import Call, fits
from tilekit.tiles.heads import HeadArrayName, HeadCall
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

_PAIR = 2
"""Rows of the boxes in which the last keys of an entry come: two of 64 bytes are what a box is aligned to."""


@component
class BlockTable:
    """Which block of the cache has which keys of a batch entry: (batch, block of the entry), s32 in device memory.

    Parameters
    ----------
    w
        The writer; the table's address and extents are kernel parameters.
    block
        Keys of a block of the cache.
    """

    def __init__(self, w: Writer, block: Count) -> None:
        self.block = block
        self.address = w.parameter("block_table", GMEM, lambda call: call.address("block_table"))
        self.pitch = w.parameter("table_pitch", U32, lambda call: _whole(call, "table_pitch"))
        self.columns = w.parameter("table_columns", U32, lambda call: _whole(call, "table_columns"))

    def entry(self, w: Writer, batch: Value, row: Value) -> Value:
        """What the table says of the block with key `row`; 0 behind its end."""
        column = row // self.block
        place = self.address + w.widen_multiply(batch, self.pitch) * 4 + w.widen_multiply(column, 4)
        found: Value = w.isa.memory.load_global_u32(address=place.retyped(GMEM), valid=column < self.columns)
        return found


@component
class CacheLoader:
    """Loads tiles of one head's positions from a cache.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor maps as kernel parameters.
    tile
        The image to fill, positions by elements.
    array
        What the call names the array.
    table
        Which blocks an entry's keys are in; None where entry b's are those of index b.
    zeros
        Whether what is not in use must be zero in the tile: that of values.
    ahead
        Boxes of a stage for which entries of the table are read ahead of the wait for it, if it has no more.
    one_batch, one_head
        Whether all batch entries, or all heads, are the first, in memory too.
    """

    def __init__(
        self,
        w: Writer,
        tile: OperandTile,
        array: HeadArrayName,
        table: BlockTable | None,
        *,
        zeros: bool,
        ahead: Count = 4,
        one_batch: bool = False,
        one_head: bool = False,
    ) -> None:
        self.tile, self.table, self.zeros, self.ahead = tile, table, zeros, ahead
        self.one_batch, self.one_head = one_batch, one_head
        self.rows = rows = tile.rows if table is None else gcd(tile.rows, table.block)
        self.map = w.tensor_map(f"{array}_map", lambda call: describe_heads(call, array, tile, rows))
        self.blocks = w.parameter(f"{array}_blocks", U32, partial(_blocks, array))
        if zeros:
            self.pairs = w.tensor_map(f"{array}_pairs", lambda call: describe_heads(call, array, tile, _PAIR))
            self.last = w.tensor_map(f"{array}_last", lambda call: describe_heads(call, array, tile, _PAIR, alone=True))

    @property
    def bytes(self) -> int:
        """That a load counts on its barrier."""
        return self.tile.transfer_bytes

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor maps close."""
        for tensor_map in (self.map, self.pairs, self.last) if self.zeros else (self.map,):
            w.ptx.tma.prefetch_map(map=tensor_map)

    def find(self, w: Writer, *, row: Value, before: int, end: Value, first: Value | int, batch: Value) -> KeyPlaces:
        """Ask the table where the keys lie that are `before` so many ahead of `row`, ahead of the wait for a stage.

        There are `end` of them, and the first is `first` among the positions of the array. Those ahead of a block with
        keys in use are all in use.
        """
        row, end = row - before + first, end + first
        asked = self._parts if self._parts <= self.ahead else 0
        entries = self._entries(w, batch, row, asked)
        return KeyPlaces(row, end, batch, entries=entries, whole=before > 0)

    def _entries(self, w: Writer, batch: Value, row: Value, boxes: int) -> tuple[Value, ...]:
        """What the table says of so many boxes from key `row` on, where there is one."""
        return tuple(self.table.entry(w, batch, row + part * self.rows) for part in range(boxes) if self.table)

    def load_keys(self, w: Writer, place: SharedArray, stage: Stage, *, places: KeyPlaces, head: Value) -> None:
        """Start the copies of a tile into a stage of `place`; their bytes count on ``stage.full``."""
        target = w.shared_base + place.offset + stage.index * place.stride
        full = stage.counting(f"the CacheLoader of {self.tile.name!r}")
        box = _Boxes(w, self, full, 0 if self.one_head else head)
        if places.whole:
            self._load_whole(w, box, target, places)
            return
        last = places.row + self.tile.rows
        with w.when(last <= places.end):
            self._load_whole(w, box, target, places)
        with w.when(last > places.end):
            if self._parts == 1:
                self._load_end(w, box, target, places, 0)
            else:
                for part in w.range(self._parts, name="box"):
                    self._load_end(w, box, target, places, part)

    def _load_whole(self, w: Writer, box: _Boxes, target: Value, places: KeyPlaces) -> None:
        """Start the copies of a tile whose keys are all in use."""
        if self._parts <= self.ahead:
            self._load_boxes(w, box, target, places, self._parts)
            return
        # As many entries at a time as registers are for; the table is in L1.
        together = max(count for count in range(1, self.ahead + 1) if self._parts % count == 0)
        for first in w.range(self._parts, step=together, name="box"):
            row = places.row + first * self.rows
            some = replace(places, row=row, entries=self._entries(w, places.batch, row, together))
            self._load_boxes(w, box, target + first * self.tile.offset_of(self.rows), some, together)

    def _load_boxes(self, w: Writer, box: _Boxes, target: Value, places: KeyPlaces, count: int) -> None:
        """Start the copies of so many boxes."""
        for part in range(count):
            block = self._known(w, places.entries[part]) if self.table else self._entry(places)
            goal = target + self.tile.offset_of(part * self.rows)
            box.whole(goal, self._within(places.row + part * self.rows), block)

    def _load_end(self, w: Writer, box: _Boxes, target: Value, places: KeyPlaces, part: Value | int) -> None:
        """Start the copies of a box in, or behind, which the keys in use end."""
        end, rows = places.end, self.rows
        first = places.row + part * rows
        block = self._known(w, self.table.entry(w, places.batch, first)) if self.table else self._entry(places)
        goal, within = target + part * self.tile.offset_of(rows), self._within(first)
        if not self.zeros:
            box.whole(goal, within, w.select(first < end, block, self.blocks))
            return
        split = w.select(first < end, 1, 0) + w.select(end < first + rows, 1, 0)
        with w.when(split < 2):
            box.whole(goal, within, w.select(first < end, block, self.blocks))
        with w.when(split == 2):
            for pair in w.range(rows // _PAIR, name="pair"):
                at = first + pair * _PAIR
                there = w.select(at < end, block, self.blocks)
                step = within + pair * _PAIR
                with w.when(at + 1 == end):
                    box.last(goal + pair * self.tile.offset_of(_PAIR), step, there)
                with w.when(at + 1 != end):
                    box.pair(goal + pair * self.tile.offset_of(_PAIR), step, there)

    @property
    def _parts(self) -> int:
        """Boxes of a tile."""
        return self.tile.rows // self.rows

    def _entry(self, places: KeyPlaces) -> Value | int:
        """The block of an entry, where entry b's keys are those of index b."""
        return 0 if self.one_batch else places.batch

    def _known(self, w: Writer, entry: Value) -> Value:
        """A block of the cache, whatever the table says."""
        return w.minimum(entry, self.blocks - 1)

    def _within(self, row: Value) -> Value:
        return row if self.table is None else row - row // self.table.block * self.table.block


class _Boxes:
    """Copies of boxes of one head's tile into a stage."""

    def __init__(self, w: Writer, loader: CacheLoader, full: Value, head: Value | int) -> None:
        self._w, self._loader, self._full, self._head = w, loader, full, head

    def whole(self, goal: Value, row: Value, block: Value | int) -> None:
        """As many rows as a block and a tile have in common."""
        self._box(self._loader.map, goal, row, block)

    def pair(self, goal: Value, row: Value, block: Value | int) -> None:
        """Two rows."""
        self._box(self._loader.pairs, goal, row, block)

    def last(self, goal: Value, row: Value, block: Value | int) -> None:
        """One row, and one of zeros."""
        w, tile = self._w, self._loader.tile
        for part in range(tile.slices):
            w.ptx.tma.load_5d(
                dst=goal + part * tile.slice_bytes,
                map=self._loader.last,
                x=part * tile.slice_k,
                y=0,
                z=row,
                u=self._head,
                v=block,
                full=self._full,
            )

    def _box(self, tensor_map: Value, goal: Value, row: Value, block: Value | int) -> None:
        w, tile = self._w, self._loader.tile
        for part in range(tile.slices):
            w.ptx.tma.load_4d(
                dst=goal + part * tile.slice_bytes,
                map=tensor_map,
                x=part * tile.slice_k,
                y=row,
                z=self._head,
                u=block,
                full=self._full,
            )


def _blocks(array: HeadArrayName, call: Call) -> int:
    return fits("blocks", cast(HeadCall, call).heads[array].stored[0], 31, "TK-ATT-004")


def _whole(call: Call, name: str) -> int:
    return fits(name, int(call.number(name)), 31, "TK-ATT-004")
