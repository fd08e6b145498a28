"""Stores of several instructions made together: as good as one by one where nothing is to be said of any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.core.memory.memory import LOCAL_WINDOW, WINDOW, Allocation
from tilekit.emulator.ptx.memory.access import resolve, store_lanes

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

Array = npt.NDArray[Any]
RECORDS = {size: np.dtype((np.void, size)) for size in (2, 4, 8, 16)}
"""What a lane stores, by its size in bytes."""


def store_together(
    warp: Warp,
    space: str,
    width: int,
    count: int,
    positions: tuple[int, ...],
    addresses: tuple[Array, ...],
    values: tuple[Array, ...],
) -> None:
    """Plain stores by all lanes, of the instructions at ``positions``; where lanes collide the last one wins.

    Parameters
    ----------
    width, count
        Bytes of an element, and how many of them a lane stores.
    addresses
        For each instruction unsigned[32].
    values
        For each instruction ``count`` unsigned[32] of ``width`` bytes.
    """
    number = len(positions)
    size = width * count
    place = None
    if number > 1 and size in RECORDS:
        place = free_place(warp, space, np.concatenate(addresses), size)
    if place is None:
        for n, position in enumerate(positions):
            warp.at = position
            store_lanes(warp, space, addresses[n], values[n * count : (n + 1) * count], width, None, None)
        return
    memory, offsets = place
    elements = np.concatenate(values).reshape(number, count, 32)
    records = np.ascontiguousarray(elements.transpose(0, 2, 1)).view(RECORDS[size])
    memory.data.view(RECORDS[size])[offsets // size] = records.reshape(-1)
    warp.cta.launch.machine.events += number


def free_place(warp: Warp, space: str, addresses: Array, size: int) -> tuple[Allocation, npt.NDArray[np.int64]] | None:
    """Memory and byte offsets of the addresses, at each of which ``size`` bytes, a power of two, may be stored.

    None where that is not certain: they are not all in one allocation, one is misaligned, a barrier may be among the
    bytes, or each store must be noted by itself.
    """
    low, high = int(addresses.min()), int(addresses.max())
    if low // WINDOW == LOCAL_WINDOW // WINDOW:
        return None
    try:
        memory, first = resolve(warp, space, low, size, "store")
    except MemoryFault:
        return None
    end = first + high - low + size
    if memory.shadow is not None or not memory.writable or end > memory.size:
        return None
    if memory.barriers and warp.cta.cluster.mbarriers.overlapping(memory.start + first, memory.start + end) is not None:
        return None
    offsets = addresses.astype(np.int64) - (low - first)
    if int(np.bitwise_or.reduce(offsets)) & (size - 1):
        return None
    return memory, offsets
