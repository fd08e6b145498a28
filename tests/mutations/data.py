"""Mutations of what is moved and multiplied: copies, multicast, descriptors, stores."""

from __future__ import annotations

import re

from .mutation import SCRATCH, Changes, instead, offset, operator, scoped
from .statements import Program, Statement, split

_FIELDS = (
    ("start address 16 bytes on", "add.s64", 1),
    ("start address a row on", "add.s64", 8),
    ("leading byte offset 16 more", "add.s64", 1 << 16),
    ("stride byte offset 16 more", "add.s64", 1 << 32),
    ("base offset one", "xor.b64", 1 << 49),
    ("another swizzle", "xor.b64", 3 << 62),
)
"""Fields of a wgmma matrix descriptor: PTX ISA, "Matrix-Descriptor-Format"; tcgen05 has them in the same places."""


@operator("copy", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def tensor_copies(program: Program, s: Statement) -> Changes:
    load = ".mbarrier" in s.opcode
    where = 1 if load else 0
    tensor, coordinates = split(s.operands[where].strip("[]"))
    places = split(coordinates.strip("{}"))
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
    if len(places) > 1:
        swapped = (places[1], places[0], *places[2:])
        yield "coordinates swapped", instead(s, s.with_operand(where, f"[{tensor}, {{{', '.join(swapped)}}}]"))
        moved = f"[{tensor}, {{{SCRATCH}, {', '.join(places[1:])}}}]"
        yield "8 elements aside", scoped(s, "b32", f"add.s32 {SCRATCH}, {places[0]}, 8;", s.with_operand(where, moved))
    memory = 0 if load else 1
    yield "shared address 128 bytes on", offset(s, memory, 128)
    yield "shared address 16 bytes on", offset(s, memory, 16)
    if load:
        yield "the next barrier", offset(s, 2, 8)


@operator("multicast", "cp.async.bulk.tensor", "cp.async.bulk.shared::cluster")
def multicasts(program: Program, s: Statement) -> Changes:
    if ".multicast::cluster" not in s.opcode:
        return
    at = 4 if s.operands[3].startswith("{") else 3  # behind im2col's offsets
    for mask in (1, 2, 7):
        yield f"mask {mask:#b}", scoped(s, "b16", f"mov.b16 {SCRATCH}, {mask};", s.with_operand(at, SCRATCH))
    operands = (*s.operands[:at], *s.operands[at + 1 :])
    yield "no multicast", instead(s, s.written(s.opcode.replace(".multicast::cluster", ""), operands))


@operator("descriptor", "wgmma.mma_async", "tcgen05.mma")
def descriptors(program: Program, s: Statement) -> Changes:
    for index, matrix in ((1, "A"), (2, "B")):
        if s.operands[index].startswith(("{", "[")):
            continue
        for change, opcode, value in _FIELDS:
            changed = f"{opcode} {SCRATCH}, {s.operands[index]}, {value if value < 1 << 63 else value - (1 << 64)};"
            yield f"{matrix}: {change}", scoped(s, "b64", changed, s.with_operand(index, SCRATCH))


@operator("multiply", "wgmma.mma_async")
def multiplications(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    yield "doubled", instead(s, f"{s.written()} {s.written()}")
    scale = s.operands[3]
    for change, value in (("never accumulates", "0"), ("always accumulates", "1")):
        if scale != value:
            yield change, instead(s, s.with_operand(3, value))
    if not s.operands[1].startswith("{"):  # A in registers has no place for B
        swapped = (s.operands[0], s.operands[2], s.operands[1], *s.operands[3:])
        yield "A and B swapped", instead(s, s.written(operands=swapped))


@operator("store", "stmatrix", "st.shared", "st.global")
def stores(program: Program, s: Statement) -> Changes:
    yield "removed", instead(s, "")
    if re.fullmatch(r"\[[\w$%]+\]", s.operands[0]):
        yield "16 bytes on", offset(s, 0, 16, "b64" if s.is_a("st.global") else "b32")
