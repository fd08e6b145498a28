"""Loads and stores of a warp: address resolution, bounds, alignment, and what the race check is told.

Addresses are those of the instruction's state space: 32-bit for shared memory (``rank << 24 | offset``), generic for
global, const and param. All lanes of a warp normally hit one allocation; contiguous lanes become one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import ONE_LANE, ballot
from tilekit.emulator.core.checks.agents import ALL_LANES
from tilekit.emulator.core.checks.happens_before import Order
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.core.memory.memory import (
    LOCAL_WINDOW,
    OFFSET_MASK,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW,
    Allocation,
)
from tilekit.emulator.ptx.checks.exits import visited
from tilekit.emulator.ptx.checks.uninitialised import check_read

if TYPE_CHECKING:
    from tilekit.emulator.core.checks.lane_order import Lanes
    from tilekit.emulator.core.checks.shadow import Changes
    from tilekit.emulator.ptx.execution.lockstep import LockstepGroup
    from tilekit.emulator.ptx.execution.warp import Warp

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}


def resolve(warp: Warp, space: str, address: int, size: int, action: str) -> tuple[Allocation, int]:
    """The allocation and byte offset of ``size`` bytes.

    Raises
    ------
    MemoryFault
        Out of bounds, in the wrong space, or null.
    """
    if space == "generic":
        window = address // WINDOW
        if window == 1:
            return resolve(warp, "shared::cluster", address - SHARED_WINDOW, size, action)
        if window == 3:
            space = "param"
    if space == "global" or space == "generic" or space == "const":
        return warp.cta.launch.memory.at(address, size, action)
    if space == "param":
        parameters = warp.cta.launch.parameters
        offset = address - PARAM_WINDOW
        if not 0 <= offset <= parameters.size - size:
            raise MemoryFault(f"{action} of {size} bytes at offset {offset} of {parameters.size} bytes of parameters")
        return parameters, offset
    return _shared(warp, space, address, size, action), address & OFFSET_MASK


def _shared(warp: Warp, space: str, address: int, size: int, action: str) -> Allocation:
    cta = warp.cta
    if address >> RANK_SHIFT == cta.rank:
        memory = cta.shared
    else:
        ctas = cta.cluster.ctas
        rank = address >> RANK_SHIFT
        if not 0 <= rank < len(ctas):
            raise MemoryFault(
                f"{action} of {size} bytes at {address:#x}: not a shared address of this cluster of {len(ctas)} CTAs",
                hint="a generic address needs cvta.to.shared first, or the generic form of the instruction",
                details={"address": address},
            )
        if space != "shared::cluster":
            raise MemoryFault(
                f"{action} of {size} bytes at {address:#x}: shared memory of CTA {rank}, from CTA {cta.rank}",
                hint="reach another CTA's shared memory with .shared::cluster",
                details={"address": address},
            )
        peer = ctas[rank]
        visited(peer, warp, "an access to its shared memory")
        memory = peer.shared
    offset = address & OFFSET_MASK
    if not memory.low <= offset <= memory.size - size:
        where = "in the reserved first kilobyte" if offset < memory.low else f"end of it at {memory.size:#x}"
        raise MemoryFault(
            f"{action} of {size} bytes at {address:#x}: out of bounds of {memory.name}, {where}",
            hint="is shared_bytes at launch large enough?",
            details={"address": address},
        )
    return memory


def misaligned(address: int, size: int, action: str) -> MemoryFault:
    """The fault for an address that is not a multiple of the access size."""
    return MemoryFault(
        f"{action} of {size} bytes at {address:#x}: the address must be a multiple of {size}",
        hint=f"the nearest legal address is {address // size * size:#x}",
        details={"address": address, "bytes": size},
    )


def tell_strong(
    warp: Warp, space: str, address: int, order: Order, reads: bool, writes: bool, mask: Mask | None = None
) -> None:
    """Let a relaxed, acquire, release or volatile access of the lanes in `mask` move knowledge between warps."""
    hb = warp.cta.launch.order
    if hb is not None:
        key = address + (warp.cta.cluster.number << 48) if space.startswith("shared") else address
        lanes = ALL_LANES if mask is None else ballot(mask)
        hb.atomic(warp.agent, key, order, reads=reads, writes=writes, lanes=lanes)


def load_uniform(
    warp: Warp, space: str, address: int, width: int, count: int, mask: Mask | None, order: Order | None
) -> Any:
    """One address for the whole warp: an int, or a list of ``count`` ints of ``width`` bytes."""
    size = width * count
    memory, offset = resolve(warp, space, address, size, "load")
    if offset % size:
        raise misaligned(address, size, "load")
    if memory.shadow is not None:
        start = memory.shadow.base + offset
        memory.shadow.span(
            warp.agent,
            start,
            start + size,
            write=False,
            atomic=bool(order),
            instruction=warp.program.instruction(warp.at),
            lanes=uniform(start, size, None if mask is None else mask.tobytes()),
        )
    if offset in memory.barriers:
        return memory.barriers[offset].image() >> (8 * (offset % 8)) & ((1 << 8 * size) - 1)
    view = memory.views[width]
    first = offset >> _SHIFT[width]
    result = view.item(first) if count == 1 else view[first : first + count].tolist()
    if memory.poisoned and warp.cta.launch.protocol:
        check_read(warp, memory, offset, view[first : first + count], width)
    if order:
        tell_strong(warp, space, address, order, True, False, mask)
    return result


def load_lanes(
    warp: Warp, space: str, addresses: Array, width: int, count: int, mask: Mask | None, order: Order | None
) -> Array:
    """An address for each lane: unsigned[32], or unsigned[count, 32] for vectors."""
    size = width * count
    values = addresses.tolist() if mask is None else addresses[mask].tolist()
    first, number = values[0], len(values)
    if first // WINDOW == 2 and space == "generic":
        return load_local(warp, addresses - np.uint64(LOCAL_WINDOW), width, count, mask)
    memory, offset = resolve(warp, space, first, size, "load")
    base = first - offset
    if number == 32 and values == list(range(first, first + 32 * size, size)):
        if offset % size:
            raise misaligned(first, size, "load")
        if offset + 32 * size > memory.size:
            resolve(warp, space, values[-1], size, "load")
        if memory.shadow is not None:
            _tell_span(warp, memory, offset, 32 * size, order, (memory.shadow.base + offset, None, size, None))
        start = offset >> _SHIFT[width]
        chunk = memory.views[width][start : start + 32 * count]
        result = chunk.copy() if count == 1 else np.ascontiguousarray(chunk.reshape(32, count).T)
    else:
        offsets = _offsets(warp, space, values, base, memory, size, "load")
        if offsets is None:
            return _load_scattered(warp, space, addresses, width, count, mask, order)
        if memory.shadow is not None:
            _tell_lanes(warp, memory, offsets, size, mask, order)
        index = offsets >> _SHIFT[width]
        view = memory.views[width]
        found = view.take(index) if count == 1 else view.take(index + np.arange(count)[:, None])
        if mask is None:
            result = found
        else:
            result = np.zeros((32,) if count == 1 else (count, 32), found.dtype)
            result[..., mask] = found
    if memory.poisoned and warp.cta.launch.protocol:
        check_read(warp, memory, offset, result, width)
    if order:
        for address in values:
            tell_strong(warp, space, address, order, True, False, mask)
    return result


def _offsets(
    warp: Warp, space: str, values: list[int], base: int, memory: Allocation, size: int, action: str
) -> npt.NDArray[np.int64] | None:
    """Byte offsets of scattered lanes in one allocation; None when they do not all lie in it."""
    low, high = min(values) - base, max(values) - base
    if low < memory.low or high > memory.size - size:
        bad = min(values) if low < memory.low else max(values)
        other, _ = resolve(warp, space, bad, size, action)
        if other is not memory:
            return None
    offsets = np.array(values, np.int64) - base
    if size > 1 and int(np.bitwise_or.reduce(offsets)) & (size - 1):
        raise misaligned(next(v for v in values if v % size), size, action)
    return offsets


def _load_scattered(
    warp: Warp, space: str, addresses: Array, width: int, count: int, mask: Mask | None, order: Order | None
) -> Array:
    """Lanes that hit different allocations, one at a time."""
    result = np.zeros((count, 32), f"u{width}")
    for lane in range(32) if mask is None else np.flatnonzero(mask):
        result[:, lane] = load_uniform(warp, space, int(addresses[lane]), width, count, ONE_LANE[lane], order)
    return result[0] if count == 1 else result


def _tell_span(
    warp: Warp,
    memory: Allocation,
    offset: int,
    size: int,
    order: Order | None,
    lanes: Lanes,
    changes: Changes | None = None,
) -> None:
    """Tell the race check of contiguous bytes: a store gives ``changes``, a load none."""
    memory.shadow.span(
        warp.agent,
        memory.shadow.base + offset,
        memory.shadow.base + offset + size,
        write=changes is not None,
        atomic=bool(order),
        instruction=warp.program.instruction(warp.at),
        changes=changes,
        lanes=lanes,
    )


def _tell_lanes(
    warp: Warp,
    memory: Allocation,
    offsets: npt.NDArray[np.int64],
    size: int,
    mask: Mask | None,
    order: Order | None,
    changes: Changes | None = None,
) -> None:
    """Tell the race check of scattered lanes: a store gives ``changes``, a load none."""
    memory.shadow.lanes(
        warp.agent,
        offsets + memory.shadow.base,
        size,
        write=changes is not None,
        atomic=bool(order),
        instruction=warp.program.instruction(warp.at),
        changes=changes,
        active=None if mask is None else mask.tobytes(),
    )


def _changed(memory: Allocation, offsets: Any, values: Any, width: int) -> npt.NDArray[np.int64]:
    """Addresses of the elements that a store is about to change; each lane stores ``values`` from its offset on."""
    places = np.asarray(offsets, np.int64)[:, None] // width + np.arange(len(values))
    differs = memory.views[width][places] != np.stack([np.atleast_1d(value) for value in values], 1)
    changed: npt.NDArray[np.int64] = places[differs] * width + memory.shadow.base
    return changed


def _before_store(warp: Warp, memory: Allocation, low: int, high: int) -> None:
    if not memory.writable:
        raise MemoryFault(f"store to {memory.name}, which is read-only")
    if memory.barriers:
        start = memory.start
        warp.cta.cluster.mbarriers.check_store(
            start + low, start + high, by=warp.actor, instruction=warp.program.instruction(warp.at)
        )
    warp.cta.launch.machine.events += 1


def store_uniform(
    warp: Warp,
    space: str,
    address: int,
    values: tuple[int, ...],
    width: int,
    mask: Mask | None,
    order: Order | None,
) -> None:
    """One address for the whole warp; every active lane stores the same values."""
    size = width * len(values)
    memory, offset = resolve(warp, space, address, size, "store")
    if offset % size:
        raise misaligned(address, size, "store")
    _before_store(warp, memory, offset, offset + size)
    if memory.shadow is not None:
        lanes = uniform(memory.shadow.base + offset, size, None if mask is None else mask.tobytes())
        _tell_span(warp, memory, offset, size, order, lanes, lambda: _changed(memory, [offset], values, width))
    first = offset >> _SHIFT[width]
    view = memory.views[width]
    for index, value in enumerate(values):
        view[first + index] = value
    if order:
        tell_strong(warp, space, address, order, False, True, mask)


def store_lanes(
    warp: Warp,
    space: str,
    addresses: Array,
    values: tuple[Array, ...],
    width: int,
    mask: Mask | None,
    order: Order | None,
) -> None:
    """An address and values for each lane; where lanes collide the highest lane wins."""
    count = len(values)
    size = width * count
    where = addresses.tolist() if mask is None else addresses[mask].tolist()
    first = where[0]
    if first // WINDOW == 2 and space == "generic":
        store_local(warp, addresses - np.uint64(LOCAL_WINDOW), values, width, mask)
        return
    memory, offset = resolve(warp, space, first, size, "store")
    base = first - offset
    view = memory.views[width]
    if len(where) == 32 and where == list(range(first, first + 32 * size, size)):
        if offset % size:
            raise misaligned(first, size, "store")
        if offset + 32 * size > memory.size:
            resolve(warp, space, where[-1], size, "store")
        _before_store(warp, memory, offset, offset + 32 * size)
        if memory.shadow is not None:
            every = range(offset, offset + 32 * size, size)
            lanes = memory.shadow.base + offset, None, size, None
            _tell_span(warp, memory, offset, 32 * size, order, lanes, lambda: _changed(memory, every, values, width))
        start = offset >> _SHIFT[width]
        if count == 1:
            view[start : start + 32] = values[0]
        else:
            target = view[start : start + 32 * count].reshape(32, count)
            for index, value in enumerate(values):
                target[:, index] = value
    else:
        offsets = _offsets(warp, space, where, base, memory, size, "store")
        if offsets is None:
            _store_scattered(warp, space, addresses, values, width, mask, order)
            return
        _before_store(warp, memory, int(offsets.min()), int(offsets.max()) + size)
        active = values if mask is None else tuple(value[mask] for value in values)
        if memory.shadow is not None:
            _tell_lanes(warp, memory, offsets, size, mask, order, lambda: _changed(memory, offsets, active, width))
        index_array = offsets >> _SHIFT[width]
        for index, value in enumerate(active):
            view[index_array + index] = value
    if order:
        for address in where:
            tell_strong(warp, space, address, order, False, True, mask)


def _store_scattered(
    warp: Warp,
    space: str,
    addresses: Array,
    values: tuple[Array, ...],
    width: int,
    mask: Mask | None,
    order: Order | None,
) -> None:
    for lane in range(32) if mask is None else np.flatnonzero(mask):
        each = tuple(int(value[lane]) for value in values)
        store_uniform(warp, space, int(addresses[lane]), each, width, ONE_LANE[lane], order)


def _local(
    warp: Warp | LockstepGroup, addresses: Array, width: int, count: int, mask: Mask | None, action: str
) -> tuple[Array, Array]:
    """Lane numbers and element indices of a per-lane access."""
    bytes_a_lane = max(16, -(-warp.program.local_bytes // 16) * 16)
    if warp.local is None:
        warp.local = np.full((warp.program.lanes, bytes_a_lane), 0xFF, np.uint8)
    lanes = np.arange(warp.program.lanes) if mask is None else np.flatnonzero(mask)
    offsets = np.broadcast_to(np.asarray(addresses), (warp.program.lanes,))[lanes].astype(np.int64)
    size = width * count
    held = warp.local.shape[1]
    end = warp.program.local_bytes if held == bytes_a_lane else held  # It grows with calls and the stack.
    if offsets.min() < 0 or int(offsets.max()) + size > end:
        raise MemoryFault(f"{action} of {size} bytes outside the {warp.program.local_bytes} bytes of local memory")
    if (offsets % size).any():
        raise misaligned(int(offsets[offsets % size != 0][0]), size, action)
    return lanes, offsets >> _SHIFT[width]


def load_local(warp: Warp | LockstepGroup, addresses: Array, width: int, count: int, mask: Mask | None) -> Array:
    """Local memory: each lane has its own."""
    lanes, index = _local(warp, addresses, width, count, mask, "load")
    view = warp.local.view(f"u{width}")
    result = np.zeros((count, warp.program.lanes), view.dtype)
    for part in range(count):
        result[part, lanes] = view[lanes, index + part]
    return result[0] if count == 1 else result


def store_local(
    warp: Warp | LockstepGroup, addresses: Array, values: tuple[Array, ...], width: int, mask: Mask | None
) -> None:
    """Local memory: each lane has its own."""
    lanes, index = _local(warp, addresses, width, len(values), mask, "store")
    view = warp.local.view(f"u{width}")
    for part, value in enumerate(values):
        view[lanes, index + part] = value[lanes]
