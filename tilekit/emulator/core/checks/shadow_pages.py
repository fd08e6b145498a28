"""The pages of a memory's shadow: records of who touched which bytes, and how a new access changes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Agent, Clock, Operation, lane_identity
from tilekit.emulator.core.checks.lane_order import Lanes, touched
from tilekit.emulator.core.errors import InstructionLike
from tilekit.emulator.core.memory import footprint
from tilekit.emulator.core.memory.footprint import FULL, GRANULE, IN_PAGE, PAGE_BITS

WRITE, ATOMIC, ASYNC = 1, 2, 4
"""The bits of a record's kind."""


class Record:
    """Bytes of one page that one agent accessed in one way, in one epoch of its.

    Attributes
    ----------
    identity, epoch, kind
        Of the accesses.
    mask
        Their units of the page that have not been overwritten since.
    party, instruction
        Who accessed them, and the first instruction that did.
    others
        The other instructions that did, with their units.
    lanes
        Which lanes touched what, with the instruction.
    """

    __slots__ = ("epoch", "identity", "instruction", "kind", "lanes", "mask", "others", "party")

    def __init__(
        self,
        identity: int,
        epoch: int,
        kind: int,
        mask: int,
        party: Agent | Operation,
        instruction: InstructionLike | None,
        lanes: Lanes | None,
    ) -> None:
        self.identity = identity
        self.epoch = epoch
        self.kind = kind
        self.mask = mask
        self.party = party
        self.instruction = instruction
        self.others: dict[int, tuple[int, int, InstructionLike | None]] | None = None
        self.lanes: dict[Lanes, InstructionLike | None] = {} if lanes is None else {lanes: instruction}

    def merge(self, mask: int, shift: int, instruction: InstructionLike | None, lanes: Lanes | None) -> None:
        """Add bytes accessed at the same epoch, remembering which instruction touched them if it is another one."""
        if lanes is not None:
            self.lanes[lanes] = instruction
        if instruction is not self.instruction:
            if self.others is None:
                self.others = {}
            known_shift, known, _ = self.others.get(id(instruction), (shift, 0, None))
            self.others[id(instruction)] = shift, mask | footprint.expand(known, known_shift - shift), instruction
        self.mask |= mask

    def instruction_at(self, hit: int, shift: int) -> InstructionLike | None:
        """Return the instruction, of those merged here, that touched the units of `hit`."""
        for other_shift, mask, instruction in (self.others or {}).values():
            if footprint.expand(mask, other_shift - shift) & hit:
                return instruction
        return self.instruction


class Page:
    """The records of 8 KiB of memory: the last writes, and by agent the reads since."""

    __slots__ = ("reads", "shift", "writes")

    def __init__(self) -> None:
        self.shift = GRANULE
        self.writes: list[Record] = []
        self.reads: dict[int, list[Record]] = {}

    def refine(self, shift: int) -> None:
        """Split every unit, to `1 << shift` bytes each."""
        by = self.shift - shift
        for record in self.writes:
            record.mask = footprint.expand(record.mask, by)
        for records in self.reads.values():
            for record in records:
                record.mask = footprint.expand(record.mask, by)
        self.shift = shift


def known_by_lane(record: Record, mask: int, number: int, shift: int, clock: Clock) -> bool:
    """Whether a clock that does not cover a warp's epoch covers that of the lanes that touched these bytes."""
    if not isinstance(record.party, Agent) or lane_identity(record.identity, 32) not in clock:
        return False
    hit = record.mask & mask
    explained = 0
    for lanes in record.lanes:
        for byte, owners in touched(lanes):
            unit = 1 << ((byte & IN_PAGE) >> shift)
            if byte >> PAGE_BITS == number and hit & unit:
                explained |= unit
                known = [clock.get(lane_identity(record.identity, lane), 0) >= record.epoch for lane in range(32)]
                if owners >> 32:  # what the warp did as one any lane may speak for
                    if not any(known):
                        return False
                elif not all(known[lane] for lane in range(32) if owners >> lane & 1):
                    return False
    return explained == hit


def any_changed(changed: npt.NDArray[np.int64], mask: int, number: int, shift: int) -> bool:
    """Whether some of the addresses lie in units of a page's mask."""
    inside = changed[changed >> PAGE_BITS == number] & IN_PAGE
    return any(mask >> (place >> shift) & 1 for place in inside.tolist())


def record_write(
    page: Page,
    mask: int,
    party: Agent | Operation,
    identity: int,
    epoch: int,
    kind: int,
    instruction: InstructionLike | None,
    lanes: Lanes | None,
    clock: Clock,
) -> None:
    """Note a write: what it overwrites counts as untouched."""
    atomic = kind & ATOMIC
    if mask == FULL[page.shift] and not atomic:
        page.shift = GRANULE
        page.writes = [Record(identity, epoch, kind, FULL[GRANULE], party, instruction, lanes)]
        page.reads.clear()
        return
    mine: Record | None = None
    emptied = False
    for record in page.writes:
        if record.identity == identity and record.epoch == epoch and record.kind == kind:
            mine = record
            continue
        hit = record.mask & mask
        # Of two atomics that nothing orders, a later plain access must be ordered after both: keep both.
        if hit and not (atomic and record.kind & ATOMIC and clock.get(record.identity, 0) < record.epoch):
            record.mask ^= hit
            emptied = emptied or not record.mask
    if emptied:
        page.writes = [record for record in page.writes if record.mask]
    if not atomic and page.reads:
        for reader in list(page.reads):
            _subtract(page.reads, reader, mask)
    if mine is None:
        page.writes.append(Record(identity, epoch, kind, mask, party, instruction, lanes))
    else:
        mine.merge(mask, page.shift, instruction, lanes)


def record_read(
    page: Page,
    mask: int,
    party: Agent | Operation,
    identity: int,
    epoch: int,
    kind: int,
    instruction: InstructionLike | None,
    lanes: Lanes | None,
) -> None:
    """Note a read, in the place of the same agent's earlier ones."""
    records = page.reads.get(identity)
    if records is None:
        page.reads[identity] = [Record(identity, epoch, kind, mask, party, instruction, lanes)]
        return
    for record in records:
        if record.epoch == epoch and record.kind == kind:
            record.merge(mask, page.shift, instruction, lanes)
            return
    if not kind & ATOMIC:
        # What is ordered after this read is ordered after the same agent's earlier ones.
        for record in records:
            record.mask &= ~mask
        records[:] = [record for record in records if record.mask]
    records.append(Record(identity, epoch, kind, mask, party, instruction, lanes))


def _subtract(reads: dict[int, list[Record]], reader: int, mask: int) -> None:
    records = reads[reader]
    emptied = False
    for record in records:
        hit = record.mask & mask
        if hit:
            record.mask ^= hit
            emptied = emptied or not record.mask
    if emptied:
        records[:] = [record for record in records if record.mask]
        if not records:
            del reads[reader]
