"""Control flow of a `Code`, and where the value of each `Virtual` must be kept: `live_ranges`.

Lanes
-----
A vector instruction under a narrowed EXEC leaves the other lanes as they are, so it ends the need of an earlier value
only in the lanes that are active. Two sets are kept at each place: the words that a lane which is active there will
still read, and those that a lane which is masked off there will. A write takes its words out of the first set, and out
of both where EXEC is full. Where EXEC changes, a lane may pass from one to the other: none becomes active where lanes
are only dropped, none becomes masked off where they are only added. So what is made and used between two changes of
EXEC is needed there alone, in a loop, too; and what lanes need behind a loop that they leave one by one is kept until
the last of them leaves. A value of parted lanes that lives on behind an inner region is kept like one that masked
lanes need, in a loop from turn to turn: which of them an inner region gives back is not followed.

A register that no way from the entry has written holds nothing: it is free however much is read of it later.

Slots
-----
The item with index ``i`` reads in slot ``2 i`` and writes in slot ``2 i + 1``, so that a result may take the place of
an operand that ends there. A result of several words is written from slot ``2 i`` on and takes no such place: a matrix
instruction may write its first words before it has read its last (LLVM marks these results as early clobbered, and
those of scalar loads that may be replayed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilekit.assembly.errors import TraceError
from tilekit.assembly.gcn.code import Branch, Code, Instruction, Label, Part, Virtual

__all__ = ["Block", "Ranges", "Words", "blocks_of", "live_ranges"]

Ranges = dict[Virtual, list[tuple[int, int]]]
"""Slots in which a register's place is taken: first and last of each stretch, in order and apart."""


@dataclass(slots=True)
class Block:
    """Items that run one after the other.

    Attributes
    ----------
    start, end
        Index of the first item, and of the first behind the last.
    successors, predecessors
        Numbers of the blocks that may follow, and that may come before.
    """

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)


def blocks_of(code: Code) -> list[Block]:
    """Return the blocks in the order of the text: first the entry; those that nothing reaches are there, too.

    Raises
    ------
    TraceError
        Where a branch goes to a label that is not there, or to one that is there twice.
    """
    items = code.items
    blocks: list[Block] = []
    labels: dict[str, int] = {}
    start = 0
    for index, item in enumerate(items):
        if isinstance(item, Label):
            if index > start:
                blocks.append(Block(start, index))
                start = index
            if item.name in labels:
                raise TraceError(f"label '{item.name}' is placed twice")
            labels[item.name] = len(blocks)
        elif isinstance(item, Branch) or _ends(item):
            blocks.append(Block(start, index + 1))
            start = index + 1
    if start < len(items):
        blocks.append(Block(start, len(items)))
    for number, block in enumerate(blocks):
        last = items[block.end - 1]
        following = number + 1 < len(blocks) and not _ends(last)
        if isinstance(last, Branch):
            if last.target not in labels:
                raise TraceError(f"a branch goes to label '{last.target}', which nothing places")
            block.successors.append(labels[last.target])
            following = following and last.condition is not None
        if following and number + 1 not in block.successors:
            block.successors.append(number + 1)
    for number, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].predecessors.append(number)
    return blocks


def _ends(item: object) -> bool:
    return isinstance(item, Instruction) and item.text == "s_endpgm"


