"""Where ``s_waitcnt`` must stand, and what it must count down to: derived from the operations that are outstanding.

Forward over the control flow, on registers that have places. What is followed, the worst over all ways to a place:

- for each operation that is to write registers, how many of its counter were issued after it. Vector memory completes
  in order, loads and stores alike, and so does LDS; scalar memory completes in any order, and beside it nothing of the
  counter has an order that a count could rely on, so then the wait is for 0;
- for each `Commit`, how many vector memory operations were issued after the group that it ends;
- how many operations may be outstanding at all.

An instruction that reads or writes a register which an operation is still to write waits before, for the largest count
that is sufficient. A load in order may overwrite what an earlier one of its counter is to write. What a store reads
needs no wait before it is overwritten: only chips before gfx7 count that, in expcnt (LLVM,
``vmemWriteNeedsExpWaitcnt``). As LLVM does, a wait never asks for the largest value of a counter's field, which means
no wait at all: from there on it is for one less. That is right however many operations are outstanding: an operation
with more behind it than the wait counts down to is complete by then.

What no register says is not derived: that LDS is filled (`Commit` and `Wait`); that another wave may read what this one
wrote (`Instruction.waits`); that a load to LDS must not overtake reads of what it overwrites, which is so once their
data has been used, or behind a `Wait` for ``lgkmcnt``; and the order of global memory, for a wave's own accesses too.
A ``flat_`` instruction would raise both counters; there is no word for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilekit.assembly.gcn.allocation import Allocation
from tilekit.assembly.gcn.code import Branch, Code, Commit, Counter, Instruction, Label, Part, Wait
from tilekit.assembly.gcn.flow import Block, blocks_of
from tilekit.assembly.provenance import Origin

__all__ = ["MOST_COUNTED", "WaitCount", "waits"]

_ROUNDS = 20

MOST_COUNTED: Final[dict[Counter, int]] = {"vmcnt": 62, "lgkmcnt": 14}
"""The largest count that a wait asks for: one less than the field's largest value, which means no wait."""


@dataclass(slots=True)
class WaitCount:
    """A wait: what each counter must be down to; None where it does not matter.

    Attributes
    ----------
    vmcnt, lgkmcnt
        Counts.
    role, depth, origin
        Of what waits.
    """

    vmcnt: int | None = None
    lgkmcnt: int | None = None
    role: str = ""
    depth: int = 0
    origin: Origin | None = None

    @property
    def text(self) -> str:
        """The line of assembly."""
        counts = (("vmcnt", self.vmcnt), ("lgkmcnt", self.lgkmcnt))
        return "s_waitcnt " + " ".join(f"{name}({count})" for name, count in counts if count is not None)


@dataclass(slots=True)
class _Queue:
    """Operations of one counter that may be outstanding.

    Attributes
    ----------
    most
        The largest count that is of use: operations with more behind them are taken for one with so many.
    by_age
        Registers that operations in order will write, by how many in order were issued after them.
    unordered
        Registers that operations without an order will write.
    mixed
        Whether one of those may be outstanding.
    outstanding
        How many operations may be, up to one more than `most`.
    pending
        All registers that are to be written.
    """

    most: int
    by_age: list[int] = field(default_factory=list)
    unordered: int = 0
    mixed: bool = False
    outstanding: int = 0
    pending: int = 0

    def copy(self) -> _Queue:
        return _Queue(self.most, self.by_age.copy(), self.unordered, self.mixed, self.outstanding, self.pending)

    def issue(self, registers: int, ordered: bool) -> None:
        self.outstanding = min(self.outstanding + 1, self.most + 1)
        self.pending |= registers
        if not ordered:
            self.mixed = True
            self.unordered |= registers
            return
        self.by_age.insert(0, registers)
        if len(self.by_age) > self.most + 1:
            oldest = self.by_age.pop()
            self.by_age[-1] |= oldest

    def count_for(self, registers: int) -> int | None:
        """The count at which no operation is left that writes one of some registers."""
        if not registers & self.pending:
            return None
        if self.mixed:
            return 0
        return next(age for age, written in enumerate(self.by_age) if written & registers)

    def wait(self, count: int) -> None:
        if count >= self.outstanding:
            return
        self.outstanding = count
        if count == 0:
            self.mixed, self.unordered = False, 0
            self.by_age.clear()
        elif not self.mixed:
            del self.by_age[count:]
        self.pending = self.unordered
        for registers in self.by_age:
            self.pending |= registers

    def merge(self, other: _Queue) -> None:
        """Take in what may be outstanding on another way."""
        self.by_age += [0] * (len(other.by_age) - len(self.by_age))
        for age, registers in enumerate(other.by_age):
            self.by_age[age] |= registers
        self.unordered |= other.unordered
        self.mixed |= other.mixed
        self.outstanding = max(self.outstanding, other.outstanding)
        self.pending |= other.pending


def _queues() -> dict[Counter, _Queue]:
    return {name: _Queue(most) for name, most in MOST_COUNTED.items()}


@dataclass(slots=True)
class _State:
    """Both counters, and how many vector memory operations were issued after each of the youngest groups' ends."""

    queues: dict[Counter, _Queue] = field(default_factory=_queues)
    after_group: list[int] = field(default_factory=list)

    def copy(self) -> _State:
        return _State({name: queue.copy() for name, queue in self.queues.items()}, self.after_group.copy())

    def merge(self, other: _State) -> None:
        for name, queue in self.queues.items():
            queue.merge(other.queues[name])
        # A group that is not there on one way asks nothing there.
        shared = min(len(self.after_group), len(other.after_group))
        longer = self.after_group if len(self.after_group) > shared else other.after_group
        fewest = [min(pair) for pair in zip(self.after_group, other.after_group, strict=False)]
        self.after_group = fewest + longer[shared:]


