"""Who last wrote and who has read since, for every byte of a memory: where races are found.

The shadow of a memory is made of pages of 8 KiB, each with a short list of records (who, which epoch, which bytes). The
bytes of a record are a bit mask held in one Python integer, a bit a 16-byte granule, so that a TMA box or a wgmma
operand of many kilobytes is a handful of operations on 512-bit integers. A page that is accessed by less than a
granule is refined, once, to a bit every 4 bytes or every byte, so that warps which write neighbouring words of one
granule are not taken to race.

The rules, for an access `a` that meets the record `r` of an earlier one on the same bytes, one of them a write:

- they must be ordered: `a`'s clock covers `r`'s epoch; except that two atomics never race with each other;
- and when `r` is a generic write and `a` an access of the async proxy, `a`'s fenced frontier must cover it too.

A store that leaves bytes as they are does not race with another store of them: compilers let several warps write the
same result. In global memory that holds for any two stores, asynchronous or not; what fills shared memory
asynchronously must be waited for all the same. A reader must still be ordered after the last of them.

A warp is one agent, but its lanes are ordered with each other only where they have met (:mod:`.lane_order`): a record
of the warp's own that is younger than that is compared lane by lane, and so is one of another warp of which only some
lanes are known to have come so far.

Until a memory is first written in a launch, reads of it are only listed: input tensors cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import NOTHING, Agent, Clock, Operation
from tilekit.emulator.core.checks.lane_order import Lanes, conflicts, have_met, one_of_equal
from tilekit.emulator.core.checks.shadow_pages import (
    ASYNC,
    ATOMIC,
    WRITE,
    Page,
    Record,
    any_changed,
    known_by_lane,
    record_read,
    record_write,
)
from tilekit.emulator.core.errors import InstructionLike
from tilekit.emulator.core.memory import footprint
from tilekit.emulator.core.memory.footprint import GRANULE, IN_PAGE, PAGE_BITS, Pieces

__all__ = ["Access", "Changes", "Memory", "Race"]

_LISTED_READS = 200_000

Changes = Callable[[], npt.NDArray[np.int64]]
"""Gives the addresses of the bytes, words … that a store is about to change; asked only where two stores may race."""


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a race: who accessed, how, and at which instruction."""

    party: Agent | Operation
    epoch: int
    write: bool
    atomic: bool
    instruction: InstructionLike | None

    @property
    def asynchronous(self) -> bool:
        """Whether it was the async proxy's."""
        return self.party.asynchronous


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses to the same bytes, one of them a write, without the order that the later one needs.

    Attributes
    ----------
    memory
        Where.
    lo, hi
        Addresses of the first byte in common and of the byte after the last.
    earlier, later
        The accesses, in the order in which the emulator met them.
    unfenced
        True when they are ordered and only a proxy fence is missing: `fence.proxy.async` of the earlier one's warp, or
        what `missing` says.
    lanes
        Two lanes of one warp that race with each other, -1 for one that is not known; None for other races.
    missing
        The edge that is missing and what would add it, where who found the race knows.
    """

    memory: Memory
    lo: int
    hi: int
    earlier: Access
    later: Access
    unfenced: bool
    lanes: tuple[int, int] | None = None
    missing: tuple[str, str] | None = None


class Memory:
    """One allocation under watch: the shared memory of a CTA, a global buffer, a CTA's tensor memory.

    Parameters
    ----------
    name
        For messages, such as `shared memory` or a buffer's name.
    base
        Address of its first byte; accesses are given as addresses in the same space.
    size
        In bytes.
    on_race
        Called once for each pair of instructions found to race.
    cta
        Rank of the CTA that owns it, for shared memory.
    """

    def __init__(
        self, name: str, base: int, size: int, on_race: Callable[[Race], None], *, cta: int | None = None
    ) -> None:
        self.name = name
        self.base = base
        self.size = size
        self.cta = cta
        self.on_race = on_race
        self._pages: dict[int, Page] = {}
        self._listed: list[tuple[int, Pieces, Agent | Operation, int, int, InstructionLike | None, Lanes | None]] | None
        self._listed = []
        self._reported: dict[tuple[int, int, bool], tuple[InstructionLike | None, InstructionLike | None]] = {}
        self._ahead: Operation | None = None

    def occupy(self, operation: Operation) -> None:
        """Let an operation use all of it, from before the launch on: what is not ordered behind it races with it.

        That is one comparison an access. As a write of every byte it would have each read of an input looked at, where
        reads of what a launch never writes are only listed; then 512x512x4096 takes two and a half times as long.
        """
        self._ahead = operation

    def written(self, lo: int, hi: int) -> Iterator[tuple[Record, int, int, int]]:
        """Find the last writes of this launch to the bytes [lo, hi): record, page, units, log2 of a unit's size."""
        for offset, shift, mask in footprint.span(lo & IN_PAGE, hi - lo):
            number = (lo >> PAGE_BITS) + offset
            page = self._pages.get(number)
            if page is None:
                continue
            if page.shift > shift:
                page.refine(shift)
            mine = footprint.expand(mask, shift - page.shift)
            for record in page.writes:
                if record.mask & mine:
                    yield record, number, record.mask & mine, page.shift

    def describe(self, low: int, high: int) -> str:
        """Name a range of bytes, counted from the start."""
        return f"{self.name}+{low:#x}..{high:#x}"

    def span(
        self,
        party: Agent | Operation,
        lo: int,
        hi: int,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
        changes: Changes | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        """Access the bytes [lo, hi): a TMA box in shared memory, a contiguous access of a warp, a bulk copy.

        `instruction` may be omitted for an :class:`Operation`, which knows its own; so may `lanes` for what has none.
        """
        if hi > lo:
            pieces = footprint.span(lo & IN_PAGE, hi - lo)
            self._access(party, lo >> PAGE_BITS, pieces, write, atomic, instruction, changes, lanes)

    def lanes(
        self,
        party: Agent | Operation,
        addresses: npt.NDArray[np.integer],
        width: int,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
        changes: Changes | None = None,
        active: bytes | None = None,
    ) -> None:
        """Access `width` bytes at each address: the active lanes of a load, a store, a cp.async or a stmatrix row."""
        if addresses.size == 0:
            return
        places = addresses.astype(np.int64, copy=False)
        first = int(places[0])
        relative = one_of_equal((places - first).tobytes())
        pieces = footprint.lanes(first & IN_PAGE, relative, width)
        lanes = first, relative, width, active
        self._access(party, first >> PAGE_BITS, pieces, write, atomic, instruction, changes, lanes)

    def in_step(
        self,
        party: Agent | Operation,
        addresses: npt.NDArray[np.integer],
        width: int,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
        changes: Changes | None = None,
    ) -> None:
        """Access `width` bytes at each address by lanes that run in step, and which of them does not matter."""
        places = addresses.astype(np.int64, copy=False)
        first = int(places[0])
        pieces = footprint.lanes(first & IN_PAGE, (places - first).tobytes(), width)
        self._access(party, first >> PAGE_BITS, pieces, write, atomic, instruction, changes)

    def rows(
        self,
        party: Agent | Operation,
        lo: int,
        count: int,
        row_bytes: int,
        pitch: int,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
        changes: Changes | None = None,
    ) -> None:
        """Access `count` rows of `row_bytes`, `pitch` bytes apart: a two-dimensional box in global memory."""
        if count > 0 and row_bytes > 0:
            pieces = footprint.rows(lo & IN_PAGE, count, row_bytes, pitch)
            self._access(party, lo >> PAGE_BITS, pieces, write, atomic, instruction, changes)

    def extents(
        self,
        party: Agent | Operation,
        extents: npt.ArrayLike,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
        changes: Changes | None = None,
    ) -> None:
        """Access several spans at once, the scattered bytes of one operation: an array of (lo, hi), best of int64."""
        spans = np.asarray(extents, np.int64)
        if spans.size == 0:
            return
        first = int(spans.flat[0])
        pieces = footprint.extents(first & IN_PAGE, (spans - first).tobytes())
        self._access(party, first >> PAGE_BITS, pieces, write, atomic, instruction, changes)

    def granules(
        self,
        party: Agent | Operation,
        start: int,
        mask: int,
        *,
        write: bool,
        atomic: bool = False,
        instruction: InstructionLike | None = None,
    ) -> None:
        """Access the 16-byte granules of `mask`, bit 0 being the one at the address `start`, a multiple of 16."""
        if mask:
            pieces = footprint.granules((start & IN_PAGE) >> GRANULE, mask)
            self._access(party, start >> PAGE_BITS, pieces, write, atomic, instruction)

    def pieces(self, party: Agent | Operation, first_page: int, pieces: Pieces, *, write: bool) -> None:
        """Access a footprint made before, relative to a page."""
        self._access(party, first_page, pieces, write, False, None)

    def _access(
        self,
        party: Agent | Operation,
        first_page: int,
        pieces: Pieces,
        write: bool,
        atomic: bool,
        instruction: InstructionLike | None,
        changes: Changes | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        party.touch()
        if lanes is not None and isinstance(party, Agent):
            party.active.add(lanes[3])
        if instruction is None and isinstance(party, Operation):
            instruction = party.instruction
        kind = (WRITE if write else 0) | (ATOMIC if atomic else 0) | (ASYNC if party.asynchronous else 0)
        epoch = party.epoch
        ahead = self._ahead
        if ahead is not None and party.clock.get(ahead.identity, 0) < ahead.epoch:
            self._report_ahead(ahead, first_page, pieces, party, write, atomic, instruction)
        if self._listed is not None:
            if not write and len(self._listed) < _LISTED_READS:
                self._listed.append((first_page, pieces, party, epoch, kind, instruction, lanes))
                return
            listed, self._listed = self._listed, None
            for entry in listed:
                self._visit(*entry, {}, {})
        self._visit(first_page, pieces, party, epoch, kind, instruction, lanes, party.clock, party.fenced, changes)

    def _visit(
        self,
        first_page: int,
        pieces: Pieces,
        party: Agent | Operation,
        epoch: int,
        kind: int,
        instruction: InstructionLike | None,
        lanes: Lanes | None,
        clock: Clock,
        fenced: Clock,
        changes: Changes | None = None,
    ) -> None:
        pages = self._pages
        identity = party.identity
        write, asynchronous = kind & WRITE, kind & ASYNC
        later = party, epoch, kind, instruction
        apart = party.apart if lanes is not None else NOTHING
        for offset, shift, mask in pieces:
            number = first_page + offset
            page = pages.get(number)
            if page is None:
                page = pages[number] = Page()
            if page.shift != shift:
                if page.shift > shift:
                    page.refine(shift)
                else:
                    mask = footprint.expand(mask, shift - page.shift)
            if write:
                for records in page.reads.values():
                    for record in records:
                        if (
                            clock.get(record.identity, 0) < record.epoch
                            and record.mask & mask
                            and not record.kind & kind & ATOMIC
                            and not known_by_lane(record, mask, number, page.shift, clock)
                        ):
                            self._report(record, mask, page, first_page, pieces, later, False)
                for own, since in apart.items():
                    for record in page.reads.get(own, ()):
                        if since <= record.epoch <= clock.get(own, 0) and record.mask & mask:
                            self._compare_lanes(record, mask, number, page.shift, later, lanes, None)
            for record in page.writes:
                if clock.get(record.identity, 0) < record.epoch:
                    if (
                        record.mask & mask
                        and not record.kind & kind & ATOMIC
                        and (
                            changes is None
                            or (record.kind & ASYNC and self.cta is not None)
                            or any_changed(changes(), record.mask, number, page.shift)
                        )
                    ):
                        ordered = known_by_lane(record, mask, number, page.shift, clock)
                        if not ordered:
                            self._report(record, mask, page, first_page, pieces, later, False)
                        elif asynchronous and not known_by_lane(record, mask, number, page.shift, fenced):
                            self._report(record, mask, page, first_page, pieces, later, True)
                elif record.identity in apart:
                    if record.epoch >= apart[record.identity] and record.mask & mask:
                        self._compare_lanes(record, mask, number, page.shift, later, lanes, changes)
                elif (
                    asynchronous
                    and not record.kind & ASYNC
                    and fenced.get(record.identity, 0) < record.epoch
                    and record.mask & mask
                    and (changes is None or any_changed(changes(), record.mask, number, page.shift))
                ):
                    self._report(record, mask, page, first_page, pieces, later, True)
            if write:
                record_write(page, mask, party, identity, epoch, kind, instruction, lanes, clock)
            else:
                record_read(page, mask, party, identity, epoch, kind, instruction, lanes)

    def _report(
        self,
        record: Record,
        mask: int,
        page: Page,
        first_page: int,
        pieces: Pieces,
        later: tuple[Agent | Operation, int, int, InstructionLike | None],
        unfenced: bool,
    ) -> None:
        earlier = record.instruction_at(record.mask & mask, page.shift)
        party, epoch, kind, instruction = later
        key = (id(earlier), id(instruction), unfenced)
        if key in self._reported:
            return
        # Holding on to the instructions keeps their ids from being used again.
        self._reported[key] = earlier, instruction
        lo, hi = self._common(record, first_page, pieces)
        self.on_race(
            Race(
                self,
                lo,
                hi,
                Access(record.party, record.epoch, bool(record.kind & WRITE), bool(record.kind & ATOMIC), earlier),
                Access(party, epoch, bool(kind & WRITE), bool(kind & ATOMIC), instruction),
                unfenced,
            )
        )

    def _report_ahead(
        self,
        ahead: Operation,
        first_page: int,
        pieces: Pieces,
        party: Agent | Operation,
        write: bool,
        atomic: bool,
        instruction: InstructionLike | None,
    ) -> None:
        key = (id(ahead), id(instruction), False)
        if key in self._reported:
            return
        self._reported[key] = None, instruction
        ends = []
        for offset, shift, mask in pieces:
            start = (first_page + offset) << PAGE_BITS
            ends += [start + (((mask & -mask).bit_length() - 1) << shift), start + (mask.bit_length() << shift)]
        earlier = Access(ahead, ahead.epoch, True, False, None)
        later = Access(party, party.epoch, write, atomic, instruction)
        self.on_race(Race(self, min(ends), max(ends), earlier, later, False))

    def _compare_lanes(
        self,
        record: Record,
        mask: int,
        number: int,
        shift: int,
        later: tuple[Agent | Operation, int, int, InstructionLike | None],
        lanes: Lanes | None,
        changes: Changes | None,
    ) -> None:
        """Report lanes of one warp that race with each other: they have not met since the record was made."""
        party, epoch, kind, instruction = later
        assert lanes is not None
        if record.kind & kind & ATOMIC:
            return
        hit = record.mask & mask
        for before, earlier in record.lanes.items():
            key = (id(earlier), id(instruction), record.party is party)
            if before == lanes or key in self._reported:
                continue
            found = conflicts(before, lanes, not record.kind & WRITE, bool(kind & WRITE))
            for byte, first, second in found:
                unit = (byte & IN_PAGE) >> shift
                if (
                    byte >> PAGE_BITS != number
                    or not hit >> unit & 1
                    or have_met(party.met, first, second, record.epoch)
                ):
                    continue
                if changes is not None and not any_changed(changes(), 1 << unit, number, shift):
                    continue
                self._reported[key] = earlier, instruction
                self.on_race(
                    Race(
                        self,
                        byte,
                        1 + max(other for other, *pair in found if pair == [first, second]),
                        Access(
                            record.party, record.epoch, bool(record.kind & WRITE), bool(record.kind & ATOMIC), earlier
                        ),
                        Access(party, epoch, bool(kind & WRITE), bool(kind & ATOMIC), instruction),
                        False,
                        (first, second),
                    )
                )
                return

    def _common(self, record: Record, first_page: int, pieces: Pieces) -> tuple[int, int]:
        """Return the addresses of the first and past the last byte that the footprint shares with `record`'s access."""
        ends = []
        for offset, shift, mask in pieces:
            page = self._pages.get(first_page + offset)
            if page is None:
                continue
            start = (first_page + offset) << PAGE_BITS
            finest = min(shift, page.shift)
            mask = footprint.expand(mask, shift - finest)
            for other in page.writes if record.kind & WRITE else page.reads.get(record.identity, ()):
                if (other.identity, other.epoch) == (record.identity, record.epoch):
                    hit = mask & footprint.expand(other.mask, page.shift - finest)
                    if hit:
                        lowest = (hit & -hit).bit_length() - 1
                        ends += [start + (lowest << finest), start + (hit.bit_length() << finest)]
        return min(ends), max(ends)
