"""Where the value of each `Virtual` must be kept: `live_ranges`.

Lanes
-----
A vector instruction under a narrowed EXEC leaves the other lanes as they are, so it ends the need of an earlier value
only in the lanes that are active. The words that are still to be read are kept apart by who reads them: lanes that are
active; lanes that are masked off, and come back where EXEC is restored from a certain pair of scalars, one set a pair;
and other masked lanes. A write takes its words out of the first set, and out of all where EXEC is full. Where EXEC is
restored, lanes of the pair's set become active; where it is narrowed, active ones go into the sets. So what is made and
used where lanes have parted is needed there alone, across inner regions and in a loop, too; and what lanes need behind
a loop that they leave one by one is kept until the last of them leaves.

A pair counts as EXEC's if all that is ever written to it is EXEC: by ``s_…_saveexec``, or ``s_mov_b64 pair, exec``.

A register that no way from the entry has written holds nothing: it is free however much is read of it later.

Slots
-----
The item with index ``i`` reads in slot ``2 i`` and writes in slot ``2 i + 1``, so that a result may take the place of
an operand that ends there. A result of several words is written from slot ``2 i`` on and takes no such place: a matrix
instruction may write its first words before it has read its last (LLVM marks these results as early clobbered, and
those of scalar loads that may be replayed).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.assembly.gcn.code import Code, Instruction, Virtual
from tilekit.assembly.gcn.flow import Block, Words

__all__ = ["Ranges", "live_ranges", "saved_masks", "saves_exec"]

Ranges = dict[Virtual, list[tuple[int, int]]]
"""Slots in which a register's place is taken: first and last of each stretch, in order and apart."""


def live_ranges(code: Code, blocks: list[Block]) -> Ranges:
    """Return where each register's place is taken.

    Parameters
    ----------
    code, blocks
        The kernel, and its `blocks_of`.
    """
    return _Liveness(code, blocks).ranges()


def saves_exec(item: Instruction) -> Virtual | None:
    """Return the pair that an instruction saves EXEC in, before it narrows EXEC if it does; None for others."""
    saves = "_saveexec_" in item.text and item.lanes == "fewer"
    if not saves and not (item.text.startswith("s_mov_b64") and item.text.endswith(", exec")):
        return None
    if len(item.writes) != 1 or item.writes[0].words != item.writes[0].register.words:
        return None
    return item.writes[0].register


def saved_masks(code: Code) -> set[Virtual]:
    """Return the pairs of scalars to which nothing but EXEC is ever written."""
    saved: set[Virtual] = set()
    others: set[Virtual] = set()
    for item in code.items:
        if isinstance(item, Instruction):
            pair = saves_exec(item)
            if pair is not None:
                saved.add(pair)
            else:
                others.update(part.register for part in item.writes if part.register.file == "scalar")
    return saved - others


@dataclass(slots=True)
class _Effect:
    """What an instruction does to the sets: words that it reads, and writes, in active lanes and in all.

    Attributes
    ----------
    reads, reads_all
        Words that active lanes read, and those of them that masked lanes read as well.
    writes, writes_all
        Words that active lanes have written, and those of them that are written in masked lanes as well.
    lanes
        How EXEC changes; empty where it does not.
    saved, restored
        The pair that EXEC is saved in, and restored from.
    """

    reads: int
    reads_all: int
    writes: int
    writes_all: int
    lanes: str
    saved: Virtual | None
    restored: Virtual | None


@dataclass(slots=True)
class _Needed:
    """The words that are still to be read.

    Attributes
    ----------
    active
        By lanes that are active.
    masked
        By masked lanes, whichever they are.
    back
        By masked lanes that come back where EXEC is restored from a pair of scalars.
    """

    active: int = 0
    masked: int = 0
    back: dict[Virtual, int] = field(default_factory=dict)

    def copy(self) -> _Needed:
        return _Needed(self.active, self.masked, self.back.copy())

    def every(self) -> int:
        found = self.active | self.masked
        for words in self.back.values():
            found |= words
        return found

    def add(self, other: _Needed) -> bool:
        """Take in what is read on another way; returns whether that is news."""
        before = (self.active, self.masked)
        self.active |= other.active
        self.masked |= other.masked
        changed = before != (self.active, self.masked)
        for pair, words in other.back.items():
            if words & ~self.back.get(pair, 0):
                self.back[pair] = self.back.get(pair, 0) | words
                changed = True
        return changed

    def keep(self, words: int) -> None:
        """Leave out all but some words."""
        self.active &= words
        self.masked &= words
        for pair in self.back:
            self.back[pair] &= words

    def go_before(self, effect: _Effect) -> None:
        """Go from behind an instruction to before it."""
        if effect.lanes == "more" and effect.restored is not None:
            self.back[effect.restored] = self.active
        elif effect.lanes == "more":
            self.masked |= self.active
        elif effect.lanes:
            self.active = self.every()
            if effect.lanes == "any":
                self.masked = self.active
                self.back.clear()
        if effect.saved is not None:
            self.back.pop(effect.saved, None)
        if effect.writes:
            self.active &= ~effect.writes
            if effect.writes_all:
                self.masked &= ~effect.writes_all
                for pair in self.back:
                    self.back[pair] &= ~effect.writes_all
        self.active |= effect.reads
        self.masked |= effect.reads_all