def waits(code: Code, allocation: Allocation) -> list[Instruction | Label | Branch | WaitCount]:
    """Return the items with waits among them, and without `Commit` and `Wait`."""
    derivation = _Derivation(code, allocation)
    return derivation.items()


class _Derivation:
    def __init__(self, code: Code, allocation: Allocation) -> None:
        self.code = code
        self.blocks = blocks_of(code)
        # A group older than any wait counts down to is of no interest.
        self.groups = max((item.pending or 0 for item in code.items if isinstance(item, Wait)), default=0) + 1
        self.read: dict[int, int] = {}
        self.written: dict[int, int] = {}
        for index, item in enumerate(code.items):
            if isinstance(item, Instruction):
                self.read[index] = _registers(item.reads, allocation)
                self.written[index] = _registers(item.writes, allocation)

    def items(self) -> list[Instruction | Label | Branch | WaitCount]:
        """Round by round until what enters each block is what leaves those before it, with the waits that they have.

        A wait in one block makes one in another superfluous, so nothing is kept of earlier rounds; only if they do not
        settle is what may be outstanding gathered, which does.
        """
        entering: list[_State | None] = [None] * len(self.blocks)
        leaving: list[_State | None] = [None] * len(self.blocks)
        stale, rounds = set(range(len(self.blocks))), 0
        while stale:
            rounds += 1
            for number, block in enumerate(self.blocks):
                if number not in stale:
                    continue
                stale.remove(number)
                state, known = self._merged(number, leaving), entering[number]
                if rounds > _ROUNDS and state is not None and known is not None:
                    state.merge(known)
                if state is None or state == known:
                    continue
                entering[number] = state
                after = state.copy()
                self._run(block, after, [])
                if after != leaving[number]:
                    leaving[number] = after
                    stale.update(block.successors)
        found: list[Instruction | Label | Branch | WaitCount] = []
        for block, entered in zip(self.blocks, entering, strict=True):
            self._run(block, entered or _State(), found)
        return found

    def _merged(self, number: int, leaving: list[_State | None]) -> _State | None:
        """What enters a block, as far as is known; None where no way to it is."""
        found = _State() if number == 0 else None
        for predecessor in self.blocks[number].predecessors:
            other = leaving[predecessor]
            if other is not None:
                if found is None:
                    found = other.copy()
                else:
                    found.merge(other)
        return found

    def _run(self, block: Block, state: _State, found: list[Instruction | Label | Branch | WaitCount]) -> None:
        """Go through a block; changes `state`, and appends to `found`."""
        wanted = WaitCount()
        for index in range(block.start, block.end):
            item = self.code.items[index]
            if isinstance(item, Instruction):
                self._need(index, item, state, wanted)
                wanted = _put(wanted, item, found)
                if item.counter is not None:
                    state.queues[item.counter].issue(self.written[index], _ordered(item))
                    if item.counter == "vmcnt":
                        most = MOST_COUNTED["vmcnt"]
                        state.after_group = [min(count + 1, most) for count in state.after_group]
                found.append(item)
            elif isinstance(item, Commit):
                state.after_group = [0, *state.after_group[: self.groups - 1]]
            elif isinstance(item, Wait):
                _wait_for_groups(item, state, wanted)
            else:
                wanted = _put(wanted, item, found)
                found.append(item)
        if wanted.vmcnt is not None or wanted.lgkmcnt is not None:
            found.append(wanted)

    def _need(self, index: int, item: Instruction, state: _State, wanted: WaitCount) -> None:
        """Note what an instruction must wait for, as done."""
        touched = self.read[index] | self.written[index]
        for counter, queue in state.queues.items():
            if not touched & queue.pending:
                continue
            follows = item.counter == counter and _ordered(item) and not queue.mixed
            count = queue.count_for(self.read[index] if follows else touched)
            if count is not None:
                _want(counter, count, state, wanted)
        for counter in item.waits:
            _want(counter, 0, state, wanted)


def _ordered(item: Instruction) -> bool:
    """Whether an operation completes after those of its counter that were issued before, as all but scalar ones do."""
    return not item.text.startswith("s_")


def _want(counter: Counter, count: int, state: _State, wanted: WaitCount) -> bool:
    """Note a wait as done; returns whether it asks for anything."""
    queue = state.queues[counter]
    if count >= queue.outstanding:
        return False
    queue.wait(count)
    setattr(wanted, counter, count)
    return True


def _wait_for_groups(item: Wait, state: _State, wanted: WaitCount) -> None:
    count = 0
    if item.pending is not None:
        assert item.counter == "vmcnt", "groups are of vector memory operations"
        if item.pending >= len(state.after_group):
            return
        count = state.after_group[item.pending]
    if _want(item.counter, count, state, wanted):
        wanted.origin = wanted.origin or item.origin


def _put(
    wanted: WaitCount, before: Instruction | Label | Branch, found: list[Instruction | Label | Branch | WaitCount]
) -> WaitCount:
    """Place what is wanted, if anything is, before an item; returns what is wanted after."""
    if wanted.vmcnt is None and wanted.lgkmcnt is None:
        return wanted
    if isinstance(before, Instruction):
        wanted.role, wanted.depth = before.role, before.depth
        wanted.origin = wanted.origin or before.origin
    found.append(wanted)
    return WaitCount()


_FIRST: Final = {"scalar": 0, "vector": 128, "accumulator": 384}


def _registers(parts: tuple[Part, ...], allocation: Allocation) -> int:
    """Bits of the registers that some parts are in: scalars, VGPRs, AGPRs."""
    found = 0
    for part in parts:
        first = _FIRST[part.register.file] + allocation.places[part.register] + part.first
        found |= ((1 << part.words) - 1) << first
    return found
