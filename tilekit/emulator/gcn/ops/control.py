"""Branches, barriers, waits and the end of a program."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Call, Constant, Instruction
from tilekit.emulator.gcn.ops.table import op

__all__ = ["BARRIER", "BRANCHES", "CALLS", "END", "SPLIT", "YIELD", "counts"]

END, BARRIER, SPLIT, YIELD = -1, -2, -3, -4
"""What a block answers instead of the number of the next one."""

BRANCHES = {
    "s_cbranch_scc0": ("B.scc", False),
    "s_cbranch_scc1": ("B.scc", True),
    "s_cbranch_vccz": ("nonzero(wide(S, 106))", False),
    "s_cbranch_vccnz": ("nonzero(wide(S, 106))", True),
    "s_cbranch_execz": ("nonzero(B.exec_mask())", False),
    "s_cbranch_execnz": ("nonzero(B.exec_mask())", True),
}
"""Conditional branches: what they look at, and the truth that takes them."""

CALLS = ("s_swappc_b64", "s_call_b64")
"""Calls: they go on behind themselves when the function returns."""


def counts(i: Instruction) -> tuple[int, int]:
    """What ``s_waitcnt`` leaves outstanding: (vmcnt, lgkmcnt)."""
    vector, other = 63, 15
    for operand in i.operands:
        if isinstance(operand, Constant) and isinstance(operand.value, int):
            value = operand.value
            return (value & 15) | (value >> 14 & 3) << 4, value >> 8 & 15
        if isinstance(operand, Call) and isinstance(operand.arguments[0], int):
            if operand.name == "vmcnt":
                vector = operand.arguments[0]
            elif operand.name == "lgkmcnt":
                other = operand.arguments[0]
    return vector, other


@op("s_waitcnt")
def wait(e: Emitter, i: Instruction) -> None:
    """Wait until no more operations than this are outstanding."""
    if not i.operands:
        raise unsupported(i, "needs a counter, such as vmcnt(0)")
    vector, other = counts(i)
    if vector < 63:
        e.add(f"if len(B.queues[0]) > {vector}: B.wait(0, {vector})")
    if other < 15:
        e.add(f"if len(B.queues[1]) > {other}: B.wait(1, {other})")


@op("s_barrier", "s_endpgm", "s_branch", *BRANCHES, "s_sleep", "s_trap")
def ending(e: Emitter, i: Instruction) -> None:
    """Instructions that end a block: what follows them is said by the program."""


@op("s_getpc_b64")
def get_program_counter(e: Emitter, i: Instruction) -> None:
    """The address of the instruction behind."""
    e.begin(i, ())
    e.put_scalar64(i.operands[0], f"B.launch.image.address_of_code({e.index_of(i) + 1})")


@op("s_setpc_b64", "s_swappc_b64", "s_call_b64")
def jump(e: Emitter, i: Instruction) -> None:
    """Go on at an address; a call leaves the one behind itself in its destination."""
    e.begin(i, ())
    if i.name != "s_call_b64":
        e.add(f"target = number({e.scalar64(i.operands[-1])})")
    if i.name in CALLS:
        e.put_scalar64(i.operands[0], f"B.launch.image.address_of_code({e.index_of(i) + 1})")
