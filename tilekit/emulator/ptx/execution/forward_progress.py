"""Lanes that wait for lanes of their own warp, as at a lock that every thread takes for itself.

Lanes that part at a branch meet again at its post-dominator. Where those that are behind poll memory, they may be
polling for what the others would do next; every thread makes progress, so after a while the others go ahead. From
then on the parts of such a warp take turns, and catch up with each other before instructions of the whole warp, and
before registers change of which it has one for all lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.ptx.execution.warp import Fragment
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import Immediate

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.warp import Warp


PATIENCE = 256
"""Blocks that lanes run, others of their warp waiting for them at a join, before these may go ahead."""

TURN = 16
"""The same in a warp that polls or whose parts take turns, and the length of its turns."""


def turn_ended(warp: Warp, blocks: int) -> bool:
    """Note that the running lanes ran so many blocks without an end; whether they have long polled memory."""
    fragment = warp.fragment
    warp.polling = polls_memory(warp.program, fragment.block, fragment.join)
    fragment.ran += blocks
    return warp.polling and fragment.ran >= (TURN if warp.parted else PATIENCE)


def let_ahead(warp: Warp) -> None:
    """Let lanes go on that wait for the running ones, at a join or for their turn: no other can end their polling."""
    fragment = behind = warp.fragment
    fragment.ran = 0
    if not warp.parted and any_held_back(warp):
        warp.parted = True
        return
    while behind.parent is not None:
        waiting = behind.parent
        join = waiting.block
        if waiting.collected.any() and join != waiting.join and 0 <= join < warp.exit_block:
            ahead = Fragment(join, waiting.collected, waiting.join, waiting.parent)
            ahead.calls, ahead.frame = list(waiting.calls), waiting.frame
            if waiting.parent is not None:
                waiting.parent.children += 1
            waiting.collected = np.zeros_like(warp.live)
            warp.fragments.append(ahead)
            warp.parted = True
            return
        behind = waiting


def any_held_back(warp: Warp) -> bool:
    """Whether a part of a warp could run, and does not since another part is behind it in the text."""
    return sum(fragment.blocked is None for fragment in warp.fragments) > 1


def next_fragment(warp: Warp) -> Fragment | None:
    """Who runs next in a warp whose parts take turns: not who waits for the others, unless all do."""
    if len(warp.fragments) == 1 and warp.fragments[0].parent is None:
        warp.parted = False
        warp.fragments[0].parked = False
        return warp.runnable()
    for place, fragment in enumerate(warp.fragments):
        if fragment.blocked is None and not fragment.parked:
            warp.fragments.append(warp.fragments.pop(place))
            return fragment
    if any(not fragment.parked for fragment in warp.fragments):
        return None
    last = min(warp.fragments, key=lambda fragment: fragment.block)
    last.parked = False
    return last


def wait_for_others(warp: Warp, block: int) -> bool:
    """Whether the running fragment, about to run a block for the whole warp, waits or has become part of another."""
    fragment, program = warp.fragment, warp.program
    if fragment.ticket is not None:
        return False  # it has come already
    if block not in program.common_work:
        program.common_work[block] = _is_for_all(program, block), _common_results(program, block)
    together, written = program.common_work[block]
    needed = 0
    for other in warp.fragments:
        if other is not fragment and other.block < warp.exit_block:
            needed |= program.flow.blocks[other.block].live_in
    if not together and not written & needed:
        return False
    fragment.block = block
    for other in warp.fragments:
        if other.parked and (other.block, other.join, other.parent) == (block, fragment.join, fragment.parent):
            assert other.mask is not None
            assert fragment.mask is not None
            both = other.mask | fragment.mask
            other.mask = None if both.all() else both
            other.parked = False
            warp.fragments.remove(fragment)
            if fragment.parent is not None:
                fragment.parent.children -= 1
            return True
    fragment.parked = any(not other.parked for other in warp.fragments if other is not fragment)
    return fragment.parked


def polls_memory(program: Program, block: int, join: int) -> bool:
    """Whether a block is in a loop, on the near side of a join, that looks at memory which others may change."""
    known = program.polling_blocks.get((block, join))
    if known is None:
        known = program.polling_blocks[block, join] = _looks_again(program, block, join)
    return known


def _looks_again(program: Program, block: int, join: int) -> bool:
    blocks = program.flow.blocks
    seen: set[int] = set()
    ahead = [block]
    while ahead:
        for successor in blocks[ahead.pop()].successors:
            if successor not in seen and successor != join and successor < len(blocks):
                seen.add(successor)
                ahead.append(successor)
    loop = (blocks[number] for number in seen) if block in seen else ()
    return any(_looks(decoded) for part in loop for decoded in program.code[part.start : part.end])


def _looks(decoded: Decoded) -> bool:
    return decoded.form.opcode == "atom" or (
        decoded.form.opcode == "ld" and decoded.get("order") not in ("", "weak", None)
    )


def _common_results(program: Program, number: int) -> int:
    """Bit set of the registers that a block writes once for all lanes: who is behind must have read them before."""
    if number >= len(program.flow.blocks):
        return 0
    block = program.flow.blocks[number]
    written = (register for decoded in program.code[block.start : block.end] for register in decoded.defs)
    return sum({1 << register.number for register in written if program.is_uniform(register)})


def _is_for_all(program: Program, number: int) -> bool:
    """Whether a block has an instruction that the whole warp executes as one."""
    if number >= len(program.flow.blocks):
        return False
    block = program.flow.blocks[number]
    return any(map(_names_all, program.code[block.start : block.end]))


def _names_all(decoded: Decoded) -> bool:
    if decoded.form.opcode in ("bar", "barrier") and not decoded.aligned:
        return False  # these wait by themselves
    members = decoded.operands[-1] if decoded.has("sync") and decoded.operands else None
    return decoded.aligned or (isinstance(members, Immediate) and members.value & 0xFFFFFFFF == 0xFFFFFFFF)
