"""Loads and stores of a group: many warps at once, and which of their threads touched what.

Threads of one CTA are ordered by its barrier, and no others. So a launch is free of races if no byte that one thread
writes is accessed by another one, unless both are of one CTA with a barrier in between; two numbers for each unit of
memory tell. What is not plainly free of races is not judged here: see `Unsure`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.memory.memory import LOCAL_WINDOW, PARAM_WINDOW, POISON, SHARED_WINDOW, WINDOW, Allocation
from tilekit.emulator.ptx.memory.access import load_local, store_local

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.lockstep import LockstepGroup
    from tilekit.emulator.ptx.launch import Launch

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Offsets = range | npt.NDArray[np.int64]
"""Byte offset of each lane's access; a range of bytes where lane follows lane."""
Units = slice | npt.NDArray[np.int64]
"""Places in an array of units, in the order of the lanes; a slice where they follow one another."""
Unchanged = Callable[[], Mask]
"""Tells of each lane whether memory holds what it stores."""

_EPOCHS = 20
"""Bits of a moment that count the barriers a CTA has passed; the bits above number the CTA."""
_SAME_CTA = -1 << _EPOCHS
_LISTED = 1024
_FRESH = {2: POISON & 0xFFFF, 4: POISON, 8: POISON << 32 | POISON}
"""What fresh shared memory holds, by width."""


class Unsure(Exception):  # noqa: N818  it is no error of the kernel's, nor seen outside
    """A lockstep group has met what only single warps can judge: a fault, or threads that touch the same bytes."""


class Who(NamedTuple):
    """Those who access memory, one a lane.

    Attributes
    ----------
    threads
        Number of each thread in the launch, from 1.
    moments
        The CTA's number and how many barriers it has passed; None in kernels without barriers.
    """

    threads: npt.NDArray[np.int32]
    moments: npt.NDArray[np.int64] | None

    def where(self, mask: Mask | None) -> Who:
        """Some of the lanes."""
        if mask is None:
            return self
        return Who(self.threads[mask], None if self.moments is None else self.moments[mask])

    def repeated(self, count: int) -> Who:
        """Each of them ``count`` times in succession."""
        if count == 1 or self.threads.size == 1:
            return self
        return Who(np.repeat(self.threads, count), None if self.moments is None else np.repeat(self.moments, count))

    def behind_barrier(self, mask: Mask | None) -> Who:
        """The same lanes after those of ``mask`` have passed a barrier."""
        assert self.moments is not None
        return Who(self.threads, self.moments + (1 if mask is None else mask))

    @classmethod
    def of(cls, first: int, ctas: int, lanes: int, *, barriers: bool) -> Who:
        """The lanes of CTAs from ``first`` on that have ``lanes`` each, before any barrier."""
        threads = np.arange(first * lanes + 1, (first + ctas) * lanes + 1, dtype=np.int32)
        moments = np.repeat(np.arange(first, first + ctas, dtype=np.int64) << _EPOCHS, lanes) if barriers else None
        return cls(threads, moments)


MANY = Who(np.full(1, -1, np.int32), None), Who(np.full(1, -1, np.int32), np.full(1, -1, np.int64))
"""Stand for threads of several CTAs; in kernels without and with barriers."""


