"""Which scalar registers may hold masks of lanes: the others are read and written without looking."""

from __future__ import annotations

from collections.abc import Iterable

from tilekit.emulator.gcn.language.syntax import EXEC, Instruction, Operand, Register

__all__ = ["maskable"]


def _pair(operand: Operand) -> int | None:
    if isinstance(operand, Register) and operand.file == "s" and operand.count == 2:
        return operand.first
    return None


def maskable(code: Iterable[Instruction]) -> frozenset[int]:
    """Return the registers that are written as a pair by something that makes or copies a mask."""
    pairs: set[int] = {EXEC}
    copies: list[tuple[int, list[int]]] = []
    for i in code:
        targets = [_pair(operand) for operand in i.operands[:2]]
        if i.name.startswith("v_") or "saveexec" in i.name:
            pairs |= {target for target in targets if target is not None}
            if i.name.startswith("v_cmp"):
                pairs.add(106)
        elif i.name.startswith("s_") and i.name.endswith("b64") and targets and targets[0] is not None:
            found = [_pair(operand) for operand in i.operands[1:]]
            copies.append((targets[0], [source for source in found if source is not None]))
    before = -1
    while before != len(pairs):
        before = len(pairs)
        for target, others in copies:
            if pairs.intersection(others):
                pairs.add(target)
    return frozenset(number for pair in pairs for number in (pair - 1, pair, pair + 1, pair + 2) if number >= 0)
