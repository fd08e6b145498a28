"""Loads of kernel arguments: of neighbours as one, or, where registers are short, where they are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilekit.assembly.gcn.code import Branch, Code, Instruction, Item, Label, Part, Virtual
from tilekit.assembly.gcn.facts import RegisterWord, words_of_part, writes_of
from tilekit.assembly.gcn.flow import Block, blocks_of

__all__ = ["with_late_argument_loads", "with_wide_argument_loads"]

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
        for group in _groups(list(_loads(code, block, writes))):
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


def with_late_argument_loads(code: Code, *, before_loops: bool = False) -> Code:
    """Return a kernel in which each block that reads an argument loads it for itself: it holds no register elsewhere.

    A turn of a loop within another is short, so it loads nothing. Arguments that it reads stay where they are or, with
    `before_loops`, are loaded just before it.
    """
    writes, blocks, loops = writes_of(code), blocks_of(code), _inner_loops(code)
    loads = {load.target: load for block in blocks for load in _loads(code, block, writes)}
    for loop in loops:
        if not before_loops or not _is_fallen_into(code, loop):
            for reader in _instructions(code, loop):
                for part in reader.reads:
                    loads.pop(part.register, None)
    gone = {load.index for load in loads.values()}
    items: list[Item] = []
    for place in _blocks_and_loops(blocks, loops):
        here: dict[Virtual, Part] = {}
        if place in loops:
            for reader in _instructions(code, place):
                items += _loads_for(reader, code, loads, here)
        for index in place:
            item = code.items[index]
            if index in gone:
                continue
            if not isinstance(item, Instruction):
                items.append(item)
                continue
            items += _loads_for(item, code, loads, here)
            items.append(_moved(item, here))
    return Code(items)


def _loads_for(item: Instruction, code: Code, loads: dict[Virtual, _Load], here: dict[Virtual, Part]) -> list[Item]:
    """Loads of the arguments that an instruction reads and that are not yet `here`, where they are noted."""
    found: list[Item] = []
    for part in item.reads:
        load = loads.get(part.register)
        if load is not None and load.target not in here:
            original = code.items[load.index]
            assert isinstance(original, Instruction)
            here[load.target] = Part(replace(load.target), 0, load.target.words)
            found.append(replace(_moved(original, here), depth=item.depth, role=item.role, origin=item.origin))
    return found


def _instructions(code: Code, place: range) -> Iterator[Instruction]:
    return (item for item in code.items[place.start : place.stop] if isinstance(item, Instruction))


def _inner_loops(code: Code) -> list[range]:
    """Where loops are that another is round, with all inside of them: a branch back goes round what lies between."""
    labels = _labels(code)
    depths = [0] * (len(code.items) + 1)
    for index, item in enumerate(code.items):
        if isinstance(item, Branch) and labels[item.target] <= index:
            for inside in range(labels[item.target], index + 1):
                depths[inside] += 1
    found, start = [], None
    for index, depth in enumerate(depths):
        if depth > 1 and start is None:
            start = index
        elif depth <= 1 and start is not None:
            found.append(range(start, index))
            start = None
    return found


def _is_fallen_into(code: Code, loop: range) -> bool:
    """Whether the one way into a loop is from the item before it."""
    labels, before = _labels(code), code.items[loop.start - 1] if loop.start else None
    if isinstance(before, Branch) and before.condition is None:
        return False
    return not any(
        isinstance(item, Branch) and labels[item.target] in loop and index not in loop
        for index, item in enumerate(code.items)
    )


def _blocks_and_loops(blocks: list[Block], loops: list[range]) -> Iterator[range]:
    """Go through a kernel, inner loops whole and all else block by block."""
    within = {index: loop for loop in loops for index in loop}
    for block in blocks:
        loop = within.get(block.start)
        if loop is None:
            yield range(block.start, block.end)
        elif loop.start == block.start:
            yield loop


def _labels(code: Code) -> dict[str, int]:
    return {item.name: index for index, item in enumerate(code.items) if isinstance(item, Label)}


def _loads(code: Code, block: Block, writes: Counter[RegisterWord]) -> Iterator[_Load]:
    """Go through a block's loads of arguments."""
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
            yield _Load(index, int(match[1], 0), register, base)


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
