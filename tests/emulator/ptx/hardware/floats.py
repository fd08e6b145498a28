"""Floating-point arithmetic: every rounding, saturation and flush; approximations to their documented bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tests.emulator.ptx.hardware.bounds import BOUNDS
from tests.emulator.ptx.hardware.cases import CORNERS, Case, elementwise


def cases() -> Iterator[Case]:
    """Every floating-point case."""
    make = partial(elementwise, "float")
    for rounding in ("rn", "rz", "rm", "rp"):
        for flush in ("", ".ftz"):
            for op in ("add", "sub", "mul"):
                yield make(f"{op}.{rounding}{flush}.f32", "f32", "f32", "f32")
            yield make(f"fma.{rounding}{flush}.f32", "f32", "f32", "f32", "f32")
            yield make(f"div.{rounding}{flush}.f32", "f32", "f32", "f32")
            yield make(f"rcp.{rounding}{flush}.f32", "f32", "f32")
            yield make(f"sqrt.{rounding}{flush}.f32", "f32", "f32")
        for op in ("add", "sub", "mul", "div"):
            yield make(f"{op}.{rounding}.f64", "f64", "f64", "f64")
        yield make(f"fma.{rounding}.f64", "f64", "f64", "f64", "f64")
        yield make(f"rcp.{rounding}.f64", "f64", "f64")
        yield make(f"sqrt.{rounding}.f64", "f64", "f64")
    for op in ("add", "sub", "mul"):
        yield make(f"{op}.sat.f32", "f32", "f32", "f32")
        yield make(f"{op}.ftz.sat.f32", "f32", "f32", "f32")
    yield make("fma.rn.sat.f32", "f32", "f32", "f32", "f32")
    for t in ("f32", "f64"):
        for op in ("min", "max"):
            yield make(f"{op}.{t}", t, t, t)
        yield make(f"abs.{t}", t, t)
        yield make(f"neg.{t}", t, t)
        yield make(f"copysign.{t}", t, t, t)
        for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield make(f"testp.{what}.{t}", "pred", t)
    for op in ("min", "max"):
        for extra in (".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
            yield make(f"{op}{extra}.f32", "f32", "f32", "f32")
    yield make("abs.ftz.f32", "f32", "f32")
    yield make("neg.ftz.f32", "f32", "f32")
    for t in ("f16", "bf16", "f16x2", "bf16x2"):
        for op in ("add", "sub", "mul"):
            yield make(f"{op}.rn.{t}", t, t, t)
        yield make(f"fma.rn.{t}", t, t, t, t)
        yield make(f"fma.rn.relu.{t}", t, t, t, t)
        for op in ("min", "max"):
            yield make(f"{op}.{t}", t, t, t)
            yield make(f"{op}.NaN.{t}", t, t, t)
            yield make(f"{op}.xorsign.abs.{t}", t, t, t)
        yield make(f"abs.{t}", t, t)
        yield make(f"neg.{t}", t, t)
    for t in ("f16", "f16x2"):
        for op in ("add", "sub", "mul"):
            yield make(f"{op}.sat.{t}", t, t, t)
            yield make(f"{op}.ftz.{t}", t, t, t)
        yield make(f"fma.rn.sat.{t}", t, t, t, t)
        yield make(f"fma.rn.ftz.{t}", t, t, t, t)
    for relation in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        for t in ("f32", "f64", "f16", "bf16"):
            yield make(f"setp.{relation}.{t}", "pred", t, t)
    yield make("setp.lt.ftz.f32", "pred", "f32", "f32")
    yield make("slct.f32.f32", "f32", "f32", "f32", "f32")
    yield make("selp.f32", "f32", "f32", "f32", "pred")
    for t in ("f16", "bf16", "f16x2", "f32", "f64"):
        yield make(f"fma.rn.{t}", t, t, t, t, label=f"fma.rn.{t} of special values", clean=_corners(t))
    for rounding in ("rz", "rm", "rp"):
        for t in ("f32", "f64"):
            name = f"fma.{rounding}.{t}"
            yield make(name, t, t, t, t, label=f"{name} of special values", clean=_corners(t))
    yield make("selp.f64", "f64", "f64", "f64", "pred")
    for instruction, bound in BOUNDS.items():
        t = instruction.rsplit(".", 1)[1]
        operands = [t] * (2 if instruction.startswith("div") else 1)
        clean = _near_one if len(operands) == 2 else _angle if instruction[:3] in ("sin", "cos") else None
        yield make(instruction, t, *operands, tolerance=bound.tolerance, clean=clean)


def _corners(kind: str) -> Callable[..., Iterator[np.ndarray]]:
    """Operands that are corner values, all of them, in random combinations."""

    def choose(*arrays: np.ndarray) -> Iterator[np.ndarray]:
        table = np.array(CORNERS[kind], np.uint64)
        for array in arrays:
            yield table[array % len(table)].astype(array.dtype)

    return choose


def _near_one(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    """Exponents between -60 and 60, where the bounds of approximate division hold."""
    for array in arrays:
        exponent = (array >> 23 & 0xFF) % 120 + 67
        yield (array & 0x807FFFFF | exponent << 23).astype(np.uint32)


def _angle(array: np.ndarray) -> Iterator[np.ndarray]:
    """Angles within [-pi, pi]."""
    yield (array.astype(np.float64) / 2**32 * 2 * np.pi - np.pi).astype(np.float32).view(np.uint32)
