"""Constants stand where they are read, as far as encodings have room for them, and what is computed of them is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tilekit.assembly.gcn.code import Branch, Code, Instruction, Item, Label, Part
from tilekit.assembly.gcn.dead import SCC, VCC, flags_read_later
from tilekit.assembly.gcn.facts import Facts, RegisterWord, carries_on, words_of_part, writes_of
from tilekit.assembly.gcn.flow import blocks_of
from tilekit.assembly.gcn.operands import (
    Operand,
    Shape,
    clobbers_scc,
    is_inline_integer,
    is_legal,
    is_vector,
    known,
    made,
)

__all__ = ["with_constants"]

_ALL = 0xFFFFFFFF
_SWAPPED: Final = {
    **{f"v_{name}": f"v_{name}" for name in ("add_u32", "and_b32", "or_b32", "xor_b32", "min_u32", "min_i32",
                                             "max_u32", "max_i32", "add_f32", "mul_f32", "mul_lo_u32", "mul_hi_u32")},
    "v_sub_u32": "v_subrev_u32", "v_subrev_u32": "v_sub_u32",
    "v_sub_f32": "v_subrev_f32", "v_subrev_f32": "v_sub_f32",
}  # fmt: skip
"""The instruction that does the same with its two sources changed."""


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


_COMPUTED: Final[dict[str, Callable[[int, int], int]]] = {
    "add_u32": lambda a, b: a + b,
    "sub_u32": lambda a, b: a - b,
    "subrev_u32": lambda a, b: b - a,
    "mul_i32": lambda a, b: a * b,
    "mul_lo_u32": lambda a, b: a * b,
    "mul_hi_u32": lambda a, b: a * b >> 32,
    "and_b32": lambda a, b: a & b,
    "or_b32": lambda a, b: a | b,
    "xor_b32": lambda a, b: a ^ b,
    "lshl_b32": lambda a, b: a << (b & 31),
    "lshr_b32": lambda a, b: a >> (b & 31),
    "ashr_i32": lambda a, b: _signed(a) >> (b & 31),
    "lshlrev_b32": lambda a, b: b << (a & 31),
    "lshrrev_b32": lambda a, b: b >> (a & 31),
    "ashrrev_i32": lambda a, b: _signed(b) >> (a & 31),
    "min_u32": min,
    "max_u32": max,
    "min_i32": lambda a, b: min(_signed(a), _signed(b)),
    "max_i32": lambda a, b: max(_signed(a), _signed(b)),
}
_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
}

_LEFT_ZERO = {"add_u32", "or_b32", "xor_b32", "lshlrev_b32", "lshrrev_b32", "ashrrev_i32"}
"""Operations that leave the second source as it is where the first is 0."""
_RIGHT_ZERO = {"add_u32", "sub_u32", "or_b32", "xor_b32", "lshl_b32", "lshr_b32", "ashr_i32"}


def with_constants(code: Code) -> Code:
    """Return a kernel with the constants that registers hold where these are read, and without branches they decide."""
    return _Constants(code).code()


_Simpler: TypeAlias = "list[tuple[str, list[Operand]]] | None"
"""Mnemonics and operands of what does the same; None for nothing."""


class _Constants:
    def __init__(self, code: Code) -> None:
        self.items = code.items
        self.blocks = blocks_of(code)
        self.later = flags_read_later(code)
        self.writes = writes_of(code)
        self.everywhere: dict[RegisterWord, int] = {}
        self.facts: Facts[int] = Facts()
        self.scc: bool | None = None

    def code(self) -> Code:
        kept: list[Item] = []
        for number, block in enumerate(self.blocks):
            if not carries_on(self.blocks, number):
                self.facts, self.scc = Facts(), None
            for index in range(block.start, block.end):
                item = self.items[index]
                if isinstance(item, Instruction):
                    new = self._instruction(item, self.later[index])
                    kept += new
                    for each in new:
                        self._after(each)
                elif isinstance(item, Branch) and self.scc is not None and item.condition in ("scc0", "scc1"):
                    if self.scc == (item.condition == "scc1"):
                        kept.append(Branch(item.target, None, item.origin))
                else:
                    kept.append(item)
        return Code(_reached(kept))

    # -- one instruction ----------------------------------------------------------------------------------------------

    def _constant(self, part: Part) -> int | None:
        """What registers hold, as an operand says it: of pairs, small numbers alone."""
        found = []
        for word in words_of_part(part):
            value = self.facts.get(word)
            found.append(self.everywhere.get(word) if value is None else value)
        if len(found) == 1:
            return found[0]
        low, high = found if len(found) == 2 else (None, None)
        if low is None or not is_inline_integer(low) or high != (_ALL if low >> 31 else 0):
            return None
        return low

    def _instruction(self, item: Instruction, later: int) -> list[Instruction]:
        if item.text.startswith("v_readfirstlane_b32 {0}, {1}"):
            (word,) = words_of_part(item.operands[1])
            value = self.facts.get(word, everywhere=True)
            if value is not None:
                return [made(item, "s_mov_b32", [item.operands[0], value])]
        read = known(item)
        if read is None:
            return [item]
        mnemonic, operands, shape = read
        changed = False
        for place in range(shape.targets, len(operands)):
            operand = operands[place]
            value = self._constant(operand) if isinstance(operand, Part) else None
            if value is None:
                continue
            for name, tried in _placed(mnemonic, operands, place, value):
                if is_legal(name, tried):
                    mnemonic, operands, changed = name, tried, True
                    break
        new = [made(item, mnemonic, operands)] if changed else [item]
        simpler = self._simpler(new[0], mnemonic, operands, shape)
        if simpler is not None and all(is_legal(*each) for each in simpler):
            made_of = [made(item, *each) for each in simpler]
            if not later & (_flags(new) ^ _flags(made_of)):
                return made_of
        return new

    def _simpler(self, item: Instruction, mnemonic: str, operands: list[Operand], shape: Shape) -> _Simpler:
        """Instructions that do the same and cost less; None for none."""
        unit, _, operation = mnemonic.partition("_")
        move = f"{unit}_mov_b32"
        target, sources = operands[0], operands[shape.targets :]
        if mnemonic == "v_mad_u64_u32" and sources[1:] == [1, 0] and isinstance(target, Part):
            return self._widened(item, target, sources[0])
        if mnemonic == "v_mad_u64_u32" and sources[0] == 1 and sources[2] == 0 and isinstance(target, Part):
            return self._widened(item, target, sources[1])
        if mnemonic == "s_cselect_b32" and self.scc is not None:
            return [(move, [target, sources[0] if self.scc else sources[1]])]
        if mnemonic == "v_cndmask_b32":
            return self._chosen(target, sources)
        if shape.sources != (1, 1) or shape.targets != 1 or "f32" in mnemonic or operation.startswith("cmp"):
            return None
        a, b = sources
        compute = _COMPUTED.get(operation)
        if compute is None:
            return None
        if isinstance(a, int) and isinstance(b, int):
            return [(move, [target, compute(a, b) & _ALL])]
        if a == 0 and operation in _LEFT_ZERO:
            return [(move, [target, b])]
        if b == 0 and operation in _RIGHT_ZERO:
            return [(move, [target, a])]
        return _product(unit, operation, target, a, b) if "mul" in operation or operation == "and_b32" else None

    def _chosen(self, target: Operand, sources: list[Operand]) -> _Simpler:
        """One of two words where every lane takes the same."""
        mask = self._constant(sources[2]) if isinstance(sources[2], Part) else None
        return [("v_mov_b32", [target, sources[0 if mask == 0 else 1]])] if mask in (0, _ALL) else None

    @staticmethod
    def _widened(item: Instruction, target: Part, source: Operand) -> _Simpler:
        low, high = (Part(target.register, target.first + word, 1) for word in range(2))
        if source == high:
            return None
        return [("v_mov_b32", [low, source]), ("v_mov_b32", [high, 0])]

    # -- behind it ----------------------------------------------------------------------------------------------------

    def _after(self, item: Instruction) -> None:
        self.facts.after(item)
        read = known(item)
        if "scc" in item.clobbers or item.text.startswith("s_cmp"):
            self.scc = None
        if read is None:
            if item.text.startswith("s_") and not item.text.startswith(("s_load", "s_mov", "s_nop")):
                self.scc = None
            return
        mnemonic, operands, shape = read
        if shape.encoding == "scalar" and not mnemonic.startswith(("s_mov", "s_mul", "s_cselect")):
            self.scc = _compared(mnemonic, operands) if shape.targets == 0 else None
        target, value = operands[0], operands[-1]
        if mnemonic in ("s_mov_b32", "s_mov_b64", "v_mov_b32") and isinstance(target, Part) and isinstance(value, int):
            for number, word in enumerate(words_of_part(target)):
                bits = value if number == 0 else _ALL if value >> 31 else 0
                self.facts.note(word, bits, iter(()), partial=item.partial and is_vector(target))
                if self.writes[word] == 1 and word[0].fixed is None:
                    self.everywhere[word] = bits


def _flags(items: list[Instruction]) -> int:
    """The flags that instructions change."""
    scc = any(clobbers_scc(item.text) for item in items)
    return SCC * scc | VCC * any("vcc" in item.clobbers for item in items)


def _placed(mnemonic: str, operands: list[Operand], place: int, value: int) -> list[tuple[str, list[Operand]]]:
    """Ways to name a constant in an operand's place."""
    tried = [*operands[:place], value, *operands[place + 1 :]]
    ways = [(mnemonic, tried)]
    if mnemonic in _SWAPPED and place == len(operands) - 1:
        ways.append((_SWAPPED[mnemonic], [*tried[:-2], tried[-1], tried[-2]]))
    return ways


