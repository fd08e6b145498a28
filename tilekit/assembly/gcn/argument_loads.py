"""Loads of neighbouring kernel arguments as one: as wide as there are, into registers side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilekit.assembly.gcn.code import Code, Instruction, Item, Part, Virtual
from tilekit.assembly.gcn.facts import words_of_part, writes_of
from tilekit.assembly.gcn.flow import blocks_of

__all__ = ["with_wide_argument_loads"]

_LOAD = re.compile(r"s_load_dword(?:x2)? \{0\}, \{1\}, (0x[0-9a-f]+|\d+)")
_WIDTHS = (8, 4, 2)
"""Words of one load; 16 would be more registers than most kernels have arguments for."""


@dataclass(frozen=True, slots=True)
class _Load:
    """A load into the whole of a register that nothing else writes."""

    index: int
    offset: int
    target: Virtual
    base: Part


def with_wide_argument_loads(code: Code) -> Code:
    """Return a kernel whose loads of neighbouring words into registers of their own are one, where the first was.

    What lies between may not write what they read. A pair begins at an even word in what is loaded, as it must in
    registers.
    """
    writes = writes_of(code)
    moved: dict[Virtual, Part] = {}
    merged: dict[int, Instruction] = {}
    gone: set[int] = set()
    for block in blocks_of(code):
        found = []
        for index in range(block.start, block.end):
            item = code.items[index]
            match = _LOAD.fullmatch(item.text) if isinstance(item, Instruction) else None
            if match is None:
                continue
            assert isinstance(item, Instruction)
            target, base = item.operands
            register = target.register
            alone = target.words == register.words and all(writes[word] == 1 for word in words_of_part(target))
            if alone and register.fixed is None and not any(writes[word] for word in words_of_part(base)):
                found.append(_Load(index, int(match[1], 0), register, base))
        for group in _groups(found):
            words = sum(load.target.words for load in group)
            whole = Virtual("arguments", "scalar", words, 2 if words == 2 else 4)
            for load in group:
                moved[load.target] = Part(whole, (load.offset - group[0].offset) // 4, load.target.words)
            first = min(load.index for load in group)
            gone.update(load.index for load in group)
            item = code.items[first]
            assert isinstance(item, Instruction)
            part = Part(whole, 0, words)
            text = f"s_load_dwordx{words} {{0}}, {{1}}, {group[0].offset:#x}"
            merged[first] = replace(item, text=text, operands=(part, group[0].base), writes=(part,))
    if not merged:
        return code
    items: list[Item] = []
    for index, item in enumerate(code.items):
        if index in merged:
            items.append(merged[index])
        elif index not in gone:
            items.append(_moved(item, moved) if isinstance(item, Instruction) else item)
    return Code(items)


def _groups(loads: list[_Load]) -> Iterator[list[_Load]]:
    """Go through runs of loads whose words follow one another and are as many as one load brings."""
    rest = sorted(loads, key=lambda load: load.offset)
    while rest:
        run = [rest[0]]
        for load in rest[1:]:
            if load.base != run[0].base or load.offset != run[-1].offset + 4 * run[-1].target.words:
                break
            run.append(load)
        for width in _WIDTHS:
            group = _first_words(run, width)
            if len(group) > 1:
                yield group
                rest = rest[len(group) :]
                break
        else:
            rest = rest[1:]


def _first_words(run: list[_Load], width: int) -> list[_Load]:
    """The loads that bring the first words of a run, exactly so many; none where that cannot be."""
    group: list[_Load] = []
    words = 0
    for load in run:
        if words % load.target.words or words + load.target.words > width:
            break
        group.append(load)
        words += load.target.words
    return group if words == width else []


def _moved(item: Instruction, moved: dict[Virtual, Part]) -> Instruction:
    """An instruction with registers that are now parts of others."""
    if not any(part.register in moved for part in (*item.operands, *item.reads, *item.writes)):
        return item

    def place(part: Part) -> Part:
        found = moved.get(part.register)
        return part if found is None else Part(found.register, found.first + part.first, part.words)

    return replace(
        item,
        operands=tuple(map(place, item.operands)),
        reads=tuple(map(place, item.reads)),
        writes=tuple(map(place, item.writes)),
    )
