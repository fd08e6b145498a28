"""The place of every `Virtual`: linear scan over live ranges with holes; nothing is ever spilled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from tilekit.assembly.errors import RegisterError
from tilekit.assembly.gcn.code import Code, File, Part, Virtual
from tilekit.assembly.gcn.copies import hints
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.liveness import Ranges, live_ranges
from tilekit.assembly.gcn.pressure import Pressure, held
from tilekit.assembly.gcn.register_file import (
    ACCUM_GRANULE,
    ADDRESSABLE,
    LETTERS,
    MOST_WAVES,
    alignment_of,
    most_vectors,
    waves_with,
)
from tilekit.errors import ArgumentError

__all__ = ["Allocation", "allocate"]

_FILES: tuple[File, ...] = ("vector", "accumulator", "scalar")


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where registers are.

    Attributes
    ----------
    places
        Index of each one's first register in its file.
    vgprs, agprs, sgprs
        Registers that are used: one more than the highest index.
    pressure
        How many are needed at once, where, and by what.
    """

    places: dict[Virtual, int]
    vgprs: int
    agprs: int
    sgprs: int
    pressure: dict[File, Pressure]

    @property
    def accum_offset(self) -> int:
        """The register of the unified file that is a0 (``.amdhsa_accum_offset``)."""
        return max(-(-self.vgprs // ACCUM_GRANULE), 1) * ACCUM_GRANULE

    @property
    def next_free_vgpr(self) -> int:
        """VGPRs and AGPRs together, with what lies unused between them (``.amdhsa_next_free_vgpr``)."""
        return self.accum_offset + self.agprs if self.agprs else max(self.vgprs, 1)

    @property
    def next_free_sgpr(self) -> int:
        """SGPRs (``.amdhsa_next_free_sgpr``); the assembler adds VCC itself."""
        return max(self.sgprs, 1)

    @property
    def waves_per_simd(self) -> int:
        """Waves that a SIMD holds, as far as vector registers go."""
        return waves_with(self.next_free_vgpr)

    def spell(self, part: Part) -> str:
        """Return registers as the assembler reads them: ``v7``, ``s[2:3]``, ``a[0:15]``."""
        letter = LETTERS[part.register.file]
        first = self.places[part.register] + part.first
        return f"{letter}{first}" if part.words == 1 else f"{letter}[{first}:{first + part.words - 1}]"

    def report(self) -> str:
        """Return counts, and of each file the peak: where it is, and what is held there, largest first."""
        total = f"{self.vgprs} VGPRs, {self.agprs} AGPRs, {self.sgprs} SGPRs: {self.waves_per_simd} waves a SIMD"
        return "\n".join([total, *(p.text() for p in self.pressure.values() if p.needed)])


def allocate(code: Code, *, waves_per_simd: int | None = None) -> Allocation:
    """Give every register its place.

    Parameters
    ----------
    code
        The kernel.
    waves_per_simd
        Waves that a SIMD must be able to hold, which bounds VGPRs and AGPRs; None for one.

    Raises
    ------
    RegisterError
        Where more is needed at once than there may be (``TK-REG-001``).
    """
    if waves_per_simd is not None and not 1 <= waves_per_simd <= MOST_WAVES:
        nearest = min(max(waves_per_simd, 1), MOST_WAVES)
        raise ArgumentError.of("waves_per_simd", waves_per_simd, legal=f"1 to {MOST_WAVES}", nearest=nearest)
    ranges = live_ranges(code, blocks_of(code))
    pressure = {file: Pressure.of(file, code, ranges) for file in _FILES}
    budget = most_vectors(waves_per_simd or 1)
    beside: _Hints = {}
    for to, source, distance in hints(code):
        beside.setdefault(to, []).append((source, -distance))
        beside.setdefault(source, []).append((to, distance))
    places: dict[Virtual, int] = {}
    counts = dict.fromkeys(_FILES, 0)
    for file in _FILES:
        limit = ADDRESSABLE[file]
        if file == "vector":
            limit = min(limit, budget)
        elif file == "accumulator":
            below = -(-counts["vector"] // ACCUM_GRANULE) * ACCUM_GRANULE
            limit = min(limit, budget - below)
        own = {register: stretches for register, stretches in ranges.items() if register.file == file}
        found = _place_all(own, limit, 2 * len(code.items), beside)
        if found is None:
            raise _too_many(file, limit, pressure, waves_per_simd)
        places |= found
        counts[file] = max((place + register.words for register, place in found.items()), default=0)
    return Allocation(places, counts["vector"], counts["accumulator"], counts["scalar"], pressure)


# The second is for kernels whose small values, placed as they come, leave no gap for a tile that comes late.
_ORDERS: tuple[Callable[[tuple[Virtual, list[tuple[int, int]]]], tuple[int, ...]], ...] = (
    lambda entry: (entry[1][0][0], -entry[0].words),
    lambda entry: (-entry[0].words, entry[1][0][0]),
    lambda entry: (-entry[0].words * held(entry[1]), entry[1][0][0]),
)


_Hints = dict[Virtual, list[tuple[Virtual, int]]]
"""For a register, others from whose place its own is best so far away: then a copy is none."""


def _place_all(ranges: Ranges, limit: int, slots: int, beside: _Hints) -> dict[Virtual, int] | None:
    """Return places below a limit, or None where no order of placing finds any."""
    entries = [(register, stretches) for register, stretches in ranges.items() if stretches]
    for order in _ORDERS:
        entries.sort(key=order)
        for wanted in (beside, {}) if beside else ({},):  # a copy's place may be where a tile finds its only gap
            found = _place_in_order(entries, limit, slots, wanted)
            if found is not None:
                return found | {register: register.fixed for register in ranges if register.fixed is not None}
    return None


def _place_in_order(
    entries: list[tuple[Virtual, list[tuple[int, int]]]], limit: int, slots: int, beside: _Hints
) -> dict[Virtual, int] | None:
    taken = _Taken(slots)
    places: dict[Virtual, int] = {}
    for register, stretches in entries:
        if register.fixed is not None:
            places[register] = register.fixed
            taken.add(stretches, ((1 << register.words) - 1) << register.fixed)
    for register, stretches in entries:
        if register.fixed is not None:
            continue
        alignment = max(register.alignment, alignment_of(register.file, register.words))
        used = taken.during(stretches)
        place = _wanted(used, limit, register, alignment, beside.get(register, ()), places)
        if place is None:
            place = _lowest(used, limit, register.words, alignment)
        if place is None:
            return None
        places[register] = place
        taken.add(stretches, ((1 << register.words) - 1) << place)
    return places


def _wanted(
    taken: int,
    limit: int,
    register: Virtual,
    alignment: int,
    beside: Iterable[tuple[Virtual, int]],
    places: dict[Virtual, int],
) -> int | None:
    """Return a free place beside another register's, or None."""
    for other, distance in beside:
        place = places.get(other, -1 - distance) + distance
        free = not taken >> place & ((1 << register.words) - 1) if place >= 0 else False
        if free and place % alignment == 0 and place + register.words <= limit:
            return place
    return None


def _lowest(taken: int, limit: int, words: int, alignment: int) -> int | None:
    """Return the lowest aligned index of so many free registers in a row, all below the limit."""
    starts = ~taken & ((1 << max(limit, 0)) - 1)
    width = 1
    while width < words:
        step = min(width, words - width)
        starts &= starts >> step
        width += step
    starts &= _multiples(alignment)
    return (starts & -starts).bit_length() - 1 if starts else None


@cache
def _multiples(of: int) -> int:
    return sum(1 << index for index in range(0, 512, of))


class _Taken:
    """Which registers are taken in which slots: a segment tree whose nodes are sets of registers.

    A node has the registers that are taken in all of its slots, and those that are taken in any of them.
    """

    def __init__(self, slots: int) -> None:
        self._leaves = 1 << max(slots - 1, 0).bit_length()
        self._all = [0] * (2 * self._leaves)
        self._any = [0] * (2 * self._leaves)

    def add(self, stretches: Iterable[tuple[int, int]], registers: int) -> None:
        """Take registers."""
        for first, last in stretches:
            for node in self._nodes(first, last):
                self._all[node] |= registers
                self._any[node] |= registers
            for node in self._above(first, last):
                self._any[node] |= registers

    def during(self, stretches: Iterable[tuple[int, int]]) -> int:
        """Return the registers that are taken in any slot of some stretches."""
        found = 0
        for first, last in stretches:
            for node in self._nodes(first, last):
                found |= self._any[node]
            for node in self._above(first, last):
                found |= self._all[node]
        return found

    def _nodes(self, first: int, last: int) -> list[int]:
        """The largest nodes that together are the slots from `first` to `last`."""
        low, high, found = first + self._leaves, last + self._leaves + 1, []
        while low < high:
            if low & 1:
                found.append(low)
                low += 1
            if high & 1:
                high -= 1
                found.append(high)
            low >>= 1
            high >>= 1
        return found

    def _above(self, first: int, last: int) -> list[int]:
        """Every node that has the slot `first`, or `last`, and another one, too."""
        low, high, found = (first + self._leaves) >> 1, (last + self._leaves) >> 1, []
        while low:
            found.append(low)
            if high != low:
                found.append(high)
            low >>= 1
            high >>= 1
        return found


def _too_many(file: File, limit: int, pressure: dict[File, Pressure], waves: int | None) -> RegisterError:
    peak = pressure[file]
    over = peak.needed - limit
    name = {"vector": "VGPRs", "scalar": "SGPRs", "accumulator": "AGPRs"}[file]
    bound = f"with {waves} waves a SIMD there are {limit}" if waves and file != "scalar" else f"there are {limit}"
    if over > 0:
        start = f"{peak.needed} {name} are needed at once, and {bound}"
        nearest = f"{over} fewer at that place"
        if peak.accumulators >= over and file != "scalar":
            nearest += f", for instance of the {peak.accumulators} that are accumulators"
    else:
        start = f"{peak.needed} {name} are needed at once and {bound}, but a tile finds no gap between the others"
        nearest = f"{max(peak.largest, 1)} fewer at that place"
    other = _waves_that_fit(pressure) if file != "scalar" else None
    if other is not None and waves is not None and other < waves:
        nearest += f", or waves_per_simd={other}"
    elif file == "vector" and waves in (None, 1) and peak.accumulators >= over > 0:
        nearest += ", or accumulators in AGPRs"
    message = f"{start}; nearest legal: {nearest}\n{peak.text()}"
    return RegisterError(message, file=file, needed=peak.needed, limit=limit)


def _waves_that_fit(pressure: dict[File, Pressure]) -> int | None:
    """Return the most waves whose share of the registers is enough for both peaks; None without any."""
    vectors, accumulators = pressure["vector"].needed, pressure["accumulator"].needed
    if vectors > ADDRESSABLE["vector"] or accumulators > ADDRESSABLE["accumulator"]:
        return None
    needed = vectors if not accumulators else -(-vectors // ACCUM_GRANULE) * ACCUM_GRANULE + accumulators
    return waves_with(needed) or None
