"""Video instructions against the manual's pseudo-code, one lane at a time, and in a kernel."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, UnsupportedInstruction
from tilekit.emulator.ptx.arithmetic.video import Scalar, Vector, multiply_add_parts, scalar_video, vector_video

KINDS = list(product(("u32", "s32"), repeat=3))
PARTS = ("", "b0", "b3", "h0", "h1")
EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01]


def words(seed: int) -> Any:
    """Edge values and random ones, in 32 lanes."""
    random = np.random.default_rng(seed)
    values = np.concatenate([random.permutation(EDGES), random.integers(0, 2**32, 20, np.uint64)])
    return values.astype(np.uint32)


def extended(value: int, bits: int, signed: bool) -> int:
    """A field as a number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def part_of(word: int, part: str, kind: str) -> int:
    """Extract and extend, as the first stage does."""
    if not part:
        return extended(word, 32, kind == "s32")
    bits = 8 if part[0] == "b" else 16
    return extended(word >> bits * int(part[1]), bits, kind == "s32")


def clamped(value: int, bits: int, kind: str) -> int:
    """Saturate to a type of some bits."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def operate(name: str, how: str, x: int, y: int) -> int:
    """The primary operation."""
    compared = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    count = min(y, 32) if how == "clamp" else y & 31
    match name:
        case "vadd":
            return x + y
        case "vsub":
            return x - y
        case "vabsdiff":
            return abs(x - y)
        case "vmin":
            return min(x, y)
        case "vmax":
            return max(x, y)
        case "vavrg":
            return (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1
        case "vshl":
            return x << count
        case "vshr":
            return x >> count
    return int(compared[how])


def expected(form: Scalar, a: int, b: int, c: int) -> int:
    """The manual's stages of a scalar instruction."""
    value = operate(
        form.name, form.how, part_of(a, form.parts[1], form.kinds[1]), part_of(b, form.parts[2], form.kinds[2])
    )
    bits = {"": 32, "b": 8, "h": 16}[form.parts[0][:1]]
    if form.saturate:
        value = clamped(value, bits, form.kinds[0])
    third = extended(c, 32, form.kinds[0] == "s32")
    if form.second:
        value = {"add": value + third, "min": min(value, third), "max": max(value, third)}[form.second]
    elif form.parts[0]:
        shift = bits * int(form.parts[0][1])
        ones = (1 << bits) - 1
        value = (value & ones) << shift | c & ~(ones << shift)
    return value & 0xFFFFFFFF


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"])
def test_scalar(name: str) -> None:
    """Every combination of types and parts, saturated or not, with each second operation and merged."""
    a, b, c = words(1), words(2), words(3)
    hows = {"vset": ["eq", "lt", "ge"], "vshl": ["clamp", "wrap"], "vshr": ["clamp", "wrap"]}.get(name, [""])
    for kinds, (pa, pb), how, saturate in product(KINDS, product(PARTS, repeat=2), hows, (False, True)):
        if how in ("clamp", "wrap") and kinds[2] == "s32":
            continue
        for second, pd in (("", ""), ("add", ""), ("min", ""), ("max", ""), ("", "b2"), ("", "h1")):
            form = Scalar(name, kinds, (pd, pa, pb), how, saturate, second)
            got = scalar_video(form, a, b, c)
            assert got.tolist() == [expected(form, *map(int, v)) for v in zip(a, b, c, strict=True)], form


