"""16-bit floats with every combination of modifiers, comparisons of one and of two, conversions of bf16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from tests.emulator.ptx.hardware.cases import Case, elementwise


def cases() -> Iterator[Case]:
    """Every case of 16-bit floats, and float comparisons with results of other types."""
    yield from _arithmetic()
    yield from _comparisons()
    yield from _conversions()


def _arithmetic() -> Iterator[Case]:
    make = partial(elementwise, "half")
    for t in ("f16", "f16x2"):
        for op in ("add", "sub", "mul"):
            yield make(f"{op}.ftz.sat.{t}", t, t, t)
        for extra in ("ftz.sat", "ftz.relu"):
            yield make(f"fma.rn.{extra}.{t}", t, t, t, t)
        for op in ("neg", "abs"):
            yield make(f"{op}.ftz.{t}", t, t)
        for op, extra in product(("min", "max"), ("ftz", "ftz.NaN", "ftz.xorsign.abs", "ftz.NaN.xorsign.abs")):
            yield make(f"{op}.{extra}.{t}", t, t, t)
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        for op in ("min", "max"):
            yield make(f"{op}.NaN.xorsign.abs.{t}", t, t, t)
    for t in ("f32", "f64"):
        for rounding in ("rn", "rz", "rm", "rp"):
            yield make(f"mad.{rounding}.{t}", t, t, t, t)
    yield make("mad.rn.ftz.sat.f32", "f32", "f32", "f32", "f32")
    for rounding in ("rz", "rm", "rp"):
        for op in ("add", "sub", "mul"):
            yield make(f"{op}.{rounding}.sat.f32", "f32", "f32", "f32")
        yield make(f"fma.{rounding}.ftz.sat.f32", "f32", "f32", "f32", "f32")


def _comparisons() -> Iterator[Case]:
    make = partial(elementwise, "half")
    for t in ("f16x2", "bf16x2"):
        for relation in ("eq", "ne", "lt", "ge", "equ", "leu", "num", "nan"):
            text = (
                f"{{{{ .reg .pred low, high; .reg .b32 two; setp.{relation}.{t} low|high, {{a}}, {{b}}; "
                "selp.b32 {d}, 1, 0, low; selp.b32 two, 2, 0, high; or.b32 {d}, {d}, two; }}"
            )
            yield make(text, "b32", t, t, label=f"setp.{relation}.{t}")
        plain = t.removesuffix("x2")
        for relation in ("lt", "neu", "num"):
            yield make(f"set.{relation}.{t}.{t}", "b32", t, t)
            yield make(f"set.{relation}.u32.{t}", "b32", t, t)
            yield make(f"set.{relation}.{plain}.{plain}", plain, plain, plain)
            yield make(f"set.{relation}.u16.{plain}", "u16", plain, plain)
            yield make(f"set.{relation}.u32.{plain}", "u32", plain, plain)
    yield make("setp.lt.ftz.f16", "pred", "f16", "f16")
    yield make("set.ge.ftz.f16x2.f16x2", "b32", "f16x2", "f16x2")
    for t in ("f32", "f64"):
        for relation in ("lt", "equ", "nan"):
            yield make(f"set.{relation}.u32.{t}", "u32", t, t)
            yield make(f"set.{relation}.f32.{t}", "f32", t, t)
        for combination in ("and", "or", "xor"):
            yield make(f"setp.gtu.{combination}.{t}", "pred", t, t, "pred")
            yield make(f"set.le.{combination}.s32.{t}", "s32", t, t, "pred")
    for relation in ("eq", "gt", "leu"):
        yield make(f"setp.{relation}.ftz.f32", "pred", "f32", "f32")
        yield make(f"set.{relation}.ftz.u32.f32", "u32", "f32", "f32")
    yield make("slct.f64.f32", "f64", "f64", "f64", "f32")
    yield make("slct.ftz.s32.f32", "s32", "s32", "s32", "f32")


def _conversions() -> Iterator[Case]:
    make = partial(elementwise, "half")
    for integer in ("u16", "s16", "u32", "s32", "u64", "s64"):
        yield make(f"cvt.rn.bf16.{integer}", "bf16", integer)
        yield make(f"cvt.rzi.{integer}.bf16", integer, "bf16")
    for integer, rounding in product(("s32", "u64"), ("rz", "rm", "rp")):
        yield make(f"cvt.{rounding}.bf16.{integer}", "bf16", integer)
        if rounding != "rz":
            yield make(f"cvt.{rounding}i.{integer}.bf16", integer, "bf16")
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        yield make(f"cvt.{rounding}.bf16.bf16", "bf16", "bf16")
    for source in ("f16", "f64"):
        for rounding in ("rn", "rz"):
            yield make(f"cvt.{rounding}.bf16.{source}", "bf16", source)
    yield make("cvt.rn.f16.bf16", "f16", "bf16")
    yield make("cvt.f64.bf16", "f64", "bf16")
    yield make("cvt.sat.f16.f16", "f16", "f16")
    yield make("cvt.sat.f64.f64", "f64", "f64")
    for rounding in ("rn", "rz"):
        for t in ("f16", "bf16"):
            yield make(f"cvt.{rounding}.satfinite.{t}.f32", t, "f32")
            yield make(f"cvt.{rounding}.satfinite.{t}x2.f32", f"{t}x2", "f32", "f32")
            yield make(f"cvt.{rounding}.relu.satfinite.{t}x2.f32", f"{t}x2", "f32", "f32")
        yield make(f"cvt.{rounding}.relu.f16.f32", "f16", "f32")
    yield make("cvt.rna.satfinite.tf32.f32", "tf32", "f32")
    yield make("cvt.rn.ftz.f16.f32", "f16", "f32")
    for integer in ("s32", "u32", "s64", "u16"):
        yield make(f"cvt.rpi.ftz.{integer}.f32", integer, "f32")
        yield make(f"cvt.rni.sat.{integer}.f32", integer, "f32")
        yield make(f"cvt.rn.sat.f32.{integer}", "f32", integer)
    for rounding in ("rni", "rpi"):
        yield make(f"cvt.{rounding}.ftz.f32.f32", "f32", "f32")
        yield make(f"cvt.{rounding}.ftz.sat.f32.f32", "f32", "f32")
    yield make("cvt.ftz.sat.f32.f32", "f32", "f32")
