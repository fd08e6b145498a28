"""cvt between every pair of types that sm_90 converts, with every rounding and saturation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.emulator.ptx.hardware.cases import Case, elementwise

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "f32", "f64")


def cases() -> Iterator[Case]:
    """Every conversion case."""
    make = partial(elementwise, "convert")
    for to in _INTEGERS:
        for source in _INTEGERS:
            if to != source:
                yield make(f"cvt.{to}.{source}", to, source)
                if int(to[1:]) <= int(source[1:]):
                    yield make(f"cvt.sat.{to}.{source}", to, source)
    for integer in _INTEGERS:
        for floating in _FLOATS:
            for rounding in ("rni", "rzi", "rmi", "rpi"):
                yield make(f"cvt.{rounding}.{integer}.{floating}", integer, floating)
            for rounding in ("rn", "rz", "rm", "rp"):
                yield make(f"cvt.{rounding}.{floating}.{integer}", floating, integer)
    for rounding in ("rn", "rz", "rm", "rp"):
        yield make(f"cvt.{rounding}.f32.f64", "f32", "f64")
        yield make(f"cvt.{rounding}.ftz.f32.f64", "f32", "f64")
        yield make(f"cvt.{rounding}.f16.f64", "f16", "f64")
        yield make(f"cvt.{rounding}.f16.f32", "f16", "f32")
    for rounding in ("rn", "rz"):
        for extra in ("", ".relu", ".satfinite"):
            if extra != ".satfinite":
                yield make(f"cvt.{rounding}{extra}.bf16.f32", "bf16", "f32")
                yield make(f"cvt.{rounding}{extra}.f16x2.f32", "f16x2", "f32", "f32")
                yield make(f"cvt.{rounding}{extra}.bf16x2.f32", "bf16x2", "f32", "f32")
                yield make(f"cvt.{rounding}{extra}.tf32.f32", "tf32", "f32")
    yield make("cvt.rna.tf32.f32", "tf32", "f32")
    for to in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            yield make(f"cvt.rn.satfinite{relu}.{to}.f32", to, "f32", "f32")
            yield make(f"cvt.rn.satfinite{relu}.{to}.f16x2", to, "f16x2")
            yield make(f"cvt.rn{relu}.f16x2.{to}", "f16x2", to)
    yield make("cvt.f32.f16", "f32", "f16")
    yield make("cvt.ftz.f32.f16", "f32", "f16")
    yield make("cvt.f64.f16", "f64", "f16")
    yield make("cvt.f64.f32", "f64", "f32")
    yield make("cvt.ftz.f64.f32", "f64", "f32")
    yield make("cvt.f32.bf16", "f32", "bf16")
    for floating in _FLOATS:
        for rounding in ("rni", "rzi", "rmi", "rpi"):
            yield make(f"cvt.{rounding}.{floating}.{floating}", floating, floating)
    for rounding in ("rni", "rzi"):
        yield make(f"cvt.{rounding}.sat.f32.f32", "f32", "f32")
    yield make("cvt.sat.f32.f32", "f32", "f32")
    yield make("cvt.rn.sat.f16.f32", "f16", "f32")
    yield make("cvt.rn.sat.f32.f64", "f32", "f64")
    yield make("cvt.pack.sat.s16.s32", "b32", "s32", "s32")
    yield make("cvt.pack.sat.u8.s32.b32", "b32", "s32", "s32", "b32")
