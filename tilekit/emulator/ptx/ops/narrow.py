"""Conversions of the 4-, 6- and 8-bit formats of sm_100, and f32 arithmetic on 16-bit operands (PTX ISA 9.7)."""

from __future__ import annotations

import numpy as np

from tilekit.emulator.core.arithmetic import formats
from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never, refuse
from tilekit.emulator.ptx.language.syntax import VectorOperand

_NARROW = "e2m1x2|e2m3x2|e3m2x2"
_WIDER = "e4m3x2|e5m2x2"
_HALVES = ("f16", "bf16")


def _register(packed: str) -> str:
    """Type of the register that holds two elements, or four."""
    bits = {"e2m1": 4, "f16": 16, "bf16": 16}.get(packed[:-2], 8) * int(packed[-1])
    return f"b{bits}"


def encode_pair(
    upper: Array, lower: Array, kind: str, rounding: formats.Rounding, relu: bool, saturate: bool = True
) -> Array:
    """Two elements, rounded and saturated, side by side: 4-bit ones in a byte, the others in a byte each."""
    width = 4 if kind == "e2m1" else 8
    high, low = (formats.encode(x, kind, rounding, saturate=saturate, relu=relu) for x in (upper, lower))
    return formats.pack_pair(high, low, width).astype(np.uint8 if width == 4 else np.uint16)


def decode_pair(pattern: Array, kind: str, to: str, relu: bool) -> Array:
    """The two elements of each register as two f16 or bf16."""
    codes = formats.unpack_pair(pattern, 4 if kind == "e2m1" else 8)
    upper, lower = (formats.encode(formats.decode(code.astype(np.uint8), kind), to, relu=relu) for code in codes)
    return formats.pack_pair(upper, lower, 16)


def widen_pair(pattern: Array, kind: str) -> tuple[Array, Array]:
    """The two f16 or bf16 of each register as float32, the upper one first."""
    upper, lower = formats.unpack_pair(pattern, 16)
    return formats.decode(upper.astype(np.uint16), kind), formats.decode(lower.astype(np.uint16), kind)


@form("cvt", f"rnd=rn satfinite relu? dtype={_NARROW} type=f32", "d a b", uniform=never)
@form("cvt", "rnd=rz|rp satfinite? dtype=ue8m0x2 type=f32", "d a b", uniform=never)
def to_narrow(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two f32 to a packed pair; the first goes to the upper part."""
    d, upper, lower = i.operands
    to = i["dtype"]
    flags = f"{to[:-2]!r}, {i['rnd']!r}, {i.has('relu')}, {i.has('satfinite')}"
    g.write(d, _register(to), f"{g.helper(encode_pair)}({g.array(upper, 'f32')}, {g.array(lower, 'f32')}, {flags})")


@form("cvt", f"rnd=rn satfinite relu? dtype={_NARROW} type=f16x2|bf16x2", "d a", uniform=never)
@form("cvt", f"rnd=rn satfinite relu? dtype={_WIDER} type=bf16x2", "d a", uniform=never)
@form("cvt", "rnd=rz|rp satfinite? dtype=ue8m0x2 type=bf16x2", "d a", uniform=never)
def pair_to_narrow(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two halves in a register to a packed pair."""
    d, a = i.operands
    to = i["dtype"]
    flags = f"{to[:-2]!r}, {i['rnd']!r}, {i.has('relu')}, {i.has('satfinite')}"
    wide = f"*{g.helper(widen_pair)}({g.array(a, 'b32')}, {i['type'][:-2]!r})"
    g.write(d, _register(to), f"{g.helper(encode_pair)}({wide}, {flags})")


@form("cvt", f"rnd=rn relu? dtype=f16x2|bf16x2 type={_NARROW}", "d a", uniform=never)
@form("cvt", f"rnd=rn relu? dtype=bf16x2 type={_WIDER}", "d a", uniform=never)
@form("cvt", "rnd=rn dtype=bf16x2 type=ue8m0x2", "d a", uniform=never)
def from_narrow(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of a packed pair to two halves, exactly."""
    d, a = i.operands
    kind = i["type"]
    source = g.array(a, _register(kind))
    what = f"{source}, {kind[:-2]!r}, {i['dtype'][:-2]!r}, {i.has('relu')}"
    g.write(d, "b32", f"{g.helper(decode_pair)}({what})")


# -- rounding by random bits -----------------------------------------------------------------------------------------


@form("cvt", "rnd=rs relu? satfinite? dtype=f16x2|bf16x2 type=f32", "d a b c", uniform=never)
@form("cvt", f"rnd=rs relu? satfinite dtype={_NARROW.replace('x2', 'x4')}|{_WIDER.replace('x2', 'x4')} type=f32",
      "d {a} a", uniform=never)  # fmt: skip
def to_random(g: BlockCompiler, i: Decoded) -> None:
    """``cvt.rs``: two or four f32, the first to the uppermost part, rounded by random bits."""
    d, *sources, bits = i.operands
    values = sources[0].items if isinstance(sources[0], VectorOperand) else tuple(sources)
    to = i["dtype"]
    if len(values) != int(to[-1]):
        raise g.fail(f"{len(values)} values, where .{to} takes {to[-1]}")
    texts = "".join(g.array(item, "f32") + ", " for item in values)
    flags = f"{to[:-2]!r}, {i.has('satfinite')}, {i.has('relu')}"
    g.write(d, _register(to), f"{g.helper(encode_many)}(({texts}), {g.array(bits, 'b32')}, {flags})")


def random_draws(bits: Array, kind: str) -> tuple[Array, ...]:
    """What is drawn for each value, first value first, from a register of random bits: numbers in [0, 1).

    bf16 takes the upper and the lower half, f16 the low 13 bits of each. Of four values the first two share the upper
    half and the others the lower one; for e2m1 the first two share the upper byte of each half, the others the lower.
    """
    upper, lower = bits >> np.uint32(16), bits & np.uint32(0xFFFF)
    if kind == "bf16":
        return upper / 2.0**16, lower / 2.0**16
    if kind == "f16":
        return (upper & np.uint32(0x1FFF)) / 2.0**13, (lower & np.uint32(0x1FFF)) / 2.0**13
    if kind == "e2m1":
        first = (upper & np.uint32(0xFF00)) | lower >> np.uint32(8)
        upper, lower = first, (upper & np.uint32(0xFF)) << np.uint32(8) | lower & np.uint32(0xFF)
    return (upper / 2.0**16,) * 2 + (lower / 2.0**16,) * 2


def encode_many(values: tuple[Array, ...], bits: Array, kind: str, saturate: bool, relu: bool) -> Array:
    """Values rounded by random bits, side by side, the first uppermost."""
    width = 4 if kind == "e2m1" else 16 if kind in _HALVES else 8
    word = np.zeros(32, np.uint32)
    for value_, draws in zip(values, random_draws(bits, kind), strict=True):
        code = formats.encode_randomly(value_, kind, draws, saturate=saturate, relu=relu)
        word = word << np.uint32(width) | code.astype(np.uint32)
    return word.astype(np.uint16) if kind == "e2m1" else word


refuse(
    "cvt",
    "rnd=rn satfinite? relu? scale=scaled::n2::ue8m0? dtype=s2f6x2 type=f32|bf16x2|f16x2",
    "d a a? a?",
    "the fixed-point format s2f6 is not modelled",
)
refuse(
    "cvt",
    "rnd=rn relu? scale=scaled::n2::ue8m0? dtype=bf16x2 type=s2f6x2",
    "d a a?",
    "the fixed-point format s2f6 is not modelled",
)