def _product(unit: str, operation: str, target: Operand, a: Operand, b: Operand) -> _Simpler:
    """A product or a mask with a constant that makes it simpler."""
    a, b = (b, a) if isinstance(a, int) else (a, b)
    if not isinstance(b, int):
        return None
    move = f"{unit}_mov_b32"
    if b == 0:
        return [(move, [target, 0])]
    if operation == "and_b32":
        return [(move, [target, a])] if b == _ALL else None
    if operation not in ("mul_i32", "mul_lo_u32") or b.bit_count() != 1:
        return None
    shift = b.bit_length() - 1
    if shift == 0:
        return [(move, [target, a])]
    return [("s_lshl_b32", [target, a, shift])] if unit == "s" else [("v_lshlrev_b32", [target, shift, a])]


def _compared(mnemonic: str, operands: list[Operand]) -> bool | None:
    """What a comparison of two constants leaves in SCC."""
    a, b = operands
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    _, _, relation, type_ = mnemonic.split("_")
    if type_ == "i32":
        a, b = _signed(a), _signed(b)
    return _COMPARED[relation](a, b)


def _reached(items: list[Item]) -> list[Item]:
    """Leave out what no way leads to, and labels that nothing goes to."""
    blocks = blocks_of(Code(items))
    reached, work = set(), [0] if blocks else []
    while work:
        number = work.pop()
        if number not in reached:
            reached.add(number)
            work += blocks[number].successors
    kept = [item for number in sorted(reached) for item in items[blocks[number].start : blocks[number].end]]
    targets = {item.target for item in kept if isinstance(item, Branch)}
    return [item for item in kept if not isinstance(item, Label) or item.name in targets]
