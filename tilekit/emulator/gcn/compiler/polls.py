"""Loads from LDS with which a wave waits until another one has written a word.

An atomic load or store of LDS is an ordinary instruction (LLVM, AMDGPU memory model), so only the loop around it tells
that it is one: a loop that stores nothing, meets no barrier, and reads the same address in every round can only wait.
In global memory the same holds within a workgroup, but a load for which other workgroups store looks alike and is
wrong, so there it takes ``sc0`` or ``sc1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

from tilekit.emulator.gcn.compiler.effects import Effects
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.language.syntax import EXEC, VCC, Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["polling_loads"]

_LOAD = re.compile(r"ds_read_(b32|b64|u8|u16)$")
_ACTS = re.compile(
    r"s_barrier|v_(mfma|smfmac)|.*(store|atomic|_lds_)|s_dcache_wb|"
    r"ds_(?!read|bpermute|permute|swizzle|nop)"
)
_MASKS = 0b11 << (SCALARS + EXEC) | 0b11 << (SCALARS + VCC)
"""Which lanes are active, and what compares write: a loop changes them, and no address is read from them."""


def polling_loads(blocks: list[Block], found: Mapping[int, Effects]) -> frozenset[int]:
    """Return the identities of these loads."""
    polls: set[str] = set()
    for loop in _loops(blocks):
        body = [i for number in loop for i in blocks[number].instructions]
        if any(_ACTS.match(i.name) or i.flag("lds") for i in body):
            continue
        written = reduce(or_, (found[id(i)].writes | found[id(i)].load for i in body), 0) & ~_MASKS
        polls |= {_said(i) for i in body if _LOAD.match(i.name) and not found[id(i)].reads & ~_MASKS & written}
    # Compilers take the first round out of the loop: the same load stands before it once more.
    return frozenset(id(i) for block in blocks for i in block.instructions if polls and _said(i) in polls)


def _said(i: Instruction) -> str:
    """The instruction without the register that it fills."""
    return f"{i.name} {i.operands[1:]} {i.modifiers}"


def _loops(blocks: list[Block]) -> Iterator[set[int]]:
    """The blocks of each loop: of every branch back, those on a way from where it goes to where it is."""
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for successor in (block.following, block.taken):
            if successor >= 0:
                before[successor].append(number)
    for number, block in enumerate(blocks):
        for head in (block.following, block.taken):
            if head >= 0 and blocks[head].start <= block.start:
                loop = {head}
                work = [number]
                while work:
                    at = work.pop()
                    if at not in loop:
                        loop.add(at)
                        work += before[at]
                yield loop
