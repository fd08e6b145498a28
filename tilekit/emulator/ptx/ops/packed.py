"""Integers packed in a register: halves, bytes, dot products, clamped packs (PTX ISA 9.7.1, 9.7.9)."""

from __future__ import annotations

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never


@form("min max", "relu? type=u16x2|s16x2", "d a b")
@form("add", "type=u16x2|s16x2", "d a b")
def packed_16(g: BlockCompiler, i: Decoded) -> None:
    """``min``, ``max`` and ``add`` on two 16-bit integers in a register."""
    dtype = "int16" if i["type"][0] == "s" else "uint16"
    a, b = (f"{g.array(x, 'b32')}.view({dtype})" for x in i.operands[1:])
    text = f"({a} + {b})" if i.form.opcode == "add" else f"{i.form.opcode}imum({a}, {b})"
    if i.has("relu"):
        text = f"maximum({text}, 0)"
    g.write(i.operands[0], "b32", f"{text}.view(uint32)")


@form("dp4a", "atype=u32|s32 btype=u32|s32", "d a b c", uniform=never)
@form("dp2a", "half=lo|hi atype=u32|s32 btype=u32|s32", "d a b c", uniform=never)
def dot_product(g: BlockCompiler, i: Decoded) -> None:
    """``dp4a``: four products of bytes; ``dp2a``: two products of a half word and a byte."""
    d, a, b, c = i.operands
    signs = f"{i['atype'][0] == 's'}, {i['btype'][0] == 's'}"
    values = f"{g.array(a, 'b32')}, {g.array(b, 'b32')}, {g.array(c, 'b32')}"
    g.write(d, "b32", f"{g.helper(dot_bytes)}({values}, {signs}, {i.get('half')!r})")


def dot_bytes(a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool, half: str) -> Array:
    """Sum of products of the parts of each lane's words, added to ``c``."""
    width = 2 if half else 1
    left = np.ascontiguousarray(a).view(f"{'i' if a_signed else 'u'}{width}").reshape(a.size, -1).astype(np.int64)
    right = np.ascontiguousarray(b).view("i1" if b_signed else "u1").reshape(-1, 4).astype(np.int64)
    if half:
        right = right[:, :2] if half == "lo" else right[:, 2:]
    total: Array = (left * right).sum(1) + c.astype(np.int64)
    return total.astype(np.uint32)


@form("fns", "type=b32", "d a b c", uniform=never)
def find_nth(g: BlockCompiler, i: Decoded) -> None:
    """``fns``: position of the n-th set bit from a base, upwards or downwards."""
    d, a, b, c = i.operands
    g.write(d, "b32", f"{g.helper(nth_set)}({g.array(a, 'b32')}, {g.array(b, 'b32')}, {g.array(c, 's32')})")


def nth_set(mask: Array, base: Array, offset: Array) -> Array:
    """``fns`` lane by lane; all ones where there is no such bit."""
    found = []
    for bits, start, count in zip(mask.tolist(), base.tolist(), offset.tolist(), strict=True):
        step = -1 if count < 0 else 1
        positions = range(start, 32 if step > 0 else -1, step) if start < 32 else range(0)
        if count == 0:
            found.append(start if start < 32 and bits >> start & 1 else 0xFFFFFFFF)
            continue
        hits = [p for p in positions if bits >> p & 1]
        found.append(hits[abs(count) - 1] if len(hits) >= abs(count) else 0xFFFFFFFF)
    return np.array(found, np.uint32)


@form("cvt", "pack sat dtype=u16|s16 type=s32", "d a b", uniform=never)
@form("cvt", "pack sat dtype=u2|s2|u4|s4|u8|s8 type=s32 ctype=b32", "d a b c", uniform=never)
def pack_integers(g: BlockCompiler, i: Decoded) -> None:
    """``cvt.pack``: two clamped integers below the bits of a third operand, the second lowest."""
    d, a, b = i.operands[:3]
    rest = g.array(i.operands[3], "b32") if i.has("ctype") else "None"
    g.write(d, "b32", f"{g.helper(pack_clamped)}({g.array(a, 's32')}, {g.array(b, 's32')}, {rest}, {i['dtype']!r})")


def pack_clamped(a: Array, b: Array, above: Array | None, kind: str) -> Array:
    """The two values clamped to a narrow type, and the lower bits of ``above`` shifted over them."""
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    first, second = (np.clip(x.astype(np.int64), low, high) & ((1 << bits) - 1) for x in (a, b))
    packed = first << bits | second
    if above is not None:
        packed |= above.astype(np.int64) << 2 * bits
    return packed.astype(np.uint32)
