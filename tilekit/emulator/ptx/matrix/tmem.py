"""Tensor memory: its cells, their allocation, and how warps' registers map to them.

128 lanes of 512 columns of 32 bits for each CTA; an address is ``lane << 16 | column``. An allocation is a power of two
of columns, at the first multiple of its size that is free. See PTX ISA, "Tensor Memory" and "tcgen05 memory layout".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.shadow import Memory, Race
from tilekit.emulator.core.errors import MemoryFault, ProtocolError

__all__ = [
    "COLUMNS",
    "LANES",
    "Allocations",
    "Region",
    "RegisterShape",
    "TensorMemory",
    "TensorShadow",
    "split_address",
]

LANES = 128
COLUMNS = 512
_POISON = 0xFFFFFFFF
_COLUMN_BYTES = 4 * LANES  # The race check sees columns one after another, the lanes of each side by side.


def split_address(address: int) -> tuple[int, int]:
    """Return the (lane, column) of a tensor-memory address."""
    return address >> 16 & 0xFFFF, address & 0xFFFF


class Region(NamedTuple):
    """A rectangle of cells: lanes ``first`` to ``last`` (exclusive), columns ``left`` to ``right`` (exclusive)."""

    first: int
    last: int
    left: int
    right: int

    def __str__(self) -> str:
        return f"lanes {self.first} to {self.last - 1}, columns {self.left} to {self.right - 1}"


class TensorShadow(Memory):
    """The race check's view of a CTA's tensor memory."""

    def __init__(self, cta: int, on_race: Callable[[Race], None]) -> None:
        super().__init__(f"tensor memory of CTA {cta}", 0, LANES * COLUMNS * 4, on_race)

    def describe(self, low: int, high: int) -> str:
        """Columns instead of bytes."""
        return f"{self.name}, columns {low // _COLUMN_BYTES} to {(high - 1) // _COLUMN_BYTES}"

    def region(self, party: Any, region: Region, *, write: bool, atomic: bool = False, instruction: Any = None) -> None:
        """Access a rectangle."""
        low = region.left * _COLUMN_BYTES + region.first * 4
        height, width = (region.last - region.first) * 4, region.right - region.left
        self.rows(party, low, width, height, _COLUMN_BYTES, write=write, atomic=atomic, instruction=instruction)


class Allocations:
    """Who owns which columns of one CTA.

    Attributes
    ----------
    starts
        Columns of each live allocation, by first column.
    smallest
        Columns of the smallest allocation so far: later ones must not be larger than any earlier one.
    freed
        Allocations given back, by first column, for messages.
    permit
        Whether the CTA may still allocate.
    """

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        self.smallest = COLUMNS
        self.permit = True

    def check_request(self, count: int) -> None:
        """Check a request for columns.

        Raises
        ------
        ProtocolError
            If the count or the moment is not allowed.
        """
        if count not in (32, 64, 128, 256, 512):
            nearest = min((32, 64, 128, 256, 512), key=lambda n: abs(n - count))
            raise ProtocolError(
                f"tcgen05.alloc of {count} columns; legal: 32, 64, 128, 256 or 512", hint=f"nearest legal: {nearest}"
            )
        if not self.permit:
            raise ProtocolError(
                "tcgen05.alloc after tcgen05.relinquish_alloc_permit: this CTA has given up its permit",
                hint="allocate everything first, then relinquish",
            )
        if count > self.smallest:
            raise ProtocolError(
                f"tcgen05.alloc of {count} columns after one of {self.smallest}: an allocation must not be larger than "
                "an earlier one of the same CTA",
                hint="allocate the largest piece first",
            )

    def find(self, *others: Allocations, count: int) -> int | None:
        """The first aligned place that is free here and in the others; None when there is none."""
        for start in range(0, COLUMNS, count):
            if all(each.is_free(start, start + count) for each in (self, *others)):
                return start
        return None

    def is_free(self, left: int, right: int) -> bool:
        """Whether no allocation touches the columns."""
        return all(start >= right or start + size <= left for start, size in self.starts.items())

    def take(self, start: int, count: int) -> None:
        """Record an allocation."""
        self.starts[start] = count
        self.freed.pop(start, None)
        self.smallest = min(self.smallest, count)

    def give(self, address: int, count: int) -> int:
        """Forget an allocation; returns its first column.

        Raises
        ------
        ProtocolError
            If the address and the count are not those of a live allocation.
        """
        lane, start = split_address(address)
        size = self.starts.get(start) if lane == 0 else None
        if size is None:
            known = ", ".join(f"{s:#x} ({n} columns)" for s, n in sorted(self.starts.items())) or "none"
            twice = "was freed before" if lane == 0 and start in self.freed else "is no allocation's"
            raise ProtocolError(
                f"tcgen05.dealloc of tensor memory {address:#x}, which {twice}",
                hint=f"live allocations: {known}",
                details={"address": address, "columns": count},
            )
        if size != count:
            raise ProtocolError(
                f"tcgen05.dealloc of {count} columns at {address:#x}, where {size} were allocated",
                hint="free exactly what was allocated",
                details={"address": address, "columns": count, "allocated": size},
            )
        del self.starts[start]
        self.freed[start] = size
        return start


class TensorMemory:
    """Tensor memory of one CTA.

    Attributes
    ----------
    cells
        uint32[128, 512].
    written
        Which cells have been written since they were allocated.
    """

    def __init__(self, cta: int, on_race: Callable[[Race], None] | None) -> None:
        self.cta = cta
        self.cells: npt.NDArray[np.uint32] = np.full((LANES, COLUMNS), _POISON, np.uint32)
        self.written: npt.NDArray[np.bool_] = np.zeros((LANES, COLUMNS), np.bool_)
        self.allocations = Allocations()
        self.shadow = TensorShadow(cta, on_race) if on_race is not None else None

    def clear(self, left: int, right: int) -> None:
        """Poison columns that change hands."""
        self.cells[:, left:right] = _POISON
        self.written[:, left:right] = False

    def check(self, region: Region, what: str) -> None:
        """Check that an access stays inside one CTA's live allocations.

        Raises
        ------
        MemoryFault
            If a lane or column does not exist, was not allocated, or has been freed; or if there are none.
        """
        if not (0 <= region.first < region.last <= LANES and 0 <= region.left < region.right <= COLUMNS):
            raise MemoryFault(f"{what} of {region}: tensor memory has {LANES} lanes and {COLUMNS} columns")
        left = region.left
        starts = self.allocations.starts
        while left < region.right:
            owner = next((s for s, n in starts.items() if s <= left < s + n), None)
            if owner is None:
                freed = any(s <= left < s + n for s, n in self.allocations.freed.items())
                held = ", ".join(f"{s} to {s + n - 1}" for s, n in sorted(starts.items())) or "none"
                raise MemoryFault(
                    f"{what} of {region} in tensor memory of CTA {self.cta}: column {left} "
                    + ("has been deallocated" if freed else "is not allocated"),
                    hint=f"columns allocated now: {held}",
                    details={"column": left},
                )
            left = owner + starts[owner]

    def require_written(self, region: Region, what: str, *, but: npt.NDArray[np.bool_] | None = None) -> None:
        """Check that every cell of a region has been written, except in the lanes that ``but`` says are not read.

        Raises
        ------
        MemoryFault
            If one has not.
        """
        inside = self.written[region.first : region.last, region.left : region.right]
        if but is not None:
            inside = inside | but[region.first : region.last, None]
        if not inside.all():
            lane, column = (int(x) for x in np.argwhere(~inside)[0])
            raise MemoryFault(
                f"{what} of {region}: lane {region.first + lane}, column {region.left + column} was never written",
                hint="for an accumulator: the first mma must have enable-input-d false, or st must clear it",
            )

    def read(self, region: Region) -> npt.NDArray[np.uint32]:
        """A view of a region."""
        return self.cells[region.first : region.last, region.left : region.right]

    def write(self, region: Region, values: npt.NDArray[np.uint32]) -> None:
        """Set the cells of a region."""
        self.cells[region.first : region.last, region.left : region.right] = values
        self.written[region.first : region.last, region.left : region.right] = True


class RegisterShape(NamedTuple):
    """A shape of ``tcgen05.ld`` and ``tcgen05.st``.

    Attributes
    ----------
    name, repeat
        Such as ``16x256b`` and the number after ``x``.
    packed
        ``.pack::16b`` or ``.unpack::16b``: a register holds the low halves of two neighbouring columns.
    split
        Columns between the two halves of ``16x32bx2``.
    """

    name: str
    repeat: int
    packed: bool = False
    split: int = 0

    @property
    def lanes(self) -> int:
        """Lanes of tensor memory that one access touches."""
        return 32 if self.name == "32x32b" else 16

    @property
    def registers(self) -> int:
        """Registers of each thread."""
        return self.repeat * {"16x128b": 2, "16x256b": 4}.get(self.name, 1)

    def regions(self, lane: int, column: int) -> list[Region]:
        """The rectangles that an access at a lane and column touches."""
        width = self.repeat * {"16x64b": 2, "16x128b": 4, "16x256b": 8}.get(self.name, 1) * (2 if self.packed else 1)
        places = [column, column + self.split] if self.name == "16x32bx2" else [column]
        return [Region(lane, lane + self.lanes, left, left + width) for left in places]


@lru_cache(maxsize=256)
def _register_cells(shape: RegisterShape) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(lane, column) offsets of each register of each thread: int[registers, 32]."""
    t = np.arange(32)
    j = np.arange(shape.registers)[:, None]
    match shape.name:
        case "32x32b":
            lane, column = t + 0 * j, j + 0 * t
        case "16x64b":
            lane, column = (t >> 2) + 8 * (t & 1) + 0 * j, 2 * j + ((t >> 1) & 1)
        case "16x128b":
            lane, column = (t >> 2) + 8 * (j & 1), 4 * (j >> 1) + (t & 3)
        case "16x256b":
            lane, column = (t >> 2) + 8 * ((j >> 1) & 1), 8 * (j >> 2) + 2 * (t & 3) + (j & 1)
        case _:
            # The offset between the halves is given in cells, packed or not.
            lane, column = (t & 15) + 0 * j, j + 0 * t
    return np.asarray(lane, np.intp), np.asarray(column, np.intp)


