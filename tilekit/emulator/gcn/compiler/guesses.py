"""Loads that only guess what a compare-and-swap will find.

Compilers make an atomic operation that the chip lacks from a loop around a compare-and-swap, and an ordinary load gives
the first value to compare with. Whatever it reads is harmless, since a wrong guess makes the swap fail: such a load needs
no order with the atomics of others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilekit.emulator.gcn.compiler.effects import Effects
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.language.syntax import Instruction, Operand, Register

__all__ = ["first_guesses"]

_LOAD = re.compile(r"(global|flat|buffer)_load_dword(x2)?$|ds_read_b(32|64)$")
_SWAP = re.compile(r"(global|flat|buffer)_atomic_cmpswap(_x2)?$|ds_cmpst_(rtn_)?[bf](32|64)$")
_COPIES = ("v_mov_b32", "v_mov_b64", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
_PLACING = ("offset", "offen", "idxen")
_Copies = frozenset[tuple[int, int]]  # row of a register, and which word of the value it holds


def first_guesses(blocks: list[Block], found: Mapping[int, Effects], accumulators: int) -> frozenset[int]:
    """Return the identities of these loads: their value, or a copy, is compared with at the address it is of."""
    code = [(number, place, i) for number, block in enumerate(blocks) for place, i in enumerate(block.instructions)]
    if not any(_SWAP.match(i.name) for _, _, i in code):
        return frozenset()
    return frozenset(
        id(i)
        for number, place, i in code
        if _LOAD.match(i.name) and not i.flag("lds") and _is_compared(blocks, found, accumulators, number, place)
    )


def _is_compared(
    blocks: list[Block], found: Mapping[int, Effects], accumulators: int, number: int, place: int
) -> bool:
    """Whether a way from a load leads to a compare-and-swap with its value, the address still in its registers."""
    load = blocks[number].instructions[place]
    where = _address(load)
    fixed = _rows(where[1:], accumulators)
    target = _first(load.operands[0], accumulators)
    words = 2 if load.name.endswith(("x2", "b64")) else 1
    if target is None or found[id(load)].load & fixed:
        return False
    start: _Copies = frozenset((target + word, word) for word in range(words))
    seen: set[tuple[int, _Copies]] = set()
    work = [(number, place + 1, start)]
    while work:
        block, at, copies = work.pop()
        for i in blocks[block].instructions[at:]:
            if _SWAP.match(i.name) and _address(i) == where:
                compared = _compared(i, words, accumulators)
                if compared is not None and all((compared + word, word) in copies for word in range(words)):
                    return True
            effects = found[id(i)]
            written = effects.writes | effects.load
            if written & fixed:
                break
            copies = _after(i, copies, written, accumulators)
            if not copies:
                break
        else:
            for successor in (blocks[block].following, blocks[block].taken):
                if successor >= 0 and (successor, copies) not in seen:
                    seen.add((successor, copies))
                    work.append((successor, 0, copies))
    return False


def _after(i: Instruction, copies: _Copies, written: int, accumulators: int) -> _Copies:
    """Which registers hold the value after an instruction."""
    kept = {(row, word) for row, word in copies if not written >> row & 1}
    if i.name in _COPIES and not i.modifiers and len(i.operands) == 2:
        source, target = (_first(operand, accumulators) for operand in reversed(i.operands))
        if source is not None and target is not None:
            many = 2 if i.name == "v_mov_b64" else 1
            kept |= {(target + row - source, word) for row, word in copies if source <= row < source + many}
    return frozenset(kept)


def _address(i: Instruction) -> tuple[object, ...]:
    """Where an instruction accesses memory: the space, its operands for the address, and what is added."""
    space = i.name.partition("_")[0]
    operands = i.operands
    if space == "buffer":
        parts = operands[1:4]
    elif space == "ds":
        skip = int("read" in i.name or "_rtn" in i.name)
        parts = operands[skip : skip + 1]
    else:
        returns = "load" in i.name or i.flag("sc0")
        parts = operands[int(returns) : int(returns) + 1]
        if space == "global":
            parts += operands[-1:]
    return (space, *parts, *(i.modifiers.get(name, 0) for name in _PLACING))


def _compared(i: Instruction, words: int, accumulators: int) -> int | None:
    """Row of the first register that a compare-and-swap compares with."""
    if i.name.startswith("ds"):
        return _first(i.operands[2 if "_rtn" in i.name else 1], accumulators)
    place = 0 if i.name.startswith("buffer") else 2 if i.flag("sc0") else 1
    data = _first(i.operands[place], accumulators)
    return None if data is None else data + words


def _first(operand: Operand, accumulators: int) -> int | None:
    if not isinstance(operand, Register) or operand.file == "s":
        return None
    return operand.first + (accumulators if operand.file == "a" else 0)


def _rows(parts: tuple[object, ...], accumulators: int) -> int:
    bits = 0
    for part in parts:
        if isinstance(part, Register) and part.file != "s":
            first = part.first + (accumulators if part.file == "a" else 0)
            bits |= ((1 << part.count) - 1) << first
    return bits