class _Touched:
    """Who has read, or written, each unit of an allocation: thread 0 for none, -1 for several."""

    __slots__ = ("moments", "threads")

    def __init__(self, units: int, barriers: bool) -> None:
        self.threads = np.zeros(units, np.int32)
        self.moments = np.zeros(units if barriers else 0, np.int64)

    def refine(self, by: int) -> None:
        self.threads, self.moments = np.repeat(self.threads, by), np.repeat(self.moments, by)

    def unordered(self, units: Units, who: Who) -> Mask | None:
        """Which of the units were touched by another thread than now, with no barrier in between; None for none."""
        held = self.threads[units]
        fine = (held == who.threads) | (held == 0)
        if np.count_nonzero(fine) == fine.size:
            return None
        if who.moments is not None:
            then = self.moments[units]
            fine |= (then < who.moments) & (then >= (who.moments & _SAME_CTA))
            if np.count_nonzero(fine) == fine.size:
                return None
        late: Mask = ~fine
        return late

    def write(self, units: Units, who: Who, more: Mask | None) -> bool:
        """Note writes, of which ``more`` come on top of unordered ones; whether some of them fell on the same units."""
        then = None if more is None or who.moments is None else self.moments[units]
        self.threads[units] = who.threads
        if who.moments is not None:
            self.moments[units] = who.moments
        collided = False
        if isinstance(units, slice):
            if more is None:
                return False
            units = np.arange(units.start, units.stop)
            several = more
        else:
            several = self.threads[units] != who.threads
            collided = bool(np.count_nonzero(several))
            several = several if more is None else several | more
        if np.count_nonzero(several):
            self.threads[units[several]] = -1
            if who.moments is not None:
                foreign = (self.moments[units] ^ who.moments) & _SAME_CTA != 0
                if then is not None and more is not None:
                    foreign |= more & ((then ^ who.moments) & _SAME_CTA != 0)
                self.moments[units[several & foreign]] = -1
        return collided

    def read(self, units: Units, who: Who) -> None:
        """Note reads, all of which are ordered after what was written."""
        threads, moments = self.threads, self.moments
        held = threads[units]
        alone = (held == who.threads) | (held == 0)
        if who.moments is not None:
            then, cta = moments[units], who.moments & _SAME_CTA
            # Who is ordered after this read is ordered after those of the same CTA before the barrier.
            alone |= (then < who.moments) & (then >= cta)
            moments[units] = np.where(alone | ((then & _SAME_CTA) == cta), who.moments, -1)
        threads[units] = np.where(alone, who.threads, np.int32(-1))
        if isinstance(units, slice):
            return
        several = threads[units] != who.threads
        if np.count_nonzero(several):
            threads[units[several]] = -1
            if who.moments is not None:
                moments[units[(moments[units] & _SAME_CTA) != cta]] = -1