def test_multiply_add() -> None:
    """vmad in every type, with parts, negated, plus one, shifted and saturated."""
    a, b, c = words(4), words(5), words(6)
    cases = product(KINDS, (("", ""), ("h1", "b2")), ((False, False), (True, False), (False, True)), (False, True))
    for kinds, parts, minus, saturate in cases:
        for scale, plus_one in product(("", "shr7", "shr15"), (False, True)):
            if plus_one and any(minus):
                continue
            got = multiply_add_parts(kinds, parts, minus, plus_one, scale, saturate, a, b, c)
            for lane in range(32):
                x = part_of(int(a[lane]), parts[0], kinds[1])
                y = part_of(int(b[lane]), parts[1], kinds[2])
                signed = "s32" in kinds[1:] or any(minus)
                z = extended(int(c[lane]), 32, signed)
                value = (-x * y if minus[0] else x * y) + (-z if minus[1] else z) + plus_one
                value >>= {"": 0, "shr7": 7, "shr15": 15}[scale]
                if saturate:
                    value = clamped(value, 32, "s32" if signed else "u32")
                assert got[lane] == value & 0xFFFFFFFF


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"])
def test_vector(name: str, count: int) -> None:
    """Half words and bytes: selections, masks, saturation, merged into c or added to it."""
    a, b, c = words(7), words(8), words(9)
    bits = 32 // count
    selections = [
        ("", ""),
        ("h10", "h00") if count == 2 else ("b3210", "b0000"),
        ("h31", "h02") if count == 2 else ("b7016", "b4455"),
    ]
    masks = ("", "h1", "h10") if count == 2 else ("", "b0", "b31", "b3210")
    for kinds, chosen, mask in product(KINDS, selections, masks):
        for saturate, accumulate in ((False, False), (True, False), (False, True)):
            how = "lt" if name == "vset" else ""
            form = Vector(name, count, kinds, (mask, *chosen), how, saturate, accumulate)
            got = vector_video(form, a, b, c)
            for lane in range(32):
                both = int(a[lane]) | int(b[lane]) << 32
                total = extended(int(c[lane]), 32, kinds[0] == "s32") if accumulate else 0
                for i in range(count):
                    defaults = ("10", "32") if count == 2 else ("3210", "7654")
                    x, y = (
                        extended(both >> bits * int((s[1:] or default)[count - 1 - i]), bits, kind == "s32")
                        for s, default, kind in zip(chosen, defaults, kinds[1:], strict=True)
                    )
                    value = operate(name, how, x, y)
                    value = clamped(value, bits, kinds[0]) if saturate else value
                    kept = not mask or str(i) in mask[1:]
                    if accumulate:
                        total += value if kept else 0
                    else:
                        field = value if kept else int(c[lane]) >> bits * i
                        total |= (field & (1 << bits) - 1) << bits * i
                assert got[lane] == total & 0xFFFFFFFF


TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
  .reg .b32 %t, %a, %b, %c, %d; .reg .b64 %o, %w;
  mov.u32 %t, %tid.x; mad.lo.u32 %a, %t, 0x01030507, 0x80; mul.lo.u32 %b, %t, 0x00f1e1d1; not.b32 %c, %t;
  {instruction}
  ld.param.u64 %o, [out]; mul.wide.u32 %w, %t, 4; add.u64 %o, %o, %w; st.global.u32 [%o], %d; ret;
}}
"""


@pytest.mark.parametrize(
    "instruction",
    [
        "vadd.s32.u32.s32.sat %d, %a.b0, %b.h1;", "vsub.u32.u32.u32 %d.h1, %a, %b.b3, %c;",
        "vabsdiff.s32.s32.s32.sat.add %d, %a.h0, %b.b2, %c;", "vshl.u32.u32.u32.wrap.max %d, %a, %b.b1, %c;",
        "vset.s32.u32.ge %d, %a, %b.h1;", "vmad.s32.s32.u32.sat %d, %a.b1, %b.h0, -%c;",
        "vmad.u32.u32.u32.shr15 %d, %a.h1, %b, 7;", "vmad.s32.s32.s32.po.shr7 %d, %a.h1, %b.h0, %c;",
        "vadd2.s32.s32.u32.sat %d.h1, %a.h02, %b.h31, %c;", "vavrg4.u32.u32.u32 %d, %a, %b, %c;",
        "vabsdiff4.u32.u32.u32.add %d.b310, %a.b3210, %b.b7654, %c;", "vset4.u32.u32.ne %d, %a, %b, %c;",
        "vset2.s32.s32.ge.add %d, %a, %b, %c;",
    ],
)  # fmt: skip
def test_in_a_kernel(instruction: str, assemble: Any) -> None:
    """Spellings that ptxas takes are read: parts of registers, negated registers, second operations."""
    assemble(TEXT.format(instruction=instruction))
    out = np.zeros(32, np.uint32)
    Device("sm_80").load(TEXT.format(instruction=instruction))["k"].launch(1, 32, [out])
    assert out.any()
    if instruction.startswith("vmad.s32.s32.u32"):
        a = (np.arange(32) * 0x01030507 + 0x80) & 0xFFFFFFFF
        b = (np.arange(32) * 0x00F1E1D1) & 0xFFFFFFFF
        part = ((a >> 8 & 0xFF) ^ 0x80) - 0x80
        assert out.view(np.int32).tolist() == (part * (b & 0xFFFF) - ~np.arange(32)).tolist()


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("vadd.s32.u32.s32 %d, %a.b4, %b;", "b4 is no part"),
        ("vadd.s32.u32.s32.add %d, %a, %b;", "a third source goes with"),
        ("vmad.s32.s32.s32 %d, -%a, %b, -%c;", "may be negated, not both"),
        ("add.u32 %d, %a, -%b;", "operands"),
    ],
)
def test_refused(instruction: str, message: str) -> None:
    """Parts that do not exist and signs where none may stand are refused."""
    with pytest.raises(UnsupportedInstruction, match=message):
        Device("sm_80").load(TEXT.format(instruction=instruction))["k"].launch(1, 32, [np.zeros(32, np.uint32)])
