"""Bulk copies of contiguous bytes: ``cp.async.bulk`` and ``cp.reduce.async.bulk`` (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import lane_mask
from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.copies.bulk import (
    Array,
    Combine,
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
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp


def _check_bulk(size: int, *addresses: int) -> None:
    if size % 16 or size <= 0:
        raise MemoryFault(f"bulk copy of {size} bytes: the size must be a positive multiple of 16")
    for address in addresses:
        if address % 16:
            raise MemoryFault(f"bulk copy at {address:#x}: addresses must be multiples of 16")


def bulk_prefetch(warp: Warp, source: Value, size: Value, mask: Mask | None) -> None:
    """``cp.async.bulk.prefetch.L2``: nothing but its rules (PTX ISA); that the memory exists is not one of them."""
    for lane in active_lanes(warp, mask):
        count, address = at_lane(size, lane), at_lane(source, lane)
        if count % 16 or address % 16:
            raise MemoryFault(f"bulk prefetch of {count} bytes at {address:#x}: both must be multiples of 16")


def bulk_load(
    warp: Warp,
    space: str,
    destination: Value,
    source_space: str,
    source: Value,
    size: Value,
    barrier: Value,
    multicast: Value | None,
    mask: Mask | None,
    reduction: Combine | None = None,
    ignored: tuple[Value, ...] = (),
) -> None:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk`` into shared memory, from global memory or this CTA's own.

    ``ignored`` says how many of the first and of the last bytes are not read (``.ignore_oob``).
    """
    launch = warp.cta.launch
    for lane in active_lanes(warp, mask):
        count = at_lane(size, lane)
        target = shared_address(space, at_lane(destination, lane))
        origin = at_lane(source, lane)
        if source_space == "shared":
            origin = shared_address("generic", origin)
        _check_bulk(count, target, origin)
        ctas = None if multicast is None else at_lane(multicast, lane)
        targets, offset = destinations_of(warp, target, ctas)
        where = shared_address(space, at_lane(barrier, lane))
        barriers = barriers_of(warp, where, targets, multicast is not None)
        check_room(targets, offset, count, "bulk copy")
        left, right = (at_lane(number, lane) for number in ignored) if ignored else (0, 0)
        if not (0 <= left <= 15 and 0 <= right <= 15):
            raise MemoryFault(f"bulk copy that ignores {left} and {right} bytes: each must lie in 0 to 15")
        used = max(0, count - left - right)
        memory, start = resolve(warp, source_space, origin + left, used, "bulk copy")

        def fetch(
            memory: Allocation = memory, start: int = start, count: int = count, left: int = left, used: int = used
        ) -> Array:
            if used == count:
                return memory.data[start : start + count].copy()
            image = np.full(count, 0xFF, np.uint8)  # what is ignored is undefined
            image[left : left + used] = memory.data[start : start + used]
            return image

        def told(operation: Any, memory: Allocation = memory, start: int = start, used: int = used) -> None:
            if memory.shadow is not None:
                first = memory.shadow.base + start
                memory.shadow.span(operation, first, first + used, write=False)

        unit = "bulk copy" if reduction is None else "bulk reduction"
        load = Load(warp, lane, targets, offset, barriers, count, fetch, told, unit, combine=reduction)
        launch.machine.submit(load)


def bulk_store(
    warp: Warp,
    space: str,
    destination: Value,
    source: Value,
    size: Value,
    reduction: Combine | None,
    kept: Value | None,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk`` from shared to global memory.

    ``kept`` says which bytes of every sixteen are copied (``.cp_mask``); None for all.
    """
    launch = warp.cta.launch
    for lane in active_lanes(warp, mask):
        count = at_lane(size, lane)
        target = at_lane(destination, lane)
        origin = shared_address(space, at_lane(source, lane))
        _check_bulk(count, target, origin)
        memory, start = resolve(warp, "global", target, count, "bulk copy")
        shared, offset = resolve(warp, "shared", origin, count, "bulk copy")

        copied = None if kept is None else np.tile(lane_mask(at_lane(kept, lane))[:16], count // 16)

        def write(
            image: Array,
            operation: Any,
            memory: Allocation = memory,
            start: int = start,
            count: int = count,
            copied: npt.NDArray[np.bool_] | None = copied,
        ) -> None:
            if not memory.writable:
                raise MemoryFault(f"bulk copy to {memory.name}, which is read-only")
            region = memory.data[start : start + count]
            if reduction is not None:
                region[:] = reduction(region, image)
                return
            result = image if copied is None else np.where(copied, image, region)
            if memory.shadow is not None:
                first = memory.shadow.base + start

                def changes() -> npt.NDArray[np.int64]:
                    changed: npt.NDArray[np.int64] = first + np.flatnonzero(result != region)
                    return changed

                if copied is None:
                    memory.shadow.span(operation, first, first + count, write=True, changes=changes)
                elif copied.any():
                    places = first + np.flatnonzero(copied)
                    spans = np.stack([places, places + 1], axis=1)
                    memory.shadow.extents(operation, spans, write=True, changes=changes)
            region[:] = result

        launch.machine.submit(Store(warp, lane, shared, offset, count, write))
