"""Offsets of 64 bits that are an index times 2, 4, 8 or 16: the sums that read one shift the index themselves.

`v_mad_u64_u32` takes longer than other instructions, and leaves a carry in VCC. A single sum is left to
`tilekit.assembly.gcn.folds`, where the product adds.
"""

from __future__ import annotations

from tilekit.assembly.gcn.code import Code, Instruction, Item, Part, Virtual
from tilekit.assembly.gcn.dead import VCC, flags_read_later
from tilekit.assembly.gcn.facts import reads_of, writes_of
from tilekit.assembly.gcn.operands import Operand, known, made

__all__ = ["with_shifted_offsets"]

_SHIFTS = {2: 1, 4: 2, 8: 3, 16: 4}
"""Factors by which `v_lshl_add_u64` can multiply, and its shift for them."""


def with_shifted_offsets(code: Code) -> Code:
    """Return a kernel in which registers that hold such an offset, for sums alone, hold the index."""
    writes = writes_of(code)
    later = flags_read_later(code)
    shifts: dict[Virtual, int] = {}
    indices: dict[int, Operand] = {}
    for number, item in enumerate(code.items):
        product = _product(item) if isinstance(item, Instruction) else None
        if product is None or later[number] & VCC:
            continue
        target, index, shift = product
        register = target.register
        if register.words == 2 and all(writes[register, word] == 1 for word in range(2)):
            shifts[register], indices[number] = shift, index
    reads = reads_of(code)
    shifts = {register: shift for register, shift in shifts.items() if reads[register, 0] > 1}
    for item in code.items:
        if isinstance(item, Instruction):
            for part in item.reads:
                if part.register in shifts and _sum(item, part.register, shifts[part.register]) is None:
                    del shifts[part.register]
    items: list[Item] = []
    for number, item in enumerate(code.items):
        if not isinstance(item, Instruction):
            items.append(item)
        elif number in indices and item.writes[0].register in shifts:
            low, high = (Part(item.writes[0].register, word, 1) for word in range(2))
            items += [made(item, "v_mov_b32", [low, indices[number]]), made(item, "v_mov_b32", [high, 0])]
        else:
            offset = next((part.register for part in item.reads if part.register in shifts), None)
            shifted = None if offset is None else _sum(item, offset, shifts[offset])
            items.append(item if shifted is None else shifted)
    return Code(items)


def _product(item: Instruction) -> tuple[Part, Operand, int] | None:
    """The target, the index and the shift of a product with such a factor."""
    read = known(item)
    if read is None or read[0] != "v_mad_u64_u32" or read[1][4] != 0 or read[1][1] != "vcc":
        return None
    target, _, a, b, _ = read[1]
    for index, factor in ((a, b), (b, a)):
        if isinstance(target, Part) and isinstance(index, Part) and isinstance(factor, int) and factor in _SHIFTS:
            return target, index, _SHIFTS[factor]
    return None


def _sum(item: Instruction, offset: Virtual, shift: int) -> Instruction | None:
    """A sum of an offset and something else, as one of the index; None for other instructions."""
    read = known(item)
    if read is None or read[0] != "v_lshl_add_u64" or read[1][2] != 0:
        return None
    target, a, _, b = read[1]
    whole = Part(offset, 0, 2)
    if (a == whole) == (b == whole):
        return None
    return made(item, "v_lshl_add_u64", [target, whole, shift, b if a == whole else a])
