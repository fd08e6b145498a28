"""Loads that only guess what a compare-and-swap will find.

Compilers make an atomic operation that the chip lacks from a loop around a compare-and-swap, and an ordinary load
gives the first value to compare with. Whatever it reads is harmless, since a wrong guess makes the swap fail: such a
load needs no order with the atomics of others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilekit.emulator.gcn.compiler.effects import Effects
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.language.syntax import Instruction, Operand, Register
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["first_guesses"]

_LOAD = re.compile(r"((global|flat|buffer)_load|s_load)_dword(x2)?$|ds_read_b(32|64)$")
_SWAP = re.compile(r"(global|flat|buffer)_atomic_cmpswap(_x2)?$|ds_cmpst_(rtn_)?[bf](32|64)$")
_COPIES = re.compile(r"v_mov_b(32|64)$|s_mov_b(32|64)$|v_accvgpr_(read|write|mov)_b32$")
_Copies = frozenset[tuple[int, int]]  # bit of a register, and which word of the value it holds


def first_guesses(blocks: list[Block], found: Mapping[int, Effects], accumulators: int) -> frozenset[int]:
    """Return the identities of these loads: a compare-and-swap compares with its value."""
    code = [(number, place, i) for number, block in enumerate(blocks) for place, i in enumerate(block.instructions)]
    if not any(_SWAP.match(i.name) for _, _, i in code):
        return frozenset()
    return frozenset(
        id(i)
        for number, place, i in code
        if _LOAD.match(i.name) and not i.flag("lds") and _is_compared(blocks, found, accumulators, number, place)
    )


def _is_compared(blocks: list[Block], found: Mapping[int, Effects], accumulators: int, number: int, place: int) -> bool:
    load = blocks[number].instructions[place]
    target = _first(load.operands[0], accumulators)
    words = 2 if load.name.endswith(("x2", "b64")) else 1
    seen: set[tuple[int, _Copies]] = set()
    start: _Copies = frozenset((target + word, word) for word in range(words))
    work = [(number, place + 1, start)]
    while work:
        block, at, copies = work.pop()
        for i in blocks[block].instructions[at:]:
            if _SWAP.match(i.name):
                compared = _compared(i, words, accumulators)
                if all((compared + word, word) in copies for word in range(words)):
                    return True
            copies = _after(i, copies, found[id(i)], accumulators)
            if not copies:
                break
        else:
            for successor in (blocks[block].following, blocks[block].taken):
                if successor >= 0 and (successor, copies) not in seen:
                    seen.add((successor, copies))
                    work.append((successor, 0, copies))
    return False


def _after(i: Instruction, copies: _Copies, found: Effects, accumulators: int) -> _Copies:
    """Which registers hold the value after an instruction."""
    written = found.writes | found.load
    kept = {(row, word) for row, word in copies if not written >> row & 1}
    if _COPIES.match(i.name) and not i.modifiers and isinstance(i.operands[1], Register):
        target, source = (_first(operand, accumulators) for operand in i.operands)
        many = i.operands[1].count
        kept |= {(target + row - source, word) for row, word in copies if source <= row < source + many}
    return frozenset(kept)


def _compared(i: Instruction, words: int, accumulators: int) -> int:
    """Bit of the first register that a compare-and-swap compares with: LDS takes it first, global memory last."""
    if i.name.startswith("ds"):
        return _first(i.operands[2 if "_rtn" in i.name else 1], accumulators)
    place = 0 if i.name.startswith("buffer") else 2 if i.flag("sc0") else 1
    return _first(i.operands[place], accumulators) + words


def _first(operand: Operand, accumulators: int) -> int:
    assert isinstance(operand, Register)
    return operand.first + {"s": SCALARS, "v": 0, "a": accumulators}[operand.file]
