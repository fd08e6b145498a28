"""Address spaces and allocations.

One 64-bit generic space holds disjoint windows. A shared address is ``CTA rank << 24 | offset`` within its cluster,
as on hardware; the first kilobyte of a CTA's shared memory is reserved, as on hardware. Every allocation is an array
of its own, far from any other in the address space, so an access that leaves it always hits nothing: no canary can be
stepped over.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault

Bytes = npt.NDArray[np.uint8]

SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 2 << 40
PARAM_WINDOW = 3 << 40
FUNCTION_WINDOW = 4 << 40
GLOBAL_BASE = 0x7F00_0000_0000
WINDOW = 1 << 40
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
RESERVED_SHARED = 1024
_GAP = 1 << 16
_UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
POISON = 0x7FA37FA3
"""Every word of fresh shared memory: a NaN in the 16- and 32-bit types, a wild address, and rare as a real value."""


class Allocation:
    """A range of memory with a name.

    Attributes
    ----------
    start
        Address of ``data[0]`` in its space.
    low, size
        Accessible offsets are ``low <= offset < size``.
    data
        The bytes, padded to a multiple of 16.
    views
        The same bytes by element size: 1, 2, 4 and 8 bytes, unsigned.
    writable
        Whether kernels may write to it.
    poisoned
        Whether it started as poison, so that a read of unwritten memory is noticed.
    barriers
        Offsets at which a live mbarrier lies.
    """

    __slots__ = ("barriers", "data", "low", "name", "poisoned", "shadow", "size", "space", "start", "views", "writable")

    def __init__(self, name: str, space: str, start: int, size: int, *, low: int = 0, poison: bool = False) -> None:
        padded = -(-max(size, 1) // 16) * 16
        self.name = name
        self.space = space
        self.start = start
        self.low = low
        self.size = size
        self.data: Bytes = np.full(padded // 4, POISON if poison else 0, np.uint32).view(np.uint8)
        self.poisoned = poison
        self.views: dict[int, npt.NDArray[Any]] = {n: self.data.view(dtype) for n, dtype in _UNSIGNED.items()}
        self.writable = True
        self.barriers: dict[int, Any] = {}
        self.shadow: Any = None

    @property
    def bounds(self) -> tuple[int, int]:
        """First accessible offset, and the one after the last."""
        return self.low, self.size

    def describe(self, offset: int) -> str:
        """Name and byte offset, for messages."""
        return f"{self.name} + {offset:#x} (size {self.size:#x})"


class GlobalMemory:
    """The allocations of a device.

    Attributes
    ----------
    heap
        What kernels allocated with ``malloc``, by address; it lives on when they end.
    """

    def __init__(self) -> None:
        self.heap: dict[int, Allocation] = {}
        self._next = GLOBAL_BASE
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []

    def allocate(self, size: int, name: str, *, align: int = 256, poison: bool = False) -> Allocation:
        """Reserve ``size`` bytes (zero allowed) that start at a multiple of ``align``."""
        start = -(-self._next // align) * align
        allocation = Allocation(name, "global", start, size, poison=poison)
        self._next = start + size + _GAP
        self._starts.append(start)
        self._allocations.append(allocation)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Forget an allocation; its addresses are never used again."""
        index = bisect.bisect_left(self._starts, allocation.start)
        if index < len(self._starts) and self._allocations[index] is allocation:
            del self._starts[index], self._allocations[index]

    def allocations(self) -> list[Allocation]:
        """Every live allocation, by address."""
        return list(self._allocations)

    def find(self, address: int) -> Allocation | None:
        """The allocation at or before an address; the caller checks that the address is inside."""
        index = bisect.bisect_right(self._starts, address) - 1
        return self._allocations[index] if index >= 0 else None

    def at(self, address: int, size: int, action: str) -> tuple[Allocation, int]:
        """The allocation and offset of ``size`` bytes at an address.

        Raises
        ------
        MemoryFault
            If they are not inside one allocation.
        """
        allocation = self.find(address)
        if allocation is not None:
            offset = address - allocation.start
            if offset >= 0 and offset + size <= allocation.size:
                return allocation, offset
        raise self.fault(address, size, action)

    def fault(self, address: int, size: int, action: str) -> MemoryFault:
        """What to say of an address outside every allocation."""
        details = {"address": address, "bytes": size}
        if address < 1 << 16:
            return MemoryFault(f"{action} of {size} bytes at {address:#x}: a null pointer", details=details)
        if address < GLOBAL_BASE:
            return MemoryFault(
                f"{action} of {size} bytes at {address:#x}: not a global address "
                f"({window_name(address)}); convert with cvta and use the matching state space",
                details=details,
            )
        allocation = self.find(address)
        if allocation is None:
            return MemoryFault(f"{action} of {size} bytes at {address:#x}: outside every allocation", details=details)
        offset = address - allocation.start
        return MemoryFault(
            f"{action} of {size} bytes at {address:#x}: out of bounds of {allocation.describe(offset)}, "
            f"{max(0, offset + size - allocation.size)} bytes past its end",
            details=details,
        )


def window_name(address: int) -> str:
    """Which state space a generic address lies in."""
    window = address // WINDOW
    names = {0: "no window: a 32-bit shared or local address?", 1: "the shared window", 2: "the local window"}
    names |= {3: "the parameter window", 4: "a function's address"}
    return names.get(window, "global memory")
