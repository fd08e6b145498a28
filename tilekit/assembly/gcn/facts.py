"""What is known of registers at a place: forward within a block, and into one that only the block before it leads to.

Where lanes come back that were masked off, what vector registers held of the active ones is no longer known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from tilekit.assembly.gcn.code import Code, Instruction, Part, Virtual
from tilekit.assembly.gcn.flow import Block

__all__ = ["Facts", "RegisterWord", "carries_on", "reads_of", "words_of_part", "writes_of"]

RegisterWord: TypeAlias = tuple[Virtual, int]
"""One word of a register."""

Fact = TypeVar("Fact")


def words_of_part(part: Part) -> Iterator[RegisterWord]:
    """Go through the words of some."""
    return ((part.register, word) for word in range(part.first, part.first + part.words))


def writes_of(code: Code) -> Counter[RegisterWord]:
    """Return how many instructions write each word; what the hardware fills has one more."""
    return _count(code, "writes")


def reads_of(code: Code) -> Counter[RegisterWord]:
    """Return how many instructions read each word."""
    return _count(code, "reads")


def _count(code: Code, which: str) -> Counter[RegisterWord]:
    found: Counter[RegisterWord] = Counter()
    for item in code.items:
        if isinstance(item, Instruction):
            for part in getattr(item, which):
                found.update(words_of_part(part))
    return found


def carries_on(blocks: list[Block], number: int) -> bool:
    """Whether only the block before leads to one, so that what is known there is known here."""
    return number > 0 and blocks[number].predecessors == [number - 1]


class Facts(Generic[Fact]):
    """One fact of each word, and the words that it says something of: if one of them changes, it is no more.

    A fact is for the active lanes only where the instruction that it comes from was `partial`.
    """

    def __init__(self) -> None:
        self._facts: dict[RegisterWord, tuple[Fact, bool]] = {}
        self._about: dict[RegisterWord, set[RegisterWord]] = {}

    def get(self, word: RegisterWord, *, everywhere: bool = False) -> Fact | None:
        """What is known of a word; `everywhere`: in lanes that are masked off, too."""
        found = self._facts.get(word)
        return None if found is None or (everywhere and found[1]) else found[0]

    def note(self, word: RegisterWord, fact: Fact, about: Iterator[RegisterWord], *, partial: bool) -> None:
        """Know something of a word that was just written, and of other words that it is about."""
        self._facts[word] = fact, partial
        for other in about:
            self._about.setdefault(other, set()).add(word)

    def after(self, item: Instruction) -> None:
        """Forget what an instruction changes."""
        for part in item.writes:
            for word in words_of_part(part):
                self._facts.pop(word, None)
                for other in self._about.pop(word, ()):
                    self._facts.pop(other, None)
        if "exec" in item.clobbers and item.lanes != "fewer":
            self._facts = {word: fact for word, fact in self._facts.items() if word[0].file == "scalar"}
