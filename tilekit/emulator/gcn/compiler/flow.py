"""Basic blocks of a kernel: where they begin, and what comes after each."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.gcn.errors import GcnSyntaxError
from tilekit.emulator.gcn.language.syntax import EXEC, Instruction, ModuleText, Register, Symbol
from tilekit.emulator.gcn.ops.control import BRANCHES, CALLS

__all__ = ["Block", "blocks_of", "writes_exec"]

_ENDINGS = {"s_barrier", "s_endpgm", "s_branch", "s_sleep", "s_trap", "s_setpc_b64", *CALLS, *BRANCHES}
_LAST = ("s_branch", "s_endpgm", "s_trap", "s_setpc_b64")
_TO_LABEL = ("s_branch", "s_call_b64", *BRANCHES)
_MODE = {"s_setreg_imm32_b32", "s_setreg_b32"}


@dataclass(slots=True)
class Block:
    """Instructions that are executed one after the other.

    Attributes
    ----------
    instructions
        Those, the last one included.
    following
        Number of the block behind it; -1 past the end.
    taken
        Number of the block that its branch goes to; -1 without one.
    start
        Index of the first instruction in the text.
    """

    instructions: list[Instruction]
    following: int = -1
    taken: int = -1
    start: int = 0


def writes_exec(i: Instruction) -> bool:
    """Whether an instruction changes which lanes are active."""
    if "saveexec" in i.name or i.name.startswith("v_cmpx"):
        return True
    first = i.operands[0] if i.operands else None
    if not isinstance(first, Register) or first.file != "s" or first.first not in (EXEC, EXEC + 1):
        return False
    return not i.name.startswith(("s_cmp", "s_bitcmp", "s_cbranch"))


def blocks_of(module: ModuleText, entry: str) -> list[Block]:
    """Return the blocks that can be reached from a kernel's entry, which is number 0.

    Raises
    ------
    GcnSyntaxError
        Where a branch goes to a label that is not there, or the code has no end.
    """
    if entry not in module.labels or module.labels[entry] < 0:
        raise LaunchError(f"kernel '{entry}' has a descriptor and no code: there is no label '{entry}:'")
    code = module.instructions
    starts = {index for index in module.labels.values() if index >= 0}
    numbers: dict[int, int] = {}
    blocks: list[Block] = []
    ends: list[int] = []
    pointed = _pointed(module)
    work = [module.labels[entry]]
    while work:
        start = work.pop()
        if start in numbers:
            continue
        if start >= len(code):
            last = code[-1]
            raise GcnSyntaxError(
                f"the code of '{entry}' runs past its end", line=last.line, column=last.column, hint="add s_endpgm"
            )
        end = start
        while True:
            i = code[end]
            end += 1
            if i.name in _ENDINGS or i.name in _MODE or writes_exec(i) or end in starts or end >= len(code):
                break
        numbers[start] = len(blocks)
        blocks.append(Block(code[start:end], start=start))
        if any(i.name in ("s_setpc_b64", "s_swappc_b64") for i in blocks[-1].instructions):
            work += pointed
        work += [module.labels[name] for i in blocks[-1].instructions for name in _addresses(i, module)]
        ends.append(end)
        last = code[end - 1]
        if last.name in _TO_LABEL:
            work.append(_target(module, last))
        if last.name not in _LAST:
            work.append(end)
    for block, end in zip(blocks, ends, strict=True):
        last = block.instructions[-1]
        if last.name in _TO_LABEL:
            block.taken = numbers[_target(module, last)]
        if last.name not in _LAST:
            block.following = numbers[end]
    return blocks


def _pointed(module: ModuleText) -> list[int]:
    """Where addresses among the data lead in the code."""
    found = (module.labels.get(pointer.symbol, -1) for section in module.sections for pointer in section.pointers)
    return [index for index in found if index >= 0]


def _addresses(i: Instruction, module: ModuleText) -> list[str]:
    """Labels of code whose address an instruction takes."""
    if i.name in _TO_LABEL:
        return []
    names = (operand.name for operand in i.operands if isinstance(operand, Symbol))
    return [name for name in names if module.labels.get(name, -1) >= 0]


def _target(module: ModuleText, i: Instruction) -> int:
    operand = i.operands[-1] if i.operands else None
    if not isinstance(operand, Symbol):
        raise GcnSyntaxError(f"'{i.name}' needs a label", line=i.line, column=i.column)
    found = module.labels.get(operand.name, -1)
    if found < 0:
        raise GcnSyntaxError(f"there is no label '{operand.name}'", line=i.line, column=i.column)
    return found
