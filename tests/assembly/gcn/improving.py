"""Lines before a pass over `Code`, and after it: registers are called by their names."""

from __future__ import annotations

from collections.abc import Callable

from tests.assembly.gcn.notation import read
from tilekit.assembly.gcn.code import Branch, Code, Instruction, Label, Part


def after(passed: Callable[[Code], Code], text: str) -> list[str]:
    """Return what a pass makes of a kernel in the words of `tests.assembly.gcn.notation`."""
    code, _ = read(text)
    lines = []
    for item in passed(code).items:
        if isinstance(item, Instruction):
            lines.append(item.text.format(*map(_spelled, item.operands)) if item.operands else item.text)
        elif isinstance(item, Branch):
            lines.append(
                f"s_branch {item.target}" if item.condition is None else f"s_cbranch_{item.condition} {item.target}"
            )
        elif isinstance(item, Label):
            lines.append(f"{item.name}:")
    return lines


def _spelled(part: Part) -> str:
    register = part.register
    if part.words == register.words:
        return register.name
    last = part.first + part.words - 1
    return f"{register.name}[{part.first}]" if part.words == 1 else f"{register.name}[{part.first}:{last}]"
