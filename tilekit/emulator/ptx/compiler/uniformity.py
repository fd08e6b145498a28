"""Which registers hold one value for all lanes of a warp, decided from the text alone.

Loop counters, barrier addresses, phases, descriptors and coordinates of producer and MMA warps are uniform: they are
kept as Python integers, which is six times cheaper than 32-lane arrays. A register is uniform when no lane-dependent
value reaches it and no divergent branch can make lanes disagree about *which* write they saw:

- it is written between a divergent branch and the point where the lanes meet again, and read after that point; or
- it is written on one side of a divergent branch and its value is needed on the other.

Lanes that parted always meet at the branch's post-dominator, so those two cases are all there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilekit.emulator.ptx.compiler.control_flow import Block, members, reachable
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.independent import differs_between_warps
from tilekit.emulator.ptx.language.special_registers import SpecialRegisterInfo
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    Immediate,
    Operand,
    PairOperand,
    Register,
    RegisterOperand,
    SpecialRegister,
    SymbolOperand,
    VectorOperand,
)

_COPIES = {"mov", "cvt"}


@dataclass(slots=True, eq=False)
class Uniformity:
    """Bit sets over register numbers."""

    lane_dependent: int
    """Registers that may differ between lanes."""
    contested: int
    """Registers whose inactive lanes must keep their value when a part of the warp writes them."""

    def is_uniform(self, number: int) -> bool:
        """Whether a register is kept as one Python value."""
        return not (self.lane_dependent | self.contested) >> number & 1


def analyse_uniformity(
    code: list[Decoded],
    blocks: list[Block],
    special: Mapping[str, SpecialRegisterInfo],
    *,
    aligned_warps: bool,
    varying: int = 0,
    lockstep: bool = False,
) -> Uniformity:
    """Fixed point of value taint and control divergence.

    ``special`` says which special registers are one value for all lanes, ``aligned_warps`` that ``%tid.x`` of lane 0 is
    a multiple of 32 in each warp (a 1-D block, or a first dimension that is a multiple of 32), which makes
    ``%tid.x / 32`` uniform. ``varying`` are registers that differ between lanes whatever is written to them.
    In ``lockstep`` the lanes are those of many warps.
    """
    thread_ids = _copies_of_tid(code) if aligned_warps else 0
    written = [_bits(r for each in code[block.start : block.end] for r in each.defs) for block in blocks]
    tainted, contested = thread_ids | varying, varying
    regions: set[int] = set()
    undecided = [(decoded, _bits(decoded.defs), _bits(decoded.uses)) for decoded in code if decoded.defs]
    reached = ~0
    changed = True
    while changed:
        changed = False
        mixed = tainted | contested

        def uniform(operand: Operand, mixed: int = mixed) -> bool:
            return _operand_uniform(operand, mixed, special)

        # An instruction whose results are all tainted stays so; another may change when its registers have.
        undecided = [each for each in undecided if each[1] & ~tainted]
        for decoded, defs, uses in undecided:
            if not (defs | uses) & reached:
                continue
            guard = decoded.guard
            if guard is not None and mixed >> guard.register.number & 1:
                results: tuple[bool, ...] = (False,) * len(decoded.defs)
            elif lockstep and differs_between_warps(decoded):
                results = (False,) * len(decoded.defs)
            elif thread_ids and _warp_uniform_of_tid(decoded, thread_ids):
                results = (True,) * len(decoded.defs)
            else:
                results = decoded.form.uniform(decoded, uniform)
            for register, result in zip(decoded.defs, results, strict=True):
                if not result and not tainted >> register.number & 1:
                    tainted |= 1 << register.number
                    changed = True
        mixed, before = tainted | contested, mixed
        for block in blocks:
            if block.index in regions or len(block.successors) < 2 or block.start == block.end:
                continue
            if _diverges(code[block.end - 1], mixed):
                regions.add(block.index)
                added = _contested(block, blocks, written) & ~contested
                contested |= added
                changed = True
        reached = (tainted | contested) & ~before
    return Uniformity(tainted, contested)


def _bits(registers: Iterable[Register]) -> int:
    """The set of these registers."""
    bits = 0
    for register in registers:
        bits |= 1 << register.number
    return bits


def _diverges(branch: Decoded, mixed: int) -> bool:
    guard = branch.guard
    if guard is not None and mixed >> guard.register.number & 1:
        return True
    return any(isinstance(o, RegisterOperand) and mixed >> o.register.number & 1 for o in branch.operands)


def _contested(block: Block, blocks: list[Block], written: list[int]) -> int:
    sides = [reachable(blocks, successor, block.join) for successor in block.successors]
    writes = []
    for side in sides:
        total = 0
        for index in members(side):
            total |= written[index]
        writes.append(total)
    result = 0
    after = blocks[block.join].live_in if block.join is not None else 0
    for i, write in enumerate(writes):
        result |= write & after
        for j, successor in enumerate(block.successors):
            if i != j and sides[j] and successor < len(blocks):
                result |= write & (blocks[successor].live_in | writes[j])
    return result


def _operand_uniform(operand: Operand, mixed: int, special: Mapping[str, SpecialRegisterInfo]) -> bool:
    match operand:
        case RegisterOperand(register=register):
            return not mixed >> register.number & 1
        case SymbolOperand(variable=variable):
            # One address, but every lane has local memory of its own: what is loaded from it differs.
            return variable.space not in ("local", "frame")
        case SpecialRegister(name=name):
            return special[name].uniform
        case VectorOperand(items=items):
            return all(_operand_uniform(item, mixed, special) for item in items)
        case PairOperand(first=first, second=second):
            return _operand_uniform(first, mixed, special) and _operand_uniform(second, mixed, special)
        case AddressOperand(base=base, coordinates=coordinates):
            return all(_operand_uniform(item, mixed, special) for item in (base, *(coordinates or ())))
    return True


def _copies_of_tid(code: list[Decoded]) -> int:
    """Registers that only ever hold ``%tid.x``."""
    copies, others = 0, 0
    changed = True
    while changed:
        changed = False
        for decoded in code:
            if not decoded.defs:
                continue
            source = decoded.operands[1] if len(decoded.operands) > 1 else None
            is_copy = (
                decoded.form.opcode in _COPIES
                and decoded.guard is None
                and len(decoded.defs) == 1
                and not any(m.startswith(("f", "b8", "s8", "u8", "bf")) for m in decoded.instruction.modifiers)
                and (
                    (isinstance(source, SpecialRegister) and source.name == "%tid.x")
                    or (isinstance(source, RegisterOperand) and copies >> source.register.number & 1 == 1)
                )
            )
            for register in decoded.defs:
                bit = 1 << register.number
                if is_copy and not (copies | others) & bit:
                    copies |= bit
                    changed = True
                elif not is_copy and not others & bit:
                    others |= bit
                    changed = True
        copies &= ~others
    return copies


def _warp_uniform_of_tid(decoded: Decoded, thread_ids: int) -> bool:
    """``tid >> 5``, ``tid & ~31``, ``tid / 32k`` and comparisons of tid with a warp's edge."""
    operands = decoded.operands
    if len(operands) < 3 or not isinstance(operands[1], RegisterOperand) or not isinstance(operands[2], Immediate):
        return False
    if not thread_ids >> operands[1].register.number & 1:
        return False
    constant = operands[2].value
    match decoded.form.opcode:
        case "shr":
            return constant >= 5
        case "and":
            return constant & 31 == 0
        case "div":
            return constant > 0 and constant % 32 == 0
        case "setp" if len(operands) == 3 and isinstance(operands[0], RegisterOperand):
            compare = decoded.get("compare")
            edge = constant % 32
            return (compare in ("lt", "ge", "lo", "hs") and edge == 0) or (
                compare in ("gt", "le", "hi", "ls") and edge == 31
            )
    return False