class _Liveness:
    """What is needed at the end of every block, and the words that may have been written where it begins."""

    def __init__(self, code: Code, blocks: list[Block]) -> None:
        self.code = code
        self.blocks = blocks
        self.words = Words(code)
        masks = saved_masks(code)
        self.effects = [self._effect(i, masks) if isinstance(i, Instruction) else None for i in code.items]
        self.written = self._written()
        self.needed = self._needed()

    def _effect(self, item: Instruction, masks: set[Virtual]) -> _Effect:
        reads, writes = self.words.of(item.reads), self.words.of(item.writes)
        whole = writes
        if item.partial:
            whole = self.words.of([part for part in item.writes if part.register.file == "scalar"])
        lanes = item.lanes if "exec" in item.clobbers else ""
        saved = saves_exec(item)
        restored = next((p.register for p in item.reads if p.register in masks), None) if lanes == "more" else None
        return _Effect(
            reads, 0 if item.partial else reads, writes, whole, lanes, saved if saved in masks else None, restored
        )

    def _written(self) -> list[int]:
        """The words that some way from the entry has written, by block where it begins."""
        own = []
        for block in self.blocks:
            made = 0
            for effect in self.effects[block.start : block.end]:
                if effect is not None:
                    made |= effect.writes
            own.append(made)
        entering = [0] * len(self.blocks)
        if self.blocks:
            entering[0] = sum(self.words.all_of(r) for r in self.words.registers if r.fixed is not None)
        settled = False
        while not settled:
            settled = True
            for number, block in enumerate(self.blocks):
                leaving = entering[number] | own[number]
                for successor in block.successors:
                    if leaving & ~entering[successor]:
                        entering[successor] |= leaving
                        settled = settled and successor > number
        return entering

    def _needed(self) -> list[_Needed]:
        """What is read later, by block where it ends."""
        leaving = [_Needed() for _ in self.blocks]
        stale = set(range(len(self.blocks)))
        while stale:
            for number in reversed(range(len(self.blocks))):
                if number not in stale:
                    continue
                stale.remove(number)
                block, needed = self.blocks[number], leaving[number].copy()
                for effect in reversed(self.effects[block.start : block.end]):
                    if effect is not None:
                        needed.go_before(effect)
                for predecessor in block.predecessors:
                    if leaving[predecessor].add(needed):
                        stale.add(predecessor)
        return leaving

    def ranges(self) -> Ranges:
        found: Ranges = {register: [] for register in self.words.registers}
        for number in range(len(self.blocks)):
            self._add_ranges(number, found)
        return {register: _joined(stretches) for register, stretches in found.items()}

    def _add_ranges(self, number: int, found: Ranges) -> None:
        """Add the stretches of one block, from its end to its begin."""
        block, words = self.blocks[number], self.words
        written = self.written[number]
        unwritten: dict[int, int] = {}  # by item, words that nothing has written before it
        for index in range(block.start, block.end):
            effect = self.effects[index]
            if effect is not None:
                fresh = (effect.reads | effect.writes) & ~written
                if fresh:
                    unwritten[index] = fresh
                    written |= effect.writes
        needed = self.needed[number].copy()
        needed.keep(written)
        open_until = dict.fromkeys(words.owners(needed.every()), 2 * block.end - 1)
        for index in range(block.end - 1, block.start - 1, -1):
            effect = self.effects[index]
            if effect is None:
                continue
            item = self.code.items[index]
            assert isinstance(item, Instruction)
            needed.go_before(effect)
            if index in unwritten:
                needed.keep(~unwritten[index])
            held = needed.every()
            for part in item.writes:
                register = part.register
                last = open_until.setdefault(register, 2 * index + 1)
                if not held & words.all_of(register):
                    early = part.words > 1
                    found[register].append((2 * index + (not early), last))
                    del open_until[register]
            for part in item.reads:
                register = part.register
                if held & words.all_of(register):
                    open_until.setdefault(register, 2 * index)
                else:
                    found[register].append((2 * index, 2 * index))
        for register, last in open_until.items():
            found[register].append((2 * block.start, last))


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put stretches in order, and join those that meet."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if joined and first <= joined[-1][1] + 1:
            if last > joined[-1][1]:
                joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
