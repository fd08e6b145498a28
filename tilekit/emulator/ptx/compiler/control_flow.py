"""Basic blocks of a kernel, where divergent lanes meet again, and which registers are live where.

Sets of blocks and of registers are Python integers used as bit sets: whole-kernel fixed points stay cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import LabelOperand, Procedure, VectorOperand


@dataclass(slots=True, eq=False)
class Block:
    """Instructions ``start`` to ``end`` (exclusive), entered at the first and left after the last only."""

    index: int
    start: int
    end: int
    successors: tuple[int, ...] = ()
    """Next blocks; the number of blocks stands for the kernel's exit. None after a trap or a procedure's ``ret``."""
    join: int | None = None
    """Immediate post-dominator: where lanes that part here meet again. None is the exit."""
    returns: bool = False
    """Whether it ends a procedure."""
    live_in: int = 0
    live_out: int = 0


@dataclass(slots=True, eq=False)
class ControlFlow:
    """The blocks of a kernel, in the order of the text."""

    blocks: list[Block]
    block_at: dict[int, int]
    """Instruction position to the block that begins there."""


def targets_of(decoded: Decoded) -> tuple[LabelOperand, ...]:
    """The labels that a branch may go to."""
    found: list[LabelOperand] = []
    for operand in decoded.operands:
        items = operand.items if isinstance(operand, VectorOperand) else (operand,)
        found.extend(item for item in items if isinstance(item, LabelOperand))
    return tuple(found)


def build_control_flow(code: list[Decoded], procedures: Sequence[Procedure] = ()) -> ControlFlow:
    """Split decoded instructions into blocks and analyse them.

    An instruction that may wait stands alone in its block, so that a warp resumes by entering that block again. A call
    is followed by what comes after it; the blocks of a procedure are a graph of their own.
    """
    leaders = {0}
    returns = {procedure.end - 1 for procedure in procedures}
    for position, decoded in enumerate(code):
        flow = decoded.form.flow
        if flow != "next":
            leaders.add(position + 1)
            if flow == "wait":
                leaders.add(position)
            leaders.update(target.position for target in targets_of(decoded))
    starts = sorted(leader for leader in leaders if leader < len(code))
    if not starts:
        starts = [0]
    ends = [*starts[1:], len(code)]
    blocks = [Block(i, start, end) for i, (start, end) in enumerate(zip(starts, ends, strict=True))]
    block_at = {block.start: block.index for block in blocks}
    block_at[len(code)] = len(blocks)  # a label at the very end of the body
    for block in blocks:
        block.returns = block.end - 1 in returns
        if not block.returns:
            block.successors = _successors(block, code, block_at, len(blocks))
    _find_joins(blocks, min((procedure.start for procedure in procedures), default=len(code)))
    _find_liveness(blocks, code)
    return ControlFlow(blocks, block_at)


def _successors(block: Block, code: list[Decoded], block_at: dict[int, int], exit_block: int) -> tuple[int, ...]:
    if block.start == block.end:
        return (exit_block,)
    last = code[block.end - 1]
    following = block.index + 1
    flow = last.form.flow
    if flow == "branch":
        found = [block_at[target.position] for target in targets_of(last)]
        if last.guard is not None:
            found.append(following)
    elif flow == "exit":
        found = [exit_block] if last.guard is None else [exit_block, following]
    elif flow == "stop" and last.guard is None:
        found = []  # lanes that trap never meet the others
    else:
        found = [following]
    return tuple(dict.fromkeys(found))


def _find_joins(blocks: list[Block], procedures: int) -> None:
    """Post-dominators; of code from ``procedures`` on, where lanes meet that return: those that exit never do."""
    count = len(blocks)
    everything = (1 << (count + 1)) - 1
    post = [1 << block.index if block.returns else everything for block in blocks] + [1 << count]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            meet = 0 if block.returns else everything
            for successor in block.successors:
                if successor != count or block.start < procedures:
                    meet &= post[successor]
            meet |= 1 << block.index
            if meet != post[block.index]:
                post[block.index] = meet
                changed = True
    for block in blocks:
        strict = post[block.index] & ~(1 << block.index)
        block.join = next((other for other in members(strict & ~(1 << count)) if post[other] == strict), None)


def _find_liveness(blocks: list[Block], code: list[Decoded]) -> None:
    used, killed = [0] * len(blocks), [0] * len(blocks)
    for block in blocks:
        for position in range(block.start, block.end):
            decoded = code[position]
            for register in decoded.uses:
                if not killed[block.index] >> register.number & 1:
                    used[block.index] |= 1 << register.number
            for register in decoded.defs:
                if decoded.guard is None:
                    killed[block.index] |= 1 << register.number
                elif not killed[block.index] >> register.number & 1:
                    used[block.index] |= 1 << register.number  # the old value survives where the guard is false
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = 0
            for successor in block.successors:
                if successor < len(blocks):
                    out |= blocks[successor].live_in
            live_in = used[block.index] | (out & ~killed[block.index])
            if live_in != block.live_in or out != block.live_out:
                block.live_in, block.live_out = live_in, out
                changed = True


def members(bits: int) -> list[int]:
    """Positions of the set bits, ascending."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def reachable(blocks: list[Block], start: int, stop: int | None) -> int:
    """Bit set of the blocks reachable from ``start`` without passing ``stop``."""
    seen = 0
    work = [start]
    while work:
        index = work.pop()
        if index == stop or index >= len(blocks) or seen >> index & 1:
            continue
        seen |= 1 << index
        work.extend(blocks[index].successors)
    return seen
