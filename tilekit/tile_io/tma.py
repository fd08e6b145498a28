"""TileIO on Hopper's tensor memory accelerator: one thread starts a box copy, the copy engine does the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, illegal
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32, U64
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion, TensorMap
from tilekit.errors import ArgumentError
from tilekit.tile_io.payload_loader import PrefetchedCopies
from tilekit.tiles.call import Call, Matrix
from tilekit.tiles.cluster import Multicast
from tilekit.tiles.operand import ATOM_32B, OperandTile
from tilekit.tiles.stage import Stage

TMA_ALIGNMENT = 16
"""Bytes that a tensor's address and every pitch must be a multiple of (cuTensorMapEncodeTiled)."""

MAX_BOX = 256
"""Largest extent of a box in one dimension (cuTensorMapEncodeTiled)."""


MapSwizzle = Literal["32B", "64B", "128B", "128B_atom_32B"]
"""Swizzles of operands, as tensor maps call them."""

MAP_SWIZZLES: dict[int, MapSwizzle | None] = {0: None, 32: "32B", 64: "64B", 128: "128B"}

Box = tuple[int, int, dict[str, Operand]]
"""One copy: the slice of the tile, its first row in that, and the corner in global memory."""

SHARED_ALIGNMENT = 128
"""Bytes that a copy's place in shared memory is a multiple of (PTX ISA, cp.async.bulk.tensor)."""


@dataclass(frozen=True)
class TmaBox:
    """What a tensor map must know of its copies.

    Attributes
    ----------
    extents
        Of one copy, contiguous dimension first, in elements.
    swizzle
        Of its image in shared memory, as tensor maps call it.
    """

    extents: tuple[int, ...]
    swizzle: MapSwizzle | None = "128B"

    def describe(self, call: Call, name: str, *, l2_promotion: L2Promotion | None = None) -> TensorMap:
        """The tensor map of the call's matrix `name`, which copies move in such boxes.

        An empty sum has operands without elements and perhaps without an address. No copy goes through their maps, but
        maps there must be: they point to the output.

        Raises
        ------
        ArgumentError
            ``TK-MM-015`` for a matrix beyond the limits of tensor maps.
        """
        matrix, address = call.matrix(name), call.address(name)
        if 0 in matrix.extents:
            address = call.address("d") // TMA_ALIGNMENT * TMA_ALIGNMENT
        dims = tuple(max(1, extent) for extent in matrix.extents)
        strides: tuple[int, ...] = (matrix.pitch,)
        if len(self.extents) == 3:
            dims = (*dims, matrix.batches)
            strides = (matrix.pitch, matrix.batch_pitch or matrix.pitch * max(1, matrix.extents[1]))
        with describing(matrix):
            return TensorMap.tiled(
                address,
                matrix.dtype.tensor_map,
                dims,
                strides,
                self.extents,
                swizzle=self.swizzle,
                l2_promotion=l2_promotion,
            )


@contextmanager
def describing(matrix: Matrix) -> Iterator[None]:
    """Raise `ArgumentError` (``TK-MM-015``) for a matrix beyond the limits of tensor maps, which are made here."""
    try:
        yield
    except ValueError as error:
        text = f"{matrix.name} cannot be described to the copy engine: {error}"
        raise ArgumentError(text, code="TK-MM-015") from None


