"""Bulk copies of boxes of a tensor map, and reductions into them: ``cp.async.bulk.tensor``."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Operation
from tilekit.emulator.core.checks.shadow import Changes
from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.arithmetic.reductions import ReduceOp
from tilekit.emulator.ptx.copies.bulk import (
    Array,
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
from tilekit.emulator.ptx.copies.tensor_copy import (
    Footprint,
    beyond_row,
    footprint,
    load_box,
    reduce_box,
    store_box,
    written_bytes,
)
from tilekit.emulator.ptx.copies.tensor_map_reads import tensor_map_at
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp


def source_of(
    warp: Warp, tensor: TensorMap, coordinates: tuple[int, ...], offsets: tuple[int, ...], *, stores: bool = False
) -> tuple[Allocation, Footprint]:
    """The allocation that a box touches, and the bytes.

    Raises
    ------
    MemoryFault
        If the map's tensor is not inside one allocation there, or the engine refuses the coordinates.
    """
    if tensor.minimum_sm > warp.cta.launch.chip.number:
        raise ProtocolError(
            f"the tensor map's element type or swizzle needs sm_{tensor.minimum_sm}",
            hint="encode the map for this chip",
        )
    try:
        touched = footprint(tensor, coordinates, offsets, stores=stores)
    except ValueError as error:
        raise MemoryFault(f"tensor copy at {coordinates}: {error}") from None
    memory = warp.cta.launch.memory
    if not touched.run:
        return memory.at(tensor.address, 1, "tensor copy")[0], touched
    try:
        return memory.at(touched.begin, touched.end - touched.begin, "tensor copy")[0], touched
    except MemoryFault as fault:
        if stores:
            fault.hint = fault.hint or beyond_row(tensor, touched.end - 1)
        raise


def tell_box(
    allocation: Allocation, touched: Footprint, operation: Operation | None, changes: Changes | None = None
) -> None:
    """Tell the race check that an operation accessed a box in global memory: a store gives ``changes``, a load none."""
    shadow = allocation.shadow
    if shadow is None or operation is None or not touched.run:
        return
    how: dict[str, Any] = {"write": changes is not None, "changes": changes}
    if len(touched.shape) == 1 and touched.strides[0] > 0:
        shadow.rows(operation, touched.begin, touched.shape[0], touched.run, touched.strides[0], **how)
        return
    starts = touched.starts
    steps = np.diff(starts)
    if starts.size == 1:
        shadow.span(operation, touched.begin, touched.end, **how)
    elif steps[0] > 0 and (steps == steps[0]).all():
        shadow.rows(operation, int(starts[0]), starts.size, touched.run, int(steps[0]), **how)
    else:
        shadow.extents(operation, np.stack([starts, starts + touched.run], axis=1), **how)


def store_and_tell(
    tensor: TensorMap,
    box: tuple[int, ...],
    allocation: Allocation,
    touched: Footprint,
    image: Array,
    offset: int,
    operation: Operation | None,
) -> None:
    """Write a box to global memory, and tell the race check, which asks only at a conflict what it changes."""

    @cache
    def changes() -> npt.NDArray[np.int64]:
        # A copy of all that lies between the first and the last byte that may be written.
        begin = touched.begin if tensor.pixels is None else tensor.address
        old = allocation.data[begin - allocation.start : touched.end - allocation.start]
        new = old.copy()
        store_box(tensor, box, new, tensor.address - begin, image, offset)
        return begin + np.flatnonzero(new != old)

    if operation is not None:
        operation.beyond = partial(beyond_row, tensor)
    tell_box(allocation, touched, operation, changes)
    store_box(tensor, box, allocation.data, tensor.address - allocation.start, image, offset)


def tensor_load(
    warp: Warp,
    space: str,
    destination: Value,
    map_address: Value,
    coordinates: tuple[Value, ...],
    barrier: Value,
    offsets: tuple[Value, ...],
    multicast: Value | None,
    group: int,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk.tensor`` from global to shared memory."""
    launch = warp.cta.launch
    for lane in active_lanes(warp, mask):
        tensor = tensor_map_at(warp, lane, at_lane(map_address, lane))
        address = shared_address(space, at_lane(destination, lane))
        ctas = None if multicast is None else at_lane(multicast, lane)
        targets, offset = destinations_of(warp, address, ctas)
        where = shared_address(space, at_lane(barrier, lane))
        barriers = barriers_of(warp, where, targets, multicast is not None, group)
        box = tuple(at_lane(c, lane) for c in coordinates)
        shifts = tuple(at_lane(o, lane) & 0xFFFF for o in offsets)
        _check_rank(tensor, box)
        check_room(targets, offset, tensor.shared_bytes, "tensor load")
        allocation, touched = source_of(warp, tensor, box, shifts)
        base = tensor.address - allocation.start

        def fetch(
            tensor: TensorMap = tensor,
            box: tuple[int, ...] = box,
            allocation: Allocation = allocation,
            base: int = base,
            offset: int = offset,
            shifts: tuple[int, ...] = shifts,
        ) -> Array:
            return load_box(tensor, box, allocation.data, base, offset, shifts)

        if offset % 128:
            raise MemoryFault(f"tensor load to {address:#x}: the destination must be a multiple of 128")
        told = partial(tell_box, allocation, touched)
        written = written_bytes(tensor, offset)
        launch.machine.submit(
            Load(warp, lane, targets, offset, barriers, tensor.transaction_bytes, fetch, told, "TMA load", written)
        )


def _check_rank(tensor: TensorMap, box: tuple[int, ...]) -> None:
    if len(box) != tensor.rank:
        raise ProtocolError(
            f"the instruction gives {len(box)} coordinates, the tensor map has rank {tensor.rank}",
            hint=f"use the .{tensor.rank}d form, or encode the map with rank {len(box)}",
        )


def tensor_store(
    warp: Warp,
    space: str,
    map_address: Value,
    coordinates: tuple[Value, ...],
    source: Value,
    reduction: ReduceOp | None,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor`` from shared to global memory."""
    launch = warp.cta.launch
    for lane in active_lanes(warp, mask):
        tensor = tensor_map_at(warp, lane, at_lane(map_address, lane))
        address = shared_address(space, at_lane(source, lane))
        size = tensor.shared_bytes
        shared, offset = resolve(warp, "shared", address, size, "tensor store")
        if offset % 128:
            raise MemoryFault(f"tensor store from {address:#x}: the source must be a multiple of 128")
        box = tuple(at_lane(c, lane) for c in coordinates)
        _check_rank(tensor, box)
        allocation, touched = source_of(warp, tensor, box, (), stores=True)
        if not allocation.writable:
            raise MemoryFault(f"tensor store to {allocation.name}, which is read-only")
        base = tensor.address - allocation.start

        def write(
            image: Array,
            operation: Any,
            tensor: TensorMap = tensor,
            box: tuple[int, ...] = box,
            allocation: Allocation = allocation,
            base: int = base,
            offset: int = offset,
            touched: Footprint = touched,
        ) -> None:
            if reduction is None:
                store_and_tell(tensor, box, allocation, touched, image, offset, operation)
            else:
                reduce_box(tensor, box, allocation.data, base, image, offset, reduction)

        launch.machine.submit(Store(warp, lane, shared, offset, size, write))
