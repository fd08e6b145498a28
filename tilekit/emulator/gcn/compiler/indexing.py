"""Vector registers by index: what lies between ``s_set_gpr_idx_on`` and ``s_set_gpr_idx_off``.

There, the number of each vector register of the chosen operands has M0's low byte added. Such an instruction is made to
work on registers behind the last, to which the sources are copied before it and from which the result is copied behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilekit.emulator.gcn.compiler.effects import is_mfma, targets_of
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.compiler.operands import index_mode, unsupported
from tilekit.emulator.gcn.language.syntax import Instruction, Register

__all__ = ["SLOTS", "Indexed", "indexed_instructions"]

_EACH = 4
SLOTS = 4 * _EACH
"""Registers behind the last: of three sources and a result."""
_NOT_INDEXED = ("v_readlane", "v_readfirstlane", "v_writelane", "v_permlane", "v_swap", "v_accvgpr")


@dataclass(frozen=True, slots=True)
class Indexed:
    """An instruction with registers by index.

    Attributes
    ----------
    instruction
        As it works on the slots.
    reads, writes
        First register, how many, and slot, of what is copied before it and behind it.
    """

    instruction: Instruction
    reads: tuple[tuple[int, int, int], ...]
    writes: tuple[tuple[int, int, int], ...]


def indexed_instructions(blocks: Sequence[Block], first_slot: int) -> dict[int, Indexed]:
    """Return what each instruction under an index becomes, by its identity.

    Raises
    ------
    UnsupportedInstruction
        Where ways with different indexing meet, and for instructions that cannot be indexed.
    """
    entering: dict[int, int] = {0: 0}
    found: dict[int, Indexed] = {}
    work = [0]
    while work:
        block = blocks[number := work.pop()]
        mode = entering[number]
        for i in block.instructions:
            if i.name in ("s_set_gpr_idx_on", "s_set_gpr_idx_mode"):
                mode = index_mode(i)
            elif i.name == "s_set_gpr_idx_off":
                mode = 0
            elif mode and i.name.startswith("v_") and i.name != "v_nop":
                found[id(i)] = _indexed(i, mode, first_slot)
        for successor in (block.following, block.taken):
            if successor >= 0 and successor not in entering:
                entering[successor] = mode
                work.append(successor)
            elif successor >= 0 and entering[successor] != mode:
                raise unsupported(blocks[successor].instructions[0], "is reached with and without indexed registers")
    return found


def _indexed(i: Instruction, mode: int, first_slot: int) -> Indexed:
    if i.name.startswith(_NOT_INDEXED) or is_mfma(i) or i.encoding in ("dpp", "e64_dpp", "sdwa"):
        raise unsupported(i, "cannot have indexed registers")
    operands = list(i.operands)
    targets = targets_of(i)
    reads, writes = [], []
    for place, operand in enumerate(operands):
        part = 3 if place == 0 else place - targets
        if (0 < place < targets) or part > 3 or not mode >> part & 1:
            continue
        if not isinstance(operand, Register) or operand.file != "v":
            continue
        if operand.count > _EACH:
            raise unsupported(i, f"cannot have {operand.count} indexed registers")
        slot = first_slot + _EACH * part
        copied = operand.first, operand.count, slot
        reads.append(copied)  # of a result too: what is not written stays
        if part == 3:
            writes.append(copied)
        operands[place] = replace(operand, first=slot)
    changed = Instruction(
        i.name, i.encoding, tuple(operands), i.modifiers, i.line, i.column, i.text, i.provenance
    )  # fmt: skip
    return Indexed(changed, tuple(reads), tuple(writes))
