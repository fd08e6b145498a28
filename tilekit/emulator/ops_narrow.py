"""Conversions of the 4-, 6- and 8-bit formats of sm_100, and f32 arithmetic on 16-bit operands (PTX ISA 9.7)."""

from __future__ import annotations

import numpy as np

from . import formats
from .block_compiler import BlockCompiler
from .forms import Decoded, form, never, refuse
from .lanes import Array
from .ops_float import result, value

_NARROW = "e2m1x2|e2m3x2|e3m2x2"


def _register(packed: str) -> str:
    """Type of the register that holds two elements."""
    return "b8" if packed == "e2m1x2" else "b16"


def encode_pair(upper: Array, lower: Array, kind: str, rounding: formats.Rounding, relu: bool) -> Array:
    """Two elements, rounded and saturated, side by side: 4-bit ones in a byte, the others in a byte each."""
    width = 4 if kind == "e2m1" else 8
    high, low = (formats.encode(x, kind, rounding, saturate=True, relu=relu) for x in (upper, lower))
    return formats.pack_pair(high, low, width).astype(np.uint8 if width == 4 else np.uint16)


def decode_pair(pattern: Array, kind: str, to: str) -> Array:
    """The two elements of each register as two f16 or bf16."""
    codes = formats.unpack_pair(pattern, 4 if kind == "e2m1" else 8)
    upper, lower = (formats.encode(formats.decode(code.astype(np.uint8), kind), to) for code in codes)
    return formats.pack_pair(upper, lower, 16)


@form("cvt", f"rnd=rn satfinite relu? dtype={_NARROW} type=f32", "d a b", uniform=never, since=100)
@form("cvt", "rnd=rz|rp satfinite? dtype=ue8m0x2 type=f32", "d a b", uniform=never, since=100)
def to_narrow(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two f32 to a packed pair; the first goes to the upper part."""
    d, upper, lower = i.operands
    to = i["dtype"]
    if to == "ue8m0x2" and not i.has("satfinite"):
        raise g.fail("cvt to ue8m0x2 without .satfinite is not supported")
    flags = f"{to[:-2]!r}, {i['rnd']!r}, {i.has('relu')}"
    g.write(d, _register(to), f"{g.helper(encode_pair)}({g.array(upper, 'f32')}, {g.array(lower, 'f32')}, {flags})")


@form("cvt", f"rnd=rn relu? dtype=f16x2 type={_NARROW}", "d a", uniform=never, since=100)
@form("cvt", "rnd=rn dtype=bf16x2 type=ue8m0x2", "d a", uniform=never, since=100)
def from_narrow(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of a packed pair to two halves, exactly."""
    d, a = i.operands
    if i.has("relu"):
        raise g.fail("cvt.relu from a narrow format is not supported")
    kind = i["type"]
    source = g.array(a, _register(kind))
    g.write(d, "b32", f"{g.helper(decode_pair)}({source}, {kind[:-2]!r}, {i['dtype'][:-2]!r})")


refuse(
    "cvt",
    "rnd=rs relu? satfinite? dtype=f16x2|bf16x2|e2m1x4|e2m3x4|e3m2x4|e4m3x4|e5m2x4 type=f32",
    "d av a a?",
    "stochastic rounding depends on how the machine uses its random bits, which is not described",
    since=100,
)


@form("add sub", "rnd=rn|rz|rm|rp? sat? dtype=f32 type=f16|bf16", "d a c", uniform=never, since=100)
@form("fma", "rnd=rn|rz|rm|rp sat? dtype=f32 type=f16|bf16", "d a b c", uniform=never, since=100)
def mixed(g: BlockCompiler, i: Decoded) -> None:
    """``add``, ``sub`` and ``fma`` of 16-bit operands with an f32 one, in f32."""
    kind = i["type"]
    *halves, last = i.operands[1:]
    parts = [f"{value(g, x, kind)}.astype(float64)" for x in halves]
    addend = f"{g.array(last, 'f32')}.astype(float64)"
    sign = "-" if i.form.opcode == "sub" else "+"
    text = f"{' * '.join(parts)} {sign} {addend}"
    if i.get("rnd", "rn") != "rn":
        text = f"{g.helper(formats.encode)}({text}, 'f32', {i['rnd']!r}).view(float32)"
    else:
        text = f"({text}).astype(float32)"
    result(g, i, "f32", text)