class Words:
    """A number for each word of each register of a `Code`, so that sets of them are integers.

    Attributes
    ----------
    registers
        Every `Virtual` that is read or written, in the order in which they appear.
    first
        The number of a register's first word.
    every
        All words.
    """

    def __init__(self, code: Code) -> None:
        self.registers: list[Virtual] = []
        self.first: dict[Virtual, int] = {}
        self._owners: list[Virtual] = []
        for item in code.items:
            if isinstance(item, Instruction):
                for part in (*item.reads, *item.writes):
                    if part.register not in self.first:
                        self._add(part.register)
        self.every = (1 << len(self._owners)) - 1

    def _add(self, register: Virtual) -> None:
        self.registers.append(register)
        self.first[register] = len(self._owners)
        self._owners += [register] * register.words

    def of(self, parts: Sequence[Part]) -> int:
        """Return the words of some parts."""
        found = 0
        for part in parts:
            found |= ((1 << part.words) - 1) << (self.first[part.register] + part.first)
        return found

    def all_of(self, register: Virtual) -> int:
        """Return a register's words."""
        return ((1 << register.words) - 1) << self.first[register]

    def owners(self, words: int) -> Iterator[Virtual]:
        """Return the registers that some words belong to, each once."""
        while words:
            register = self._owners[(words & -words).bit_length() - 1]
            yield register
            words &= ~self.all_of(register)


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
    """

    reads: int
    reads_all: int
    writes: int
    writes_all: int
    lanes: str


def _effect(item: Instruction, words: Words) -> _Effect:
    reads, writes = words.of(item.reads), words.of(item.writes)
    whole = writes
    if item.partial:
        whole = words.of([part for part in item.writes if part.register.file == "scalar"])
    lanes = item.lanes if "exec" in item.clobbers else ""
    return _Effect(reads, 0 if item.partial else reads, writes, whole, lanes)


def live_ranges(code: Code, blocks: list[Block]) -> Ranges:
    """Return where each register's place is taken.

    Parameters
    ----------
    code, blocks
        The kernel, and its `blocks_of`.
    """
    return _Liveness(code, blocks).ranges()


class _Liveness:
    """Both sets at the end of every block, and the words that may have been written where it begins."""

    def __init__(self, code: Code, blocks: list[Block]) -> None:
        self.code = code
        self.blocks = blocks
        self.words = Words(code)
        self.effects = [_effect(i, self.words) if isinstance(i, Instruction) else None for i in code.items]
        self.written = self._written()
        self.needed = self._needed()

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

    def _needed(self) -> list[tuple[int, int]]:
        """The words that active lanes, and masked ones, read later, by block where it ends."""
        summaries = [self._summary(block) for block in self.blocks]
        leaving = [(0, 0)] * len(self.blocks)
        settled = False
        while not settled:
            settled = True
            for number in reversed(range(len(self.blocks))):
                active, masked = leaving[number]
                of_active, of_masked = summaries[number]
                entering_active = of_active[0] | active & of_active[1] | masked & of_active[2]
                entering_masked = of_masked[0] | active & of_masked[1] | masked & of_masked[2]
                for predecessor in self.blocks[number].predecessors:
                    before = leaving[predecessor]
                    after = before[0] | entering_active, before[1] | entering_masked
                    if after != before:
                        leaving[predecessor] = after
                        settled = settled and predecessor < number
        return leaving

    def _summary(self, block: Block) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """For active and for masked lanes: what they read first in a block, and which words pass from its end.

        The second and third number of each are the words that are needed where the block begins if they are where it
        ends, by active and by masked lanes there.
        """
        every = self.words.every
        active, masked = (0, every, 0), (0, 0, every)
        for effect in reversed(self.effects[block.start : block.end]):
            if effect is None:
                continue
            if effect.lanes:
                either = (active[0] | masked[0], active[1] | masked[1], active[2] | masked[2])
                active = active if effect.lanes == "more" else either
                masked = masked if effect.lanes == "fewer" else either
            if effect.writes:
                kept = ~effect.writes
                active = (active[0] & kept, active[1] & kept, active[2] & kept)
                if effect.writes_all:
                    kept = ~effect.writes_all
                    masked = (masked[0] & kept, masked[1] & kept, masked[2] & kept)
            if effect.reads:
                active = (active[0] | effect.reads, active[1], active[2])
                if effect.reads_all:
                    masked = (masked[0] | effect.reads_all, masked[1], masked[2])
        return active, masked

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
        active, masked = (needed & written for needed in self.needed[number])
        open_until = dict.fromkeys(words.owners(active | masked), 2 * block.end - 1)
        for index in range(block.end - 1, block.start - 1, -1):
            effect = self.effects[index]
            if effect is None:
                continue
            item = self.code.items[index]
            assert isinstance(item, Instruction)
            if effect.lanes:
                either = active | masked
                active = active if effect.lanes == "more" else either
                masked = masked if effect.lanes == "fewer" else either
            fresh = unwritten.get(index, 0)
            active &= ~(effect.writes | fresh)
            masked &= ~(effect.writes_all | fresh)
            read = effect.reads & ~fresh
            active |= read
            masked |= effect.reads_all & ~fresh
            for part in item.writes:
                register = part.register
                last = open_until.setdefault(register, 2 * index + 1)
                if not (active | masked) & words.all_of(register):
                    early = part.words > 1
                    found[register].append((2 * index + (not early), last))
                    del open_until[register]
            for part in item.reads:
                register = part.register
                if (active | masked) & words.all_of(register):
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