class Ownership:
    """Which threads have written and read each unit of an allocation.

    Until the allocation is first written, reads are only listed. A unit is four bytes, less once it has to be.
    """

    __slots__ = ("_barriers", "_listed", "_read", "_shift", "_size", "_written")

    def __init__(self, size: int, *, barriers: bool) -> None:
        self._size = size
        self._barriers = barriers
        self._shift = 2
        self._written: _Touched | None = None
        self._read: _Touched
        self._listed: list[tuple[Units, Who]] = []

    def read(self, offsets: Offsets, size: int, who: Who) -> None:
        """Note that each of ``who`` reads ``size`` bytes at its offset."""
        units, who = self._units(offsets, size, who)
        if self._written is None and len(self._listed) < _LISTED:
            self._listed.append((units, who))
            return
        if self._unlisted().unordered(units, who) is not None:
            raise Unsure
        self._read.read(units, who)

    def write(self, offsets: Offsets, size: int, who: Who, unchanged: Unchanged) -> bool:
        """Note that each of ``who`` is about to write ``size`` bytes at its offset.

        Like single warps, threads may write what is there already: ``unchanged`` says whose bytes stay as they are.

        Returns
        -------
        bool
            Whether several have written the same bytes now: then none may differ from what its thread wrote.
        """
        units, who = self._units(offsets, size, who)
        written = self._unlisted()
        if self._read.unordered(units, who) is not None:
            raise Unsure
        more = written.unordered(units, who)
        if more is not None:
            count = max(1, size >> self._shift)
            if not unchanged()[more.reshape(-1, count).any(1)].all():
                raise Unsure
        return written.write(units, who, more)

    def _units(self, offsets: Offsets, size: int, who: Who) -> tuple[Units, Who]:
        if size < 1 << self._shift:
            self._refine(size.bit_length() - 1)
        count = size >> self._shift
        if isinstance(offsets, range):
            return slice(offsets.start >> self._shift, offsets.stop >> self._shift), who.repeated(count)
        first = offsets >> self._shift
        return (first if count == 1 else (first[:, None] + np.arange(count)).ravel()), who.repeated(count)

    def _refine(self, shift: int) -> None:
        """Let a unit be ``1 << shift`` bytes."""
        if self._written is not None or self._listed:
            for touched in (self._unlisted(), self._read):
                touched.refine(1 << self._shift - shift)
        self._shift = shift

    def _unlisted(self) -> _Touched:
        """Who has written, with the listed reads no longer listed."""
        if self._written is None:
            units = -(-self._size // 16) * 16 >> self._shift
            self._written, self._read = _Touched(units, self._barriers), _Touched(units, self._barriers)
            for places, who in self._listed:
                self._read.read(places, who)
            self._listed.clear()
        return self._written


class LockstepMemory:
    """Global memory and parameters as the lockstep groups of one launch use them.

    Parameters
    ----------
    launch
        Whose races are looked for if it checks everything.
    barriers
        Whether its CTAs have barriers.
    """

    def __init__(self, launch: Launch, barriers: bool) -> None:
        self._global = launch.memory
        self._parameters = launch.parameters
        self._barriers = barriers
        self.check = launch.order is not None
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

    def told_read(self, memory: Allocation, offsets: Offsets, size: int, who: Who) -> None:
        """Note a read of ``size`` bytes at each offset."""
        if self.check and memory.writable:
            self._owners_of(memory).read(offsets, size, who)

    def told_write(self, memory: Allocation, offsets: Offsets, size: int, who: Who, unchanged: Unchanged) -> bool:
        """Note a write of ``size`` bytes at each offset, before it takes place; see `Ownership.write`."""
        if not memory.writable:
            raise Unsure
        if memory.start not in self._before:
            self._before[memory.start] = memory, memory.data.copy()
        return self.check and self._owners_of(memory).write(offsets, size, who, unchanged)

    def _owners_of(self, memory: Allocation) -> Ownership:
        found = self._owners.get(memory.start)
        if found is None:
            found = self._owners[memory.start] = Ownership(memory.size, barriers=self._barriers)
        return found

    def restore(self) -> None:
        """Put every allocation back as it was before the launch."""
        for memory, data in self._before.values():
            memory.data[:] = data


class SharedMemories:
    """The shared memory of every CTA of a group, one behind the other.

    Parameters
    ----------
    rows
        Where the memory of each lane's CTA begins.
    low, size
        Offsets that a CTA may use.
    """

    def __init__(self, rows: npt.NDArray[np.int64], low: int, size: int, launch: Launch) -> None:
        self._rows = rows
        self._low = low
        self._size = size
        self._fresh = launch.protocol
        self.memory = Allocation("shared memory", "shared", 0, int(rows[-1]) + size, poison=True)
        self._owners = Ownership(self.memory.size, barriers=True) if launch.order is not None else None

    def place(self, addresses: Array, size: int, mask: Mask | None) -> npt.NDArray[np.int64]:
        """Offset of each active lane's access."""
        offsets = addresses.astype(np.int64)
        if (
            int(offsets.min()) < self._low
            or int(offsets.max()) > self._size - size
            or int(np.bitwise_or.reduce(offsets)) & (size - 1)
        ):
            raise Unsure
        offsets += self._rows if mask is None else self._rows[mask]
        return offsets

    def load(self, addresses: Array, width: int, count: int, mask: Mask | None, who: Who) -> Array:
        """Values of the active lanes, [count, lanes]."""
        offsets = self.place(addresses, width * count, mask)
        if self._owners is not None:
            self._owners.read(offsets, width * count, who)
        found = self.memory.views[width].take(offsets // width + np.arange(count)[:, None])
        pattern = _FRESH.get(width)
        if self._fresh and pattern is not None and np.count_nonzero(found == pattern):
            raise Unsure  # perhaps it was never written
        return found

    def store(self, addresses: Array, values: tuple[Array, ...], width: int, mask: Mask | None, who: Who) -> None:
        """Store the values of the active lanes."""
        offsets = self.place(addresses, width * len(values), mask)
        given = values if mask is None else tuple(value[mask] for value in values)
        view = self.memory.views[width]

        def unchanged() -> Mask:
            return _holds(view, offsets, given, width)

        collided = self._owners is not None and self._owners.write(offsets, width * len(values), who, unchanged)
        _store(view, offsets, given, width)
        if collided and not unchanged().all():
            raise Unsure


def _holds(view: Array, offsets: Offsets, values: tuple[Array, ...], width: int) -> Mask:
    """Which lanes' values are in memory."""
    same = np.ones(values[0].size, np.bool_)
    for index, value in enumerate(values):
        same &= view[_elements(offsets, index, len(values), width)] == value
    return same


def _store(view: Array, offsets: Offsets, values: tuple[Array, ...], width: int) -> None:
    for index, value in enumerate(values):
        view[_elements(offsets, index, len(values), width)] = value


def _elements(offsets: Offsets, index: int, count: int, width: int) -> slice | npt.NDArray[np.int64]:
    """Where element ``index`` of each lane's ``count`` lies."""
    if isinstance(offsets, range):
        return slice(offsets.start // width + index, offsets.stop // width, count)
    return offsets // width + index


def _place(group: LockstepGroup, addresses: Array, size: int) -> tuple[Allocation, Offsets]:
    """The allocation in which all addresses lie, and the offsets."""
    first = int(addresses[0])
    memory = group.memory.at(first)
    offset = first - memory.start
    count = len(addresses)
    offsets = (addresses.astype(np.uint64, copy=False) - np.uint64(memory.start)).view(np.int64)
    if int(addresses[-1]) - first == (count - 1) * size and np.array_equal(offsets, offset + group.steps(size)[:count]):
        if offset % size or offset < memory.low or offset + count * size > memory.size:
            raise Unsure
        return memory, range(offset, offset + count * size)
    if int(offsets.min()) < memory.low or int(offsets.max()) > memory.size - size:
        raise Unsure
    if int(np.bitwise_or.reduce(offsets)) & (size - 1):
        raise Unsure
    return memory, offsets


def load_uniform(group: LockstepGroup, space: str, address: int, width: int, count: int, *_: object) -> Any:
    """One address for all lanes, however many are active: an int, or a list of ``count`` ints of ``width`` bytes."""
    memory = group.memory.at(address)
    size = width * count
    offset = address - memory.start
    if offset % size or not memory.low <= offset <= memory.size - size:
        raise Unsure
    group.memory.told_read(memory, range(offset, offset + size), size, MANY[group.who.moments is not None])
    first = offset // width
    view = memory.views[width]
    return view.item(first) if count == 1 else view[first : first + count].tolist()


def load_lanes(
    group: LockstepGroup, space: str, addresses: Array, width: int, count: int, mask: Mask | None, order: None
) -> Array:
    """An address for each lane: unsigned[lanes], or unsigned[count, lanes] for vectors."""
    if mask is not None and mask.all():
        mask = None
    active, who = (addresses if mask is None else addresses[mask]), group.who.where(mask)
    window = int(active[0]) // WINDOW if space == "generic" else -1
    if window == LOCAL_WINDOW // WINDOW:
        return load_local(group, addresses - np.uint64(LOCAL_WINDOW), width, count, mask)
    if space == "shared" or window == SHARED_WINDOW // WINDOW:
        active = active if space == "shared" else active - np.uint64(SHARED_WINDOW)
        found = group.shared.load(active, width, count, mask, who)
    else:
        memory, offsets = _place(group, active, width * count)
        group.memory.told_read(memory, offsets, width * count, who)
        view = memory.views[width]
        if isinstance(offsets, range):
            found = view[offsets.start // width : offsets.stop // width].reshape(-1, count).T.copy()
        else:
            found = view.take(offsets // width + np.arange(count)[:, None])
    if mask is None:
        result = found
    else:
        result = np.zeros((count, mask.size), found.dtype)
        result[:, mask] = found
    return result[0] if count == 1 else result


def store_lanes(
    group: LockstepGroup,
    space: str,
    addresses: Array,
    values: tuple[Array, ...],
    width: int,
    mask: Mask | None,
    order: None,
) -> None:
    """An address and values for each lane; where lanes collide the highest lane wins."""
    if mask is not None and mask.all():
        mask = None
    active, who = (addresses if mask is None else addresses[mask]), group.who.where(mask)
    window = int(active[0]) // WINDOW if space == "generic" else -1
    if window == LOCAL_WINDOW // WINDOW:
        store_local(group, addresses - np.uint64(LOCAL_WINDOW), values, width, mask)
        return
    if space == "shared" or window == SHARED_WINDOW // WINDOW:
        active = active if space == "shared" else active - np.uint64(SHARED_WINDOW)
        group.shared.store(active, values, width, mask, who)
        return
    memory, offsets = _place(group, active, width * len(values))
    given = values if mask is None else tuple(value[mask] for value in values)
    view = memory.views[width]

    def unchanged() -> Mask:
        return _holds(view, offsets, given, width)

    collided = group.memory.told_write(memory, offsets, width * len(values), who, unchanged)
    _store(view, offsets, given, width)
    if collided and not unchanged().all():
        raise Unsure
