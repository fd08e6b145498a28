"""Integer, logic, shift and comparison instructions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.emulator.ptx.hardware.cases import Case, elementwise, nonzero


def cases() -> Iterator[Case]:
    """Every integer case."""
    make = partial(elementwise, "integer")
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            yield make(f"{op}.{t}", t, t, t)
        for op in ("mad.lo", "mad.hi"):
            yield make(f"{op}.{t}", t, t, t, t)
        for op in ("div", "rem"):
            yield make(f"{op}.{t}", t, t, t, clean=nonzero)
        yield make(f"shr.{t}", t, t, "u32")
    for t in ("s16", "s32", "s64"):
        yield make(f"abs.{t}", t, t)
        yield make(f"neg.{t}", t, t)
    for t, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        yield make(f"mul.wide.{t}", wide, t, t)
        yield make(f"mad.wide.{t}", wide, t, t, wide)
    for t in ("u32", "s32"):
        yield make(f"mul24.lo.{t}", t, t, t)
        yield make(f"mul24.hi.{t}", t, t, t)
        yield make(f"mad24.lo.{t}", t, t, t, t)
        yield make(f"sad.{t}", t, t, t, t)
    yield make("add.sat.s32", "s32", "s32", "s32")
    yield make("sub.sat.s32", "s32", "s32", "s32")
    yield make("mad.hi.sat.s32", "s32", "s32", "s32", "s32")
    for t in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            yield make(f"{op}.{t}", t, "b32", "b32")
    yield make("min.relu.s16x2", "s16x2", "b32", "b32")
    yield make("max.relu.s16x2", "s16x2", "b32", "b32")
    yield make("min.relu.s32", "s32", "s32", "s32")
    yield make("max.relu.s32", "s32", "s32", "s32")
    for t in ("b16", "b32", "b64"):
        for op in ("and", "or", "xor"):
            yield make(f"{op}.{t}", t, t, t)
        yield make(f"not.{t}", t, t)
        yield make(f"cnot.{t}", t, t)
        yield make(f"shl.{t}", t, t, "u32")
        yield make(f"selp.{t}", t, t, t, "pred")
    for t in ("b32", "b64"):
        yield make(f"popc.{t}", "u32", t)
        yield make(f"clz.{t}", "u32", t)
        yield make(f"brev.{t}", t, t)
        yield make(f"bfi.{t} {{d}}, {{a}}, {{b}}, {{c}}, 7;", t, t, t, "u32", label=f"bfi.{t} len 7")
        yield make(f"bfi.{t} {{d}}, {{a}}, {{b}}, 5, {{c}};", t, t, t, "u32", label=f"bfi.{t} pos 5")
    for t in ("u32", "s32", "u64", "s64"):
        yield make(f"bfe.{t}", t, t, "u32", "u32")
        yield make(f"bfind.{t}", "u32", t)
        yield make(f"bfind.shiftamt.{t}", "u32", t)
    for mode in ("clamp", "wrap"):
        for side in "lr":
            yield make(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "u32")
            yield make(f"szext.{mode}.{'u' if side == 'l' else 's'}32", "u32", "u32", "u32")
    yield make("prmt.b32", "b32", "b32", "b32", "b32")
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield make(f"prmt.b32.{mode}", "b32", "b32", "b32", "b32")
    for table in (0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B, 0x40):
        yield make("lop3.b32", "b32", "b32", "b32", "b32", immediates=f", {table:#x}")
    for t in ("u32", "s32"):
        yield make(f"dp4a.{t}.{t}", "b32", "b32", "b32", "b32")
        yield make(f"dp2a.lo.{t}.{t}", "b32", "b32", "b32", "b32")
        yield make(f"dp2a.hi.{t}.{t}", "b32", "b32", "b32", "b32")
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for relation in ("eq", "ne", "lt", "le", "gt", "ge"):
            yield make(f"setp.{relation}.{t}", "pred", t, t)
    for t in ("u16", "u32", "u64"):
        for relation in ("lo", "ls", "hi", "hs"):
            yield make(f"setp.{relation}.{t}", "pred", t, t)
    for combination in ("and", "or", "xor"):
        yield make(f"setp.lt.{combination}.s32", "pred", "s32", "s32", "pred")
    yield make("set.lt.u32.s32", "b32", "s32", "s32")
    yield make("set.ge.f32.u32", "f32", "u32", "u32")
    yield make("slct.u32.s32", "u32", "u32", "u32", "s32")
    yield make("slct.u64.s32", "u64", "u64", "u64", "s32")
    yield make(
        "{{ .reg .b32 hi; add.cc.u32 hi, {a}, {b}; addc.u32 {d}, {c}, 0; }}",
        "u32",
        "u32",
        "u32",
        "u32",
        label="add.cc then addc",
    )
    yield make(
        "{{ .reg .b32 hi; sub.cc.u32 hi, {a}, {b}; subc.u32 {d}, {c}, 0; }}",
        "u32",
        "u32",
        "u32",
        "u32",
        label="sub.cc then subc",
    )
    yield make(
        "{{ .reg .b32 lo; mad.lo.cc.u32 lo, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, 0; }}",
        *("u32", "u32", "u32", "u32"),
        label="mad.lo.cc then madc.hi",
    )
    yield make("fns.b32", "b32", "b32", "u32", "s32", clean=_small)

    yield from _comparisons()
    yield from _chains()
    for table in (0x00, 0x11, 0x2D, 0x3C, 0x47, 0x59, 0x66, 0x78, 0x81, 0x9C, 0xA5, 0xAA, 0xB7, 0xC3, 0xCC, 0xE1, 0xF0,
                  0xFF):  # fmt: skip
        yield make("lop3.b32", "b32", "b32", "b32", "b32", immediates=f", {table:#x}")
    for selector in (0x3210, 0x0123, 0x7654, 0x5410, 0x9C8B, 0xFEDC, 0x2F6A):
        yield make("prmt.b32", "b32", "b32", "b32", immediates=f", {selector:#x}")
    for mode in ("clamp", "wrap"):
        yield make(f"bmsk.{mode}.b32", "b32", "u32", "u32")
    for first, second in (("u32", "s32"), ("s32", "u32")):
        yield make(f"dp4a.{first}.{second}", "b32", "b32", "b32", "b32")
        yield make(f"dp2a.lo.{first}.{second}", "b32", "b32", "b32", "b32")
        yield make(f"dp2a.hi.{first}.{second}", "b32", "b32", "b32", "b32")
    for t in ("u16", "s16", "u64", "s64"):
        yield make(f"sad.{t}", t, t, t, t)
    for t in ("b16", "s32", "b64", "f32", "f64"):
        yield make(f"slct.{t}.s32", t, t, t, "s32")
    yield make("cvt.pack.sat.u16.s32", "b32", "s32", "s32")
    for t in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield make(f"cvt.pack.sat.{t}.s32.b32", "b32", "s32", "s32", "b32")
    for op in ("and", "or", "xor"):
        yield make(f"{op}.pred", "pred", "pred", "pred")
    yield make("not.pred", "pred", "pred")
    yield make("mad24.hi.sat.s32", "s32", "s32", "s32", "s32")


def _comparisons() -> Iterator[Case]:
    make = partial(elementwise, "integer")
    for compare in ("lt.s32", "eq.u32", "hi.u32"):
        t = compare.split(".")[1]
        both = f"setp.{compare} {{d}}|other, {{a}}, {{b}}; @other xor.pred {{d}}, {{d}}, other;"
        yield make(f"{{{{ .reg .pred other; {both} }}}}", "pred", t, t, label=f"setp.{compare} both ways")
    for combination in ("and", "or", "xor"):
        negated = f"setp.ge.{combination}.u64 {{d}}, {{a}}, {{b}}, !{{c}};"
        yield make(negated, "pred", "u64", "u64", "pred", label=f"setp.ge.{combination}.u64 negated")
        yield make(f"set.lt.{combination}.u32.s32", "b32", "s32", "s32", "pred")
        yield make(f"set.ne.{combination}.f32.u64", "f32", "u64", "u64", "pred")
    for relation, to, t in (("eq", "u32", "u64"), ("lt", "s32", "s16"), ("gt", "f32", "s64"), ("lo", "u32", "u32"),
                            ("hs", "s32", "u16"), ("ne", "u32", "b32")):  # fmt: skip
        yield make(f"set.{relation}.{to}.{t}", to, t, t)
    for relation in ("eq", "ne"):
        for t in ("b16", "b32", "b64"):
            yield make(f"setp.{relation}.{t}", "pred", t, t)


def _chains() -> Iterator[Case]:
    """Carries from one instruction to the next."""
    make = partial(elementwise, "integer")
    for low, high, t in (("add.cc", "addc", "u64"), ("sub.cc", "subc", "u64"), ("add.cc", "addc", "s32"),
                         ("sub.cc", "subc", "s32")):  # fmt: skip
        text = f"{{{{ .reg .b{t[1:]} low; {low}.{t} low, {{a}}, {{b}}; {high}.{t} {{d}}, {{c}}, low; }}}}"
        yield make(text, t, t, t, t, label=f"{low}.{t} then {high}")
        text = (
            f"{{{{ .reg .b{t[1:]} low; {low}.{t} low, {{a}}, {{b}}; {high}.cc.{t} low, {{c}}, low; "
            f"{high}.{t} {{d}}, low, {{c}}; }}}}"
        )
        yield make(text, t, t, t, t, label=f"{low}.{t} then {high}.cc then {high}")
    for half in ("lo", "hi"):
        for t in ("u32", "s32"):
            text = (
                f"{{{{ .reg .b32 low; mad.{half}.cc.{t} low, {{a}}, {{b}}, {{c}}; "
                f"madc.{half}.cc.{t} low, {{a}}, low, {{c}}; addc.u32 {{d}}, low, 0; }}}}"
            )
            yield make(text, t, t, t, t, label=f"mad.{half}.cc.{t} then madc.{half}.cc then addc")


def _small(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, ...]:
    return mask, base % 32, ((offset.view(np.int32) % 7) - 3).view(np.uint32)