def _columns(shape: RegisterShape, column: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Physical columns of logical ones, with the split of ``16x32bx2``."""
    found = column * (2 if shape.packed else 1)
    if shape.name == "16x32bx2":
        found = found + shape.split * (np.arange(32) >> 4)
    return found


def load_registers(memory: TensorMemory, shape: RegisterShape, lane: int, column: int) -> npt.NDArray[np.uint32]:
    """Return what ``tcgen05.ld`` loads: uint32[registers, 32]."""
    if shape.name == "32x32b" and not shape.packed:
        return memory.cells[lane : lane + 32, column : column + shape.repeat].T
    lanes, columns = _register_cells(shape)
    rows, places = lanes + lane, _columns(shape, columns) + column
    if not shape.packed:
        return memory.cells[rows, places]
    halves = np.uint32(0xFFFF)
    return (memory.cells[rows, places] & halves) | (memory.cells[rows, places + 1] & halves) << np.uint32(16)


def store_registers(
    memory: TensorMemory, shape: RegisterShape, lane: int, column: int, values: npt.NDArray[np.uint32]
) -> None:
    """Write what ``tcgen05.st`` stores: uint32[registers, 32]. Unpacked halves fill the low part of their cells."""
    lanes, columns = _register_cells(shape)
    rows, places = lanes + lane, _columns(shape, columns) + column
    if not shape.packed:
        memory.cells[rows, places] = values
    else:
        memory.cells[rows, places] = values & np.uint32(0xFFFF)
        memory.cells[rows, places + 1] = values >> np.uint32(16)
    for region in shape.regions(lane, column):
        memory.written[region.first : region.last, region.left : region.right] = True
