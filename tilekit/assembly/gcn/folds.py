"""Two instructions that one does: shifts of shifts, sums with a shift, bit fields, and addresses that need no sum.

An instruction takes what another one in its block makes of operands that are still the same. The other stays where
more reads it than this, and then only what costs no more than before is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tilekit.assembly.gcn.code import Code, Instruction, Item, Part
from tilekit.assembly.gcn.dead import VCC, flags_read_later
from tilekit.assembly.gcn.facts import Facts, RegisterWord, carries_on, reads_of, words_of_part
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.operands import Operand, is_legal, is_scalar, known, made

__all__ = ["with_folds"]


@dataclass(frozen=True, slots=True)
class _Made:
    """What a word is: a result of an instruction whose operands have not changed since."""

    mnemonic: str
    sources: tuple[Operand, ...]
    only_here: bool


_Folded: TypeAlias = "tuple[str, list[Operand]] | None"
_Rule: TypeAlias = Callable[[Operand, _Made], _Folded]
"""The other source, and what one source is made of."""


def _shift_of_shift(name: str) -> _Rule:
    def fold(shift: Operand, of: _Made) -> _Folded:
        if of.mnemonic != name:
            return None
        before, value = of.sources
        if not isinstance(shift, int) or not isinstance(before, int):
            return None
        total = (shift & 31) + (before & 31)
        return ("v_mov_b32", [0]) if total > 31 else (name, [total, value])

    return fold


_left, _right = _shift_of_shift("v_lshlrev_b32"), _shift_of_shift("v_lshrrev_b32")


def _left_shift(shift: Operand, of: _Made) -> _Folded:
    folded = _left(shift, of)
    if folded is None and of.mnemonic == "v_add_u32" and of.only_here:
        return "v_add_lshl_u32", [*of.sources, shift]
    return folded


def _sum(other: Operand, of: _Made) -> _Folded:
    if of.mnemonic == "v_add_u32" and isinstance(other, int):
        for constant, value in (of.sources, of.sources[::-1]):
            if isinstance(constant, int):
                return "v_add_u32", [(constant + other) & 0xFFFFFFFF, value]
    if not of.only_here:
        return None
    if of.mnemonic == "v_lshlrev_b32":
        return "v_lshl_add_u32", [of.sources[1], of.sources[0], other]
    return ("v_add3_u32", [*of.sources, other]) if of.mnemonic == "v_add_u32" else None


def _union(other: Operand, of: _Made) -> _Folded:
    if not of.only_here:
        return None
    match of.mnemonic:
        case "v_lshlrev_b32":
            return "v_lshl_or_b32", [of.sources[1], of.sources[0], other]
        case "v_and_b32":
            return "v_and_or_b32", [*of.sources, other]
        case "v_or_b32":
            return "v_or3_b32", [*of.sources, other]
    return None


def _mask(mask: Operand, of: _Made) -> _Folded:
    if not isinstance(mask, int) or mask & (mask + 1):
        return None
    width = mask.bit_length()
    shift = of.sources[0]
    if of.mnemonic != "v_lshrrev_b32" or not isinstance(shift, int) or not of.only_here:
        return None
    if 0 < width < 32 and width + shift <= 32:
        return "v_bfe_u32", [of.sources[1], shift, width]
    return None


_ADDRESSED = re.compile(
    r"(global_load_(?!lds)\w+ \{\d+\}, |global_(?:store|atomic)_\w+ )\{(\d+)\}(, |, \{\d+\}, )off(?![\w,])"
)
"""A load or store whose address is a pair in VGPRs: what is before it, the pair, and what is between it and ``off``."""

_RULES: Final[dict[str, _Rule]] = {
    "v_lshlrev_b32": _left_shift,
    "v_lshrrev_b32": _right,
    "v_add_u32": _sum,
    "v_or_b32": _union,
    "v_and_b32": _mask,
}
_SHIFTS = {"v_lshlrev_b32", "v_lshrrev_b32"}
"""Of these the second source alone may be another's result."""


def with_folds(code: Code) -> Code:
    """Return a kernel in which instructions do what others did for them, too; those are there still."""
    return _Folds(code).code()


