"""Copies: what reads one reads what it was made of, and copies that end where they began are no instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilekit.assembly.gcn.code import Code, Instruction, Item, Part, Virtual
from tilekit.assembly.gcn.facts import Facts, RegisterWord, carries_on, words_of_part
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.operands import is_legal, known, made, mnemonic_of, operands_of
from tilekit.assembly.gcn.register_file import alignment_of

__all__ = ["copied_words", "hints", "with_copies_read_through", "without_idle_copies"]

_COPIES = frozenset({"v_mov_b32", "s_mov_b32", "s_mov_b64", "v_accvgpr_mov_b32"})


def copied_words(item: Item) -> tuple[Part, Part] | None:
    """Return where a copy from registers to registers of any file goes, and what it copies; None for other items."""
    if not isinstance(item, Instruction) or len(item.operands) != 2 or mnemonic_of(item) not in _COPIES:
        return None
    operands = operands_of(item)
    if len(operands) != 2:
        return None
    to, source = operands
    return (to, source) if isinstance(to, Part) and isinstance(source, Part) else None


def with_copies_read_through(code: Code) -> Code:
    """Return a kernel in which, within a block, what reads a copy reads its source while that is unchanged.

    The copies themselves are there still.
    """
    blocks = blocks_of(code)
    kept: list[Item] = []
    facts: Facts[RegisterWord] = Facts()
    for number, block in enumerate(blocks):
        if not carries_on(blocks, number):
            facts = Facts()
        for item in code.items[block.start : block.end]:
            if not isinstance(item, Instruction):
                kept.append(item)
                continue
            new = _read_through(item, facts)
            kept.append(new)
            facts.after(new)
            copied = copied_words(new)
            if copied is not None and copied[0].register is not copied[1].register:
                partial = new.partial and copied[0].register.file != "scalar"
                for to, source in zip(words_of_part(copied[0]), words_of_part(copied[1]), strict=True):
                    facts.note(to, source, iter((source,)), partial=partial)
    return Code(kept)


def _read_through(item: Instruction, facts: Facts[RegisterWord]) -> Instruction:
    """The same instruction, of the sources of what it reads."""
    written = {word for part in item.writes for word in words_of_part(part)}
    found: dict[Part, Part] = {}
    read = known(item)
    for part in item.reads:
        words = list(words_of_part(part))
        if written.isdisjoint(words):
            source = _source([facts.get(word, everywhere=read is None) for word in words])
            if source is not None:
                found[part] = source
    if not found:
        return item
    if read is not None:
        mnemonic, operands, shape = read
        for part, source in found.items():
            tried = [source if o == part and i >= shape.targets else o for i, o in enumerate(operands)]
            if is_legal(mnemonic, tried):
                operands = tried
        return made(item, mnemonic, operands)
    alike = {part: source for part, source in found.items() if part.register.file == source.register.file}
    return replace(
        item,
        operands=tuple(alike.get(part, part) for part in item.operands),
        reads=tuple(alike.get(part, part) for part in item.reads),
    )


def _source(words: list[RegisterWord | None]) -> Part | None:
    """Consecutive words of one register, where they may stand as an operand."""
    first = words[0]
    if first is None:
        return None
    register, begin = first
    if words != [(register, begin + number) for number in range(len(words))]:
        return None
    alignment = alignment_of(register.file, len(words))
    if begin % alignment or max(register.alignment, alignment_of(register.file, register.words)) % alignment:
        return None
    return Part(register, begin, len(words))


def without_idle_copies(code: Code, places: Mapping[Virtual, int]) -> Code:
    """Return a kernel without copies from a place to itself."""
    return Code([item for item in code.items if not _is_idle(item, places)])


def _is_idle(item: Item, places: Mapping[Virtual, int]) -> bool:
    copied = copied_words(item)
    if copied is None:
        return False
    to, source = copied
    return to.register.file == source.register.file and all(
        places[a] + i == places[b] + j for (a, i), (b, j) in zip(words_of_part(to), words_of_part(source), strict=True)
    )


def hints(code: Code) -> Iterator[tuple[Virtual, Virtual, int]]:
    """Go through the pairs of registers that a copy would have in one place: the second's place less the first's."""
    for item in code.items:
        copied = copied_words(item)
        if copied is not None and copied[0].register.file == copied[1].register.file:
            to, source = copied
            if to.register is not source.register:
                yield to.register, source.register, to.first - source.first
