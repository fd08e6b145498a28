"""Bulk copies of contiguous bytes: ``cp.async.bulk`` and ``cp.reduce.async.bulk`` (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .access import resolve
from .bulk import Array, Load, Mask, Store, Value, active_lanes, at_lane, barriers_of, check_room, destinations_of
from .errors import MemoryFault
from .mbarriers import shared_address
from .memory import Allocation

if TYPE_CHECKING:
    from .warp import Warp


def _check_bulk(size: int, *addresses: int) -> None:
    if size % 16 or size <= 0:
        raise MemoryFault(f"bulk copy of {size} bytes: the size must be a positive multiple of 16")
    for address in addresses:
        if address % 16:
            raise MemoryFault(f"bulk copy at {address:#x}: addresses must be multiples of 16")


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
) -> None:
    """``cp.async.bulk`` into shared memory, from global memory or from this CTA's shared memory."""
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
        memory, start = resolve(warp, source_space, origin, count, "bulk copy")

        def fetch(memory: Allocation = memory, start: int = start, count: int = count) -> Array:
            return memory.data[start : start + count].copy()

        def told(operation: Any, memory: Allocation = memory, start: int = start, count: int = count) -> None:
            if memory.shadow is not None:
                first = memory.shadow.base + start
                memory.shadow.span(operation, first, first + count, write=False)

        launch.machine.submit(Load(warp, lane, targets, offset, barriers, count, fetch, told, "bulk copy"))


def bulk_store(
    warp: Warp,
    space: str,
    destination: Value,
    source: Value,
    size: Value,
    reduction: Callable[[Array, Array], Array] | None,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk`` from shared to global memory."""
    launch = warp.cta.launch
    for lane in active_lanes(warp, mask):
        count = at_lane(size, lane)
        target = at_lane(destination, lane)
        origin = shared_address(space, at_lane(source, lane))
        _check_bulk(count, target, origin)
        memory, start = resolve(warp, "global", target, count, "bulk copy")
        shared, offset = resolve(warp, "shared", origin, count, "bulk copy")

        def write(
            image: Array, operation: Any, memory: Allocation = memory, start: int = start, count: int = count
        ) -> None:
            if not memory.writable:
                raise MemoryFault(f"bulk copy to {memory.name}, which is read-only")
            region = memory.data[start : start + count]
            if reduction is None:
                region[:] = image
                if memory.shadow is not None:
                    first = memory.shadow.base + start
                    memory.shadow.span(operation, first, first + count, write=True)
            else:
                region[:] = reduction(region, image)

        launch.machine.submit(Store(warp, lane, shared, offset, count, write))