class _Folds:
    def __init__(self, code: Code) -> None:
        self.source = code
        self.reads = reads_of(code)
        self.later = flags_read_later(code)
        self.facts: Facts[_Made] = Facts()

    def code(self) -> Code:
        blocks = blocks_of(self.source)
        kept: list[Item] = []
        for number, block in enumerate(blocks):
            if not carries_on(blocks, number):
                self.facts = Facts()
            for index in range(block.start, block.end):
                item = self.source.items[index]
                if isinstance(item, Instruction):
                    item = self._folded(item, self.later[index])
                    self.facts.after(item)
                    self._note(item)
                kept.append(item)
        return Code(kept)

    def _folded(self, item: Instruction, later: int) -> Instruction:
        read = known(item)
        if read is None:
            return self._with_scalar_base(item) if item.text.startswith("global_") else item
        mnemonic, operands, _ = read
        target, sources = operands[0], operands[1:]
        if mnemonic == "v_lshl_add_u64" and sources[1] == 0 and not later & VCC:
            return self._with_product(item, target, sources)
        while True:
            folded = self._once(mnemonic, sources)
            if folded is None:
                break
            mnemonic, sources = folded
            item = made(item, mnemonic, [target, *sources])
        return item

    def _once(self, mnemonic: str, sources: list[Operand]) -> _Folded:
        """One step; None where nothing can be taken."""
        rule = _RULES.get(mnemonic)
        if rule is None:
            return None
        pairs = [(sources[0], sources[1])]
        if mnemonic not in _SHIFTS:
            pairs.append((sources[1], sources[0]))
        for other, looked_at in pairs:
            of = self._made(looked_at)
            folded = None if of is None else rule(other, of)
            if folded is not None and is_legal(folded[0], ["", *folded[1]]):
                return folded
        return None

    def _with_product(self, item: Instruction, target: Operand, sources: list[Operand]) -> Instruction:
        """A sum of 64 bits, by the product that is one of its sources."""
        for other, looked_at in ((sources[2], sources[0]), (sources[0], sources[2])):
            if isinstance(looked_at, Part):
                low, high = (self.facts.get(word) for word in words_of_part(looked_at))
                if low is not None and low == high and low.mnemonic == "v_mad_u64_u32" and low.only_here:
                    operands = [target, "vcc", *low.sources[:2], other]
                    if low.sources[2] == 0 and is_legal("v_mad_u64_u32", operands):
                        return made(item, "v_mad_u64_u32", operands)
        return item

    def _made(self, operand: Operand) -> _Made | None:
        if not isinstance(operand, Part) or operand.words != 1:
            return None
        return self.facts.get((operand.register, operand.first))

    def _note(self, item: Instruction) -> None:
        read = known(item)
        if read is None:
            return
        mnemonic, operands, shape = read
        target, sources = operands[0], operands[shape.targets :]
        if not isinstance(target, Part) or target.register.file != "vector":
            return
        if mnemonic not in _RULES and mnemonic not in ("v_mov_b32", "v_lshl_add_u64", "v_mad_u64_u32"):
            return
        about: list[RegisterWord] = [w for part in item.reads for w in words_of_part(part)]
        written = set(words_of_part(target))
        if written.isdisjoint(about):
            for word in written:
                fact = _Made(mnemonic, tuple(sources), self.reads[word] == 1)
                self.facts.note(word, fact, iter((*about, *written)), partial=item.partial)

    # -- addresses ----------------------------------------------------------------------------------------------------

    def _with_scalar_base(self, item: Instruction) -> Instruction:
        """A load or store whose address is a pair of scalars and a word of each lane: both are its operands."""
        match = _ADDRESSED.match(item.text)
        address = item.operands[int(match[2])] if match is not None else None
        if match is None or address is None or address.words != 2:
            return item
        low, high = (self.facts.get(word) for word in words_of_part(address))
        if low is None or low != high or low.mnemonic != "v_lshl_add_u64" or low.sources[1] != 0:
            return item
        for base, index in ((low.sources[0], low.sources[2]), (low.sources[2], low.sources[0])):
            if isinstance(base, Part) and is_scalar(base) and isinstance(index, Part):
                upper = self._made(Part(index.register, index.first + 1, 1))
                if upper is not None and (upper.mnemonic, upper.sources) == ("v_mov_b32", (0,)):
                    return _based(item, match, Part(index.register, index.first, 1), base)
        return item


def _based(item: Instruction, match: re.Match[str], index: Part, base: Part) -> Instruction:
    """A load or store at a scalar address and an offset of each lane, which is 32 bits without a sign."""
    number = int(match[2])
    address = item.operands[number]
    operands = (*item.operands[:number], index, *item.operands[number + 1 :], base)
    text = f"{match[1]}{{{number}}}{match[3]}{{{len(operands) - 1}}}{item.text[match.end() :]}"
    reads = tuple(part for part in item.reads if part != address or part in operands)
    return replace(item, text=text, operands=operands, reads=(*reads, index, base))