@component
class TmaLoader:
    """Loads one operand's tiles from global to shared memory.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor map as a kernel parameter.
    tile
        The image to fill, once a stage.
    batched
        Whether the tensor has a batch dimension (a third coordinate).
    participants
        CTAs of a cluster that need the same tile; each fetches that fraction of it: rows, or MN-major whole chunks, or
        else rows of every chunk. A trimmed tile's last chunk comes in boxes of its own.
    paired
        Whether the bytes count on a barrier of the CTA pair's leader, in whichever CTA of the pair they land.
    policy
        How long L2 keeps what is loaded; None leaves it to the hardware.
    l2_promotion
        What L2 fetches at least where a load misses.
    """

    def __init__(
        self,
        w: Writer,
        tile: OperandTile,
        *,
        batched: bool = False,
        participants: Count = 1,
        paired: bool = False,
        policy: int | None = None,
        l2_promotion: L2Promotion | None = None,
    ) -> None:
        # A copy begins at a multiple of 128 bytes of the image, which may be one row or several.
        unit = max(1, SHARED_ALIGNMENT // tile.row_bytes)
        lines = tile.image_rows // unit if tile.major == "k" else tile.slice_k
        chunks = 1 if tile.major == "k" or tile.rest else tile.image_rows // tile.chunk
        if lines % participants and chunks % participants:
            fits = next(count for count in range(min(participants, lines), 0, -1) if lines % count == 0)
            legal = f"a divisor of the {lines} parts of tile {tile.name!r}"
            raise illegal("TmaLoader", "participants", participants, legal, fits)
        self.tile = tile
        self.participants = participants
        self.batched = batched
        self.paired = paired
        self.policy = policy
        self.l2_promotion = l2_promotion
        w.uses(self, "tile", tile.name, dtype=tile.dtype, contiguous=tile.major)
        self.map = w.tensor_map(f"{tile.name}_map", self.describe)
        self.rest_map = w.tensor_map(f"{tile.name}_rest_map", self.describe_rest) if tile.rest else self.map
        self.ends: Operand | None = None
        if tile.trimmed and tile.major == "mn":
            self.ends = w.parameter(f"{tile.name}_ends", U32, lambda call: call.matrix(tile.name).extents[0])

    def describe(self, call: Call) -> TensorMap:
        """The tensor map of the call's operand."""
        return self.box.describe(call, self.tile.name, l2_promotion=self.l2_promotion)

    def describe_rest(self, call: Call) -> TensorMap:
        """The same, for the boxes of a trimmed last chunk: their rows stand as far apart as those of whole ones."""
        box = replace(self.box, extents=(self.tile.rest, *self.box.extents[1:]))
        return box.describe(call, self.tile.name, l2_promotion=self.l2_promotion)

    def map_of(self, first: int) -> Operand:
        """The map of the boxes whose first row in the tile is `first`."""
        trimmed = self.tile.rest and first + self.tile.rest == self.tile.rows
        return self.rest_map if trimmed else self.map

    @property
    def box(self) -> TmaBox:
        """What one copy moves."""
        k = self.tile.slice_k
        extents = {"k": (k, self.rows_per_copy), "mn": (self.tile.chunk, self.k_per_copy)}[self.tile.major]
        swizzle = "128B_atom_32B" if self.tile.swizzle == ATOM_32B else MAP_SWIZZLES[self.tile.swizzle_bytes]
        return TmaBox((*extents, 1) if self.batched else extents, swizzle)

    prefetches = True
    """Its copies can bring a tile into L2 alone."""

    @property
    def brings(self) -> int:
        """Bytes that it brings to a stage, in all CTAs that share the tile."""
        return self.tile.transfer_bytes

    @property
    def fragment(self) -> str:
        """What starts a copy, but for multicast, a policy and pairs."""
        return "load_3d" if self.batched else "load_2d"

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor maps close."""
        for each in (self.map, self.rest_map) if self.tile.rest else (self.map,):
            w.ptx.tma.prefetch_map(map=each)

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundTmaLoader:
        """Prepare the addresses of this CTA's part of the tile in `stages`; once a role."""
        return BoundTmaLoader(w, self, stages, multicast)

    def copies(self, w: Writer, bound: BoundTmaLoader, row: Value, batch: Operand, k: Operand) -> PrefetchedCopies:
        """The copies of a tile at `row`, whose first k-block begins at element `k`."""
        return TmaTile(bound, bound.places(w, row), batch)

    @property
    def divides_chunks(self) -> bool:
        """Whether each sharer fetches some rows of every chunk, since there are no whole chunks for all of them."""
        if self.tile.major == "k" or self.participants == 1:
            return False
        return self.tile.rest > 0 or self.tile.image_rows // self.tile.chunk % self.participants > 0

    @property
    def extent(self) -> int:
        """Rows of the image that one CTA fetches; MN-major elements along M or N."""
        return self.tile.image_rows // (1 if self.divides_chunks else self.participants)

    @property
    def k_per_copy(self) -> int:
        """Elements along K of one copy of an MN-major tile."""
        return self.tile.slice_k // (self.participants if self.divides_chunks else 1)

    @property
    def rows_per_copy(self) -> int:
        """Rows of one copy."""
        if self.tile.major == "mn":
            return self.tile.chunk
        # As few copies as MAX_BOX allows, all of one size. The copy engine swizzles by the address, so a copy may
        # begin at any row of the swizzle's 8-row groups.
        extent, row_bytes = self.extent, self.tile.row_bytes
        return next(
            rows for rows in range(MAX_BOX, 0, -1) if extent % rows == 0 and rows * row_bytes % SHARED_ALIGNMENT == 0
        )


class BoundTmaLoader:
    """A `TmaLoader` in a role."""

    writer = None
    """The copy engine completes stages, not the role's threads."""

    def __init__(self, w: Writer, loader: TmaLoader, stages: SharedArray, multicast: Multicast | None) -> None:
        self.loader = loader
        self._stride = stages.stride
        self._multicast = multicast
        self._base = w.shared_base + stages.offset
        self.first_row: Operand = 0
        self.first_k: Operand | None = None
        self._policy = w.constant(U64, loader.policy) if loader.policy is not None else None
        if multicast is not None and loader.divides_chunks:
            self._base = self._base + multicast.slice * (loader.k_per_copy * loader.tile.row_bytes)
            self.first_k = multicast.slice * loader.k_per_copy
        elif multicast is not None:
            self._base = self._base + multicast.slice * loader.tile.offset_of(loader.extent)
            self.first_row = multicast.slice * loader.extent

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> PrefetchedCopies:
        """Turn to the tile at `row` of M or N; once a tile."""
        return self.loader.copies(w, self, row + self.first_row, batch, k)

    def load(self, w: Writer, stage: Stage, boxes: Iterable[Box]) -> None:
        """Start the copies of this CTA's part of `stage`; their bytes count on ``stage.full``."""
        loader, tile = self.loader, self.loader.tile
        target = self._base + stage.index * self._stride
        fragment = loader.fragment
        operands: dict[str, Operand] = {
            "full": stage.counting(f"the {type(loader).__name__} of {tile.name!r}"),
        }
        if self._multicast is not None:
            fragment += "_multicast"
            operands["mask"] = self._multicast.mask
        if self._policy is not None:
            fragment += "_hint"
            operands["policy"] = self._policy
        load = getattr(w.ptx.tma, fragment + "_pair" if loader.paired else fragment)
        for part, first, corner in boxes:
            at = target + (part * tile.slice_bytes + tile.offset_of(first))
            load(dst=at, map=loader.map_of(first), **corner, **operands)

    def prefetch(self, w: Writer, boxes: Iterable[Box]) -> None:
        """Bring what :meth:`load` would load into L2."""
        loader = self.loader
        prefetch = getattr(w.ptx.tma, loader.fragment.replace("load", "prefetch"))
        for _, first, corner in boxes:
            prefetch(map=loader.map_of(first), **corner)

    def places(self, w: Writer, row: Value) -> dict[int, Value]:
        """Where along M or N each box of a slice begins, by its first row in the tile; once a tile."""
        loader, found = self.loader, {}
        for first in range(0, loader.extent, loader.rows_per_copy):
            at = row + first
            found[first] = at if loader.ends is None else w.select(at < loader.ends, at, 0)
        return found

    def boxes(self, places: Mapping[int, Value], k: Operand, batch: Operand) -> Iterator[Box]:
        """The slice, the first row and the corner of each box of this CTA's part."""
        loader, tile = self.loader, self.loader.tile
        k = k if self.first_k is None else self.first_k + k
        for part in range(tile.slices):
            here = k + part * tile.slice_k
            for first, at in places.items():
                x, y = {"k": (here, at), "mn": (at, here)}[tile.major]
                yield part, first, {"x": x, "y": y, "z": batch} if loader.batched else {"x": x, "y": y}


@dataclass(frozen=True)
class TmaTile:
    """The copies of one tile: where along M or N this CTA's boxes begin, and the batch index."""

    loader: BoundTmaLoader
    places: Mapping[int, Value]
    batch: Operand

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start filling this CTA's part of `stage` from element `k` on: in a role of many threads, one of them does."""
        with w.when(stage.leader) if stage.leader is not None else nullcontext():
            self.loader.load(w, stage, self.loader.boxes(self.places, k, self.batch))

    def prefetch(self, w: Writer, k: Operand) -> None:
        """Bring what :meth:`load` would load into L2."""
        self.loader.prefetch(w, self.loader.boxes(self.places, k, self.batch))


EVICT_FIRST = 0x12F0_0000_0000_0000
"""L2 policy of data that is not read again soon, as ``createpolicy`` makes it (CUTLASS, TMA::CacheHintSm90)."""

EVICT_LAST = 0x14F0_0000_0000_0000
"""The same of data that others will read again."""


class TmaBoxLoader:
    """Loads boxes of a row-major tensor into swizzled shared memory, zeros where it ends: the reverse of `TmaStorer`.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor map as a kernel parameter.
    matrix
        What the call names it.
    name
        Of the parameter, ``<name>_map``.
    columns, rows
        Extents of one load.
    batched
        Whether the tensor has a batch dimension.
    """

    def __init__(self, w: Writer, *, matrix: str, name: str, columns: int, rows: int, batched: bool) -> None:
        self.columns = columns
        self.rows = rows
        self.batched = batched
        self.map = w.tensor_map(f"{name}_map", lambda call: self.box.describe(call, matrix))

    @property
    def box(self) -> TmaBox:
        """What one load moves."""
        return TmaBox((self.columns, self.rows, 1) if self.batched else (self.columns, self.rows))

    def bytes(self, dtype: DType) -> int:
        """Bytes that a load of so wide elements counts."""
        return self.columns * self.rows * dtype.bytes

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def load(self, w: Writer, target: Value, full: Value, *, column: Value, row: Value, batch: Operand) -> None:
        """Start loading the box at (row, column) to `target`; its bytes count on `full`."""
        if self.batched:
            w.ptx.tma.load_3d(dst=target, map=self.map, x=column, y=row, z=batch, full=full)
        else:
            w.ptx.tma.load_2d(dst=target, map=self.map, x=column, y=row, full=full)


class TmaStorer:
    """Stores boxes of the output from swizzled shared memory, clipped to the tensor's bounds by the copy engine.

    The output leaves L2 first, so that the operands stay: with loads in 256-byte units 1.4 % at 4096^3 and 0.7 % at
    8192^3 (H200, sustained); not timed with today's 128-byte ones.

    Parameters
    ----------
    w
        The writer; the storer declares its tensor map as a kernel parameter.
    matrix
        What the call names it.
    name
        Of the parameter, ``<name>_map``.
    columns, rows
        Extents of one store.
    batched
        Whether the tensor has a batch dimension.
    swizzle
        Of the box's image in shared memory, as tensor maps call it.
    """

    def __init__(
        self,
        w: Writer,
        *,
        matrix: str,
        name: str,
        columns: int,
        rows: int,
        batched: bool,
        swizzle: MapSwizzle | None = "128B",
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.batched = batched
        self.swizzle = swizzle
        self.map = w.tensor_map(f"{name}_map", lambda call: self._describe(call, matrix))

    def _describe(self, call: Call, name: str) -> TensorMap:
        """The tensor map of a matrix that the copy engine can write.

        It writes whole units of 16 bytes: of a row that ends inside one, it overwrites what follows (seen on an H200).
        """
        matrix = call.matrix(name)
        size, unit = matrix.extents[0] * matrix.dtype.bytes, TMA_ALIGNMENT
        if size % unit:
            raise ArgumentError(
                f"{matrix.name} has rows of {matrix.extents[0]} {matrix.dtype}, {size} bytes; the copy engine writes "
                f"multiples of {unit}. Nearest: rows of {-(-size // unit) * unit} bytes, or an "
                "epilogue whose threads store (DirectEpilogue)",
                code="TK-STORE-001",
            )
        return self.box.describe(call, name)

    @property
    def box(self) -> TmaBox:
        """What one store moves."""
        extents = (self.columns, self.rows, 1) if self.batched else (self.columns, self.rows)
        return TmaBox(extents, self.swizzle)

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer) -> BoundTmaStorer:
        """Prepare the L2 policy; once a role."""
        return BoundTmaStorer(w, self)


class BoundTmaStorer:
    """A `TmaStorer` in a role."""

    def __init__(self, w: Writer, storer: TmaStorer) -> None:
        self._storer = storer
        self._policy = w.constant(U64, EVICT_FIRST)

    def store(self, w: Writer, source: Value, *, column: Value, row: Value, batch: Operand) -> None:
        """Start storing the box at `source` to (row, column), in the thread's open bulk group."""
        common = {"map": self._storer.map, "x": column, "y": row, "src": source, "policy": self._policy}
        if self._storer.batched:
            w.ptx.tma.store_3d(**common, z=batch)
        else:
            w.ptx.tma.store_2d(**common)
