"""Like instructions of a block computed by one NumPy call.

Compilers unroll: a block converts all of a thread's accumulators, one instruction a pair. NumPy's cost is that of its
calls, so results of registers alone are put off until one of them is needed, and those of one kind are then computed
together, a row each. Nothing can tell: such an instruction neither fails nor reads memory, and what it reads is not
overwritten before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FEWEST = 4
"""Fewer results of a kind are computed one by one: to stack their sources would take longer."""


@dataclass(frozen=True, slots=True)
class Member:
    """One instruction that was put off.

    Attributes
    ----------
    number
        Its result register.
    name
        The local variable of the result.
    template
        Python text of the computation, with ``{0}``, ``{1}`` for its sources: of arrays of any shape.
    sources
        Expressions of arrays of lanes.
    reads
        Numbers of the registers in ``sources``.
    """

    number: int
    name: str
    template: str
    sources: tuple[str, ...]
    reads: frozenset[int]


TILE_ROW = re.compile(r"T([UF])\[(\d+)\](\.view\(int32\))?")
"""Text of a row of the tile file, one register of all lanes."""


def _stacked(texts: Sequence[str]) -> str:
    """Text of an array of arrays: rows of the tile file that are evenly spaced are a part of it."""
    found = [TILE_ROW.fullmatch(text) for text in texts]
    rows = [int(match[2]) for match in found if match and not match[3] and found[0] and match[1] == found[0][1]]
    step = rows[1] - rows[0] if len(rows) > 1 else 0
    if step > 0 and rows == list(range(rows[0], rows[0] + step * len(texts), step)):
        return f"{texts[0].replace('T', 'A', 1).rstrip(']')}:{rows[-1] + 1}:{step}]"
    return f"array(({', '.join(texts)}))"


class Batches:
    """The results that a block has put off, by the text that computes them."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._members

    def add(self, member: Member) -> None:
        """Put an instruction off."""
        self._members[member.number] = member

    def find(self, number: int) -> Member | None:
        """The instruction put off whose result is a register."""
        return self._members.get(number)

    def drop(self, number: int) -> None:
        """Forget a result that is overwritten before it was read."""
        self._members.pop(number, None)

    def readers(self, number: int) -> list[int]:
        """Results put off that have yet to read a register."""
        return [member.number for member in self._members.values() if number in member.reads]

    def reading(self, registers: Sequence[int] | dict[int, int]) -> list[int]:
        """Results put off that have yet to read one of some registers."""
        return [member.number for member in self._members.values() if not member.reads.isdisjoint(registers)]

    def compute(self, number: int, temporary: str) -> Iterator[str]:
        """Lines that compute a result that was put off, and all others of its kind."""
        template = self._members[number].template
        members = [member for member in self._members.values() if member.template == template]
        for member in members:
            del self._members[member.number]
        if len(members) < FEWEST:
            for member in members:
                yield f"{member.name} = {template.format(*member.sources)}"
            return
        stacked = (_stacked(texts) for texts in zip(*(m.sources for m in members), strict=True))
        yield f"{temporary} = {template.format(*stacked)}"
        yield f"{', '.join(member.name for member in members)} = {temporary}"
