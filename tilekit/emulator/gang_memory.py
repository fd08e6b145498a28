"""Loads and stores of a gang: many warps at once, and which of their threads touched what.

No order exists between the warps of a gang, nor between one gang and the next. So a launch is free of races if no byte
that one thread writes is accessed by another one, and a number for each unit of memory tells. What is not plainly free
of them is not judged here: see `Unsure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .access import load_local, store_local
from .memory import LOCAL_WINDOW, PARAM_WINDOW, WINDOW, Allocation

if TYPE_CHECKING:
    from .gang import Gang
    from .launch import Launch

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Units = slice | npt.NDArray[np.int64]
"""Places in an array of units, in the order of the lanes; a slice where they follow one another."""

MANY = np.full(1, -1, np.int32)
"""Stands for several threads, where otherwise the number of one does."""
_LISTED = 1024


class Unsure(Exception):  # noqa: N818  it is no error of the kernel's, nor seen outside
    """A gang has met what only single warps can judge: a fault, or threads that touch the same bytes."""


class Ownership:
    """Which thread has written, and which has read, each unit of an allocation: its number, from 1, or 0 for nobody.

    Until the allocation is first written, reads are only listed. A unit is four bytes, less once it has to be.
    """

    __slots__ = ("_listed", "_readers", "_shift", "_size", "_writers")

    def __init__(self, size: int) -> None:
        self._size = size
        self._shift = 2
        self._writers: Numbers | None = None
        self._readers: Numbers
        self._listed: list[tuple[Units, Numbers]] = []

    def read(self, offsets: range | npt.NDArray[np.int64], size: int, threads: Numbers) -> None:
        """Note that each thread reads ``size`` bytes at its offset."""
        units, threads = self._units(offsets, size, threads)
        if self._writers is None and len(self._listed) < _LISTED:
            self._listed.append((units, threads))
            return
        _require_own(self._settled()[units], threads)
        self._note_readers(units, threads)

    def write(self, offsets: range | npt.NDArray[np.int64], size: int, threads: Numbers) -> None:
        """Note that each thread writes ``size`` bytes at its offset."""
        units, threads = self._units(offsets, size, threads)
        writers = self._settled()
        _require_own(writers[units], threads)
        _require_own(self._readers[units], threads)
        writers[units] = threads
        if not isinstance(units, slice):
            _require_own(writers[units], threads)

    def _units(self, offsets: range | npt.NDArray[np.int64], size: int, threads: Numbers) -> tuple[Units, Numbers]:
        if size < 1 << self._shift:
            self._refine(size.bit_length() - 1)
        count = size >> self._shift
        owners = threads if count == 1 or threads is MANY else np.repeat(threads, count)
        if isinstance(offsets, range):
            return slice(offsets.start >> self._shift, offsets.stop >> self._shift), owners
        first = offsets >> self._shift
        return (first if count == 1 else (first[:, None] + np.arange(count)).ravel()), owners

    def _refine(self, shift: int) -> None:
        """Let a unit be ``1 << shift`` bytes."""
        by = 1 << self._shift - shift
        if self._writers is not None or self._listed:
            self._writers = np.repeat(self._settled(), by)
            self._readers = np.repeat(self._readers, by)
        self._shift = shift

    def _settled(self) -> Numbers:
        """The writers, with the listed reads among the readers."""
        if self._writers is None:
            units = -(-self._size // 16) * 16 >> self._shift
            self._writers, self._readers = np.zeros(units, np.int32), np.zeros(units, np.int32)
            for places, threads in self._listed:
                self._note_readers(places, threads)
            self._listed.clear()
        return self._writers

    def _note_readers(self, units: Units, threads: Numbers) -> None:
        readers = self._readers
        known = readers[units]
        readers[units] = np.where((known == 0) | (known == threads), threads, MANY)
        if not isinstance(units, slice):  # Several threads may have read a unit just now.
            others = readers[units] != threads
            if others.any():
                readers[units[others]] = MANY


def _require_own(owners: Numbers, threads: Numbers) -> None:
    if not ((owners == threads) | (owners == 0)).all():
        raise Unsure


class GangMemory:
    """Global memory and parameters as the gangs of one launch use them.

    Parameters
    ----------
    launch
        Whose races are looked for if it checks everything.
    """

    def __init__(self, launch: Launch) -> None:
        self._global = launch.memory
        self._parameters = launch.parameters
        self._check = launch.order is not None
        self._owners: dict[int, Ownership] = {}
        self._before: dict[int, tuple[Allocation, Array]] = {}

    def at(self, address: int) -> Allocation:
        """The allocation that an address may lie in."""
        if address // WINDOW == PARAM_WINDOW // WINDOW:
            return self._parameters
        found = self._global.find(address)
        if found is None or found.poisoned:
            raise Unsure
        return found

    def told_read(
        self, memory: Allocation, offsets: range | npt.NDArray[np.int64], size: int, threads: Numbers
    ) -> None:
        """Note a read of ``size`` bytes at each offset."""
        if self._check and memory.writable:
            self._owners.setdefault(memory.start, Ownership(memory.size)).read(offsets, size, threads)

    def told_write(
        self, memory: Allocation, offsets: range | npt.NDArray[np.int64], size: int, threads: Numbers
    ) -> None:
        """Note a write of ``size`` bytes at each offset, before it takes place."""
        if not memory.writable:
            raise Unsure
        if memory.start not in self._before:
            self._before[memory.start] = memory, memory.data.copy()
        if self._check:
            self._owners.setdefault(memory.start, Ownership(memory.size)).write(offsets, size, threads)

    def restore(self) -> None:
        """Put every allocation back as it was before the launch."""
        for memory, data in self._before.values():
            memory.data[:] = data


def _place(gang: Gang, addresses: Array, size: int) -> tuple[Allocation, range | npt.NDArray[np.int64]]:
    """The allocation that all addresses lie in, and the offsets: a range of bytes where lane follows lane."""
    first = int(addresses[0])
    memory = gang.memory.at(first)
    offset = first - memory.start
    count = len(addresses)
    offsets = (addresses.astype(np.uint64, copy=False) - np.uint64(memory.start)).view(np.int64)
    if int(addresses[-1]) - first == (count - 1) * size and np.array_equal(offsets, offset + gang.steps(size)[:count]):
        if offset % size or offset < memory.low or offset + count * size > memory.size:
            raise Unsure
        return memory, range(offset, offset + count * size)
    if int(offsets.min()) < memory.low or int(offsets.max()) > memory.size - size:
        raise Unsure
    if int(np.bitwise_or.reduce(offsets)) & (size - 1):
        raise Unsure
    return memory, offsets


def load_uniform(gang: Gang, space: str, address: int, width: int, count: int, *_: object) -> Any:
    """One address for all lanes, however many are active: an int, or a list of ``count`` ints of ``width`` bytes."""
    memory = gang.memory.at(address)
    size = width * count
    offset = address - memory.start
    if offset % size or not memory.low <= offset <= memory.size - size:
        raise Unsure
    gang.memory.told_read(memory, range(offset, offset + size), size, MANY)
    first = offset // width
    view = memory.views[width]
    return view.item(first) if count == 1 else view[first : first + count].tolist()


def load_lanes(
    gang: Gang, space: str, addresses: Array, width: int, count: int, mask: Mask | None, order: None
) -> Array:
    """An address for each lane: unsigned[lanes], or unsigned[count, lanes] for vectors."""
    if mask is not None and mask.all():
        mask = None
    active, threads = (addresses, gang.numbers) if mask is None else (addresses[mask], gang.numbers[mask])
    if space == "generic" and int(active[0]) // WINDOW == LOCAL_WINDOW // WINDOW:
        return load_local(gang, addresses - np.uint64(LOCAL_WINDOW), width, count, mask)
    memory, offsets = _place(gang, active, width * count)
    gang.memory.told_read(memory, offsets, width * count, threads)
    view = memory.views[width]
    if isinstance(offsets, range):
        found = view[offsets.start // width : offsets.stop // width].reshape(-1, count).T
    else:
        found = view.take(offsets // width + np.arange(count)[:, None])
    if mask is None:
        result = found.copy()
    else:
        result = np.zeros((count, mask.size), found.dtype)
        result[:, mask] = found
    return result[0] if count == 1 else result


def store_lanes(
    gang: Gang, space: str, addresses: Array, values: tuple[Array, ...], width: int, mask: Mask | None, order: None
) -> None:
    """An address and values for each lane; where lanes collide the highest lane wins."""
    if mask is not None and mask.all():
        mask = None
    active, threads = (addresses, gang.numbers) if mask is None else (addresses[mask], gang.numbers[mask])
    if space == "generic" and int(active[0]) // WINDOW == LOCAL_WINDOW // WINDOW:
        store_local(gang, addresses - np.uint64(LOCAL_WINDOW), values, width, mask)
        return
    count = len(values)
    memory, offsets = _place(gang, active, width * count)
    gang.memory.told_write(memory, offsets, width * count, threads)
    view = memory.views[width]
    for index, value in enumerate(values):
        given = value if mask is None else value[mask]
        if isinstance(offsets, range):
            view[offsets.start // width + index : offsets.stop // width : count] = given
        else:
            view[offsets // width + index] = given
