"""TileIO of heads: tiles of positions by elements of one head, in arrays (batch, position, head, element)."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U64
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.errors import ArgumentError
from tilekit.tile_io.tma import EVICT_FIRST, MAP_SWIZZLES, TMA_ALIGNMENT
from tilekit.tiles.call import Call
from tilekit.tiles.heads import HeadArrayName, HeadCall, HeadTile
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage


def describe_heads(call: Call, name: HeadArrayName, tile: OperandTile, rows: int, *, alone: bool = False) -> TensorMap:
    """The tensor map of an array of heads: boxes of `rows` positions by a slice of `tile`.

    Where a position stands `alone`, the map has one dimension more, of extent 1 and behind the elements: a box has one
    position, and rows of zeros behind it. What lies beyond the positions of a batch entry or the elements of a head is
    zero, and is not written.

    Raises
    ------
    ArgumentError
        ``TK-ATT-004`` for an array beyond the limits of tensor maps.
    """
    assert isinstance(call, HeadCall)
    array = call.heads[name]
    batch, positions, heads, elements = array.stored
    size = array.dtype.bytes
    row = -(-elements * size // TMA_ALIGNMENT) * TMA_ALIGNMENT
    # The stride of an extent of 1 means nothing, and may be anything.
    strides = [
        stride * size if extent > 1 else row
        for extent, stride in zip(
            (positions, heads, batch), (array.strides[1], array.strides[2], array.strides[0]), strict=True
        )
    ]
    address, extents, box = call.address(name), (elements, positions, heads, batch), (tile.slice_k, rows, 1, 1)
    if 0 in array.shape:
        # A map has at least one element: the first of the queries, which no row that sees no key is computed from.
        address, extents, strides = call.address("q"), (TMA_ALIGNMENT // size, 1, 1, 1), [row] * 3
    if alone:
        extents, strides = (elements, 1, *extents[1:]), [row, *strides]  # type: ignore[assignment]
        box = (*box, 1)  # type: ignore[assignment]
    try:
        return TensorMap.tiled(
            address,
            array.dtype.tensor_map,
            extents,
            strides,
            box,
            swizzle=MAP_SWIZZLES[tile.swizzle_bytes],
        )
    except ValueError as error:
        raise ArgumentError(
            f"{array.name} cannot be described to the copy engine: {error}", code="TK-ATT-004"
        ) from None


def describe_groups(call: Call, tile: OperandTile, group: int, positions: int) -> TensorMap:
    """The tensor map of queries whose `group` heads of one head of keys are rows beside each other.

    Raises
    ------
    ArgumentError
        ``TK-ATT-004`` for an array beyond the limits of tensor maps.
    """
    assert isinstance(call, HeadCall)
    array = call.heads["q"]
    batch, queries, heads, elements = array.stored
    size = array.dtype.bytes
    row = -(-elements * size // TMA_ALIGNMENT) * TMA_ALIGNMENT
    by_batch, by_query, by_head, _ = array.strides
    extents = group, queries, heads // group, batch
    strides = [
        stride * size if extent > 1 else row
        for extent, stride in zip(extents, (by_head, by_query, by_head * group, by_batch), strict=True)
    ]
    try:
        return TensorMap.tiled(
            call.address("q"),
            array.dtype.tensor_map,
            (elements, *extents),
            strides,
            (tile.slice_k, group, positions, 1, 1),
            swizzle=MAP_SWIZZLES[tile.swizzle_bytes],
        )
    except ValueError as error:
        raise ArgumentError(f"q cannot be described to the copy engine: {error}", code="TK-ATT-004") from None


@component
class GroupLoader:
    """Loads tiles of queries whose heads share keys: a row is a query of one of them, the heads of a query together.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor map as a kernel parameter.
    tile
        The image to fill: `group` rows a query.
    group, positions
        Heads that share keys, and queries of a load.
    one_batch
        Whether all batch entries are the first, in memory too.
    """

    def __init__(
        self, w: Writer, tile: OperandTile, *, group: Count, positions: Count, one_batch: bool = False
    ) -> None:
        self.tile, self.one_batch = tile, one_batch
        self.rows = group * positions
        self.map = w.tensor_map("q_map", lambda call: describe_groups(call, tile, group, positions))

    @property
    def bytes(self) -> int:
        """That a load counts on its barrier."""
        return self.rows * self.tile.row_bytes * self.tile.slices

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def load(self, w: Writer, place: SharedArray, stage: Stage, *, row: Value, head: Value, batch: Value) -> None:
        """Start the copies of a tile into a stage of `place`, from query `row` of group `head` on."""
        target = w.shared_base + place.offset + stage.index * place.stride
        full = stage.counting(f"the GroupLoader of {self.tile.name!r}")
        for part in range(self.tile.slices):
            w.ptx.tma.load_5d(
                dst=target + part * self.tile.slice_bytes,
                map=self.map,
                x=part * self.tile.slice_k,
                y=0,
                z=row,
                u=head,
                v=0 if self.one_batch else batch,
                full=full,
            )


@component
class HeadLoader:
    """Loads tiles of one head's positions.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor map as a kernel parameter.
    tile
        The image to fill, positions by elements.
    array
        What the call names the array.
    one_batch, one_head
        Whether all batch entries, or all heads, are the first, in memory too.
    """

    def __init__(
        self,
        w: Writer,
        tile: OperandTile,
        array: HeadArrayName,
        *,
        one_batch: bool = False,
        one_head: bool = False,
    ) -> None:
        self.tile, self.one_batch, self.one_head = tile, one_batch, one_head
        self.map = w.tensor_map(f"{array}_map", lambda call: describe_heads(call, array, tile, tile.rows))

    @property
    def bytes(self) -> int:
        """That a load counts on its barrier."""
        return self.tile.transfer_bytes

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def load(self, w: Writer, place: SharedArray, stage: Stage, *, row: Value, head: Value, batch: Value) -> None:
        """Start the copies of a tile into a stage of `place`; their bytes count on ``stage.full``."""
        target = w.shared_base + place.offset + stage.index * place.stride
        full = stage.counting(f"the HeadLoader of {self.tile.name!r}")
        for part in range(self.tile.slices):
            w.ptx.tma.load_4d(
                dst=target + part * self.tile.slice_bytes,
                map=self.map,
                x=part * self.tile.slice_k,
                y=row,
                z=0 if self.one_head else head,
                u=0 if self.one_batch else batch,
                full=full,
            )


@dataclass(frozen=True)
class KeyPlaces:
    """Where the keys of a stage lie, as their loader has found.

    Attributes
    ----------
    row, end, batch
        The first key but for `before`, the number of keys, and whose keys they are.
    before
        How many keys ahead of `row` the first one is.
    entries
        What the table of a cache says of the stage's first boxes, where there is one.
    whole
        Whether all keys of the stage are known to be in use.
    """

    row: Value
    end: Value
    batch: Value
    before: int = 0
    entries: tuple[Value, ...] = ()
    whole: bool = False


@component
class KeyLoader(HeadLoader):
    """Loads blocks of the keys, or of the values, of whole arrays."""

    def find(self, w: Writer, *, row: Value, before: int, end: Value, first: Value | int, batch: Value) -> KeyPlaces:
        """Where the block lies that is `before` so many keys ahead of `row`: there is nothing to ask."""
        return KeyPlaces(row, end, batch, before)

    def load_keys(self, w: Writer, place: SharedArray, stage: Stage, *, places: KeyPlaces, head: Value) -> None:
        """Start the copies of a block into a stage of `place`; their bytes count on ``stage.full``."""
        self.load(w, place, stage, row=places.row - places.before, head=head, batch=places.batch)


@dataclass(frozen=True)
class StoringGroup:
    """Threads that store an image together.

    Attributes
    ----------
    thread, count
        This one's number among them, u32, and how many they are.
    leads
        Whether this is the one that has the copy engine store.
    """

    thread: Value
    count: int
    leads: Value


@component
class HeadStorer:
    """Stores the rows of a warpgroup's tile, clipped to the positions that there are.

    Parameters
    ----------
    w
        The writer; the storer declares its tensor map as a kernel parameter.
    tile
        The image that is stored.
    rows
        Positions of one store.
    """

    def __init__(self, w: Writer, tile: OperandTile, *, rows: int) -> None:
        self.tile = tile
        self.rows = rows
        self.map = w.tensor_map("o_map", lambda call: describe_heads(call, "o", tile, rows))

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def store(self, w: Writer, source: Value, *, tile: HeadTile, offset: Value | int, by: StoringGroup) -> None:
        """Store the image's rows at `source`, those of the tile from row `offset` on, behind a barrier of the group."""
        with w.when(by.leads):
            self.copy(w, source, row=tile.row + offset, head=tile.head, batch=tile.batch)

    def copy(self, w: Writer, source: Value, *, row: Value, head: Value, batch: Value) -> None:
        """Have the copy engine store the image's rows at `source`, as a bulk group of this thread."""
        policy = w.constant(U64, EVICT_FIRST)
        for part in range(self.tile.slices):
            w.ptx.tma.store_4d(
                map=self.map,
                x=part * self.tile.slice_k,
                y=row,
                z=head,
                u=batch,
                src=source + part * self.tile.slice_bytes,
                policy=policy,
            )
        w.ptx.tma.commit_stores()
