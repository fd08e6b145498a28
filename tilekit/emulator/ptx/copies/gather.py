"""``tile::gather4`` and ``tile::scatter4``: four rows of a two-dimensional tensor, each with a coordinate of its own.

The tensor map has a box of one row; the rows lie one after another in shared memory, swizzled like a box of four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.copies.bulk import (
    Load,
    Mask,
    Store,
    Value,
    active_lanes,
    at_lane,
    barriers_of,
    check_room,
    destinations_of,
)
from tilekit.emulator.ptx.copies.bulk_tensor import source_of, store_and_tell, tell_box
from tilekit.emulator.ptx.copies.tensor_copy import Footprint, load_box
from tilekit.emulator.ptx.copies.tensor_map_reads import tensor_map_at
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.memory.swizzle import chunk_size, swizzled
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = ["gather_load", "scatter_store"]

_ROWS = 4
Sources = list[tuple[Allocation, Footprint]]


def _places(tensor: TensorMap, offset: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Chunk size, and where the chunks of the four rows lie in their image: int64[4, chunks of a row]."""
    size = chunk_size(tensor.swizzle)
    linear = (
        offset + tensor.row_pitch * np.arange(_ROWS, dtype=np.int64)[:, None] + np.arange(0, tensor.row_bytes, size)
    )
    return size, (swizzled(linear, tensor.swizzle) - offset) // size


def _chunks(data: npt.NDArray[np.uint8], size: int) -> npt.NDArray[Any]:
    return data.view(np.dtype((np.void, size)))


def _check(tensor: TensorMap, coordinates: Sequence[int]) -> tuple[TensorMap, list[tuple[int, int]]]:
    """The map of one unswizzled row, and the coordinates of the four.

    Raises
    ------
    ProtocolError
        If the map does not fit.
    """
    if tensor.rank != 2 or tensor.pixels is not None or tensor.interleave is not None or tensor.box[1] != 1:
        raise ProtocolError(
            "tile::gather4 and tile::scatter4 need a tiled map of rank 2 without interleave whose box has one row",
            hint="encode the map with box=(columns, 1)",
            details={"box": tensor.box, "rank": tensor.rank},
        )
    column, *rows = coordinates
    return replace(tensor, swizzle=None), [(column, row) for row in rows]


def gather_load(
    warp: Warp,
    destination: Value,
    map_address: Value,
    coordinates: tuple[Value, ...],
    barrier: Value,
    multicast: Value | None,
    group: int,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk.tensor.2d…tile::gather4``."""
    for lane in active_lanes(warp, mask):
        tensor = tensor_map_at(warp, lane, at_lane(map_address, lane))
        plain, boxes = _check(tensor, [at_lane(c, lane) for c in coordinates])
        address = shared_address("shared", at_lane(destination, lane))
        ctas = None if multicast is None else at_lane(multicast, lane)
        targets, offset = destinations_of(warp, address, ctas)
        where = shared_address("shared", at_lane(barrier, lane))
        barriers = barriers_of(warp, where, targets, multicast is not None, group)
        if offset % 128:
            raise MemoryFault(f"gather to {address:#x}: the destination must be a multiple of 128")
        check_room(targets, offset, _ROWS * tensor.row_pitch, "gather")
        sources = [source_of(warp, plain, box, ()) for box in boxes]
        size, places = _places(tensor, offset)
        written = np.zeros(_ROWS * tensor.row_pitch // size, np.bool_)
        written[places] = True

        def fetch(
            tensor: TensorMap = tensor,
            plain: TensorMap = plain,
            boxes: list[tuple[int, int]] = boxes,
            sources: Sources = sources,
            size: int = size,
            places: npt.NDArray[np.int64] = places,
        ) -> npt.NDArray[np.uint8]:
            image = np.zeros(_ROWS * tensor.row_pitch, np.uint8)
            for row, (box, (allocation, _)) in enumerate(zip(boxes, sources, strict=True)):
                data = load_box(plain, box, allocation.data, plain.address - allocation.start, 0)
                _chunks(image, size)[places[row]] = _chunks(data, size)
            return image

        told = _tell_all([partial(tell_box, allocation, touched) for allocation, touched in sources])
        bytes_counted = _ROWS * tensor.transaction_bytes
        everywhere = np.repeat(written, size)
        warp.cta.launch.machine.submit(
            Load(warp, lane, targets, offset, barriers, bytes_counted, fetch, told, "TMA gather", everywhere)
        )


def _tell_all(tellers: list[Callable[[Any], None]]) -> Callable[[Any], None]:
    def told(operation: Any) -> None:
        for tell in tellers:
            tell(operation)

    return told


def scatter_store(
    warp: Warp, map_address: Value, coordinates: tuple[Value, ...], source: Value, mask: Mask | None
) -> None:
    """``cp.async.bulk.tensor.2d…tile::scatter4``."""
    for lane in active_lanes(warp, mask):
        tensor = tensor_map_at(warp, lane, at_lane(map_address, lane))
        plain, boxes = _check(tensor, [at_lane(c, lane) for c in coordinates])
        address = shared_address("shared", at_lane(source, lane))
        total = _ROWS * tensor.row_pitch
        shared, offset = resolve(warp, "shared", address, total, "scatter")
        if offset % 128:
            raise MemoryFault(f"scatter from {address:#x}: the source must be a multiple of 128")
        sources = [source_of(warp, plain, box, (), stores=True) for box in boxes]
        for allocation, _ in sources:
            if not allocation.writable:
                raise MemoryFault(f"scatter to {allocation.name}, which is read-only")
        size, places = _places(tensor, offset)

        def write(
            image: npt.NDArray[np.uint8],
            operation: Any,
            plain: TensorMap = plain,
            boxes: list[tuple[int, int]] = boxes,
            sources: Sources = sources,
            size: int = size,
            places: npt.NDArray[np.int64] = places,
        ) -> None:
            for row, (box, (allocation, touched)) in enumerate(zip(boxes, sources, strict=True)):
                data = np.ascontiguousarray(_chunks(image, size)[places[row]]).view(np.uint8)
                store_and_tell(plain, box, allocation, touched, data, 0, operation)

        warp.cta.launch.machine.submit(Store(warp, lane, shared, offset, total, write))
