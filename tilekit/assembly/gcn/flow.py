"""Control flow of a `Code`: its blocks, and numbers for the words of its registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilekit.assembly.errors import TraceError
from tilekit.assembly.gcn.code import Branch, Code, Instruction, Label, Part, Virtual

__all__ = ["Block", "Words", "blocks_of"]


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
