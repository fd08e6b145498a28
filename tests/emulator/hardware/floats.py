"""Floating-point arithmetic: every rounding, saturation and flush; approximations to their documented bound."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.emulator.hardware.cases import Case, elementwise


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
    # Bounds as the PTX ISA states them; beside them the absolute error where the ISA bounds that.
    for flush in ("", ".ftz"):
        yield make(f"ex2.approx{flush}.f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-125))
        yield make(f"lg2.approx{flush}.f32", "f32", "f32", tolerance=("f32", 2.0**-21, 2.0**-21))
        yield make(f"rcp.approx{flush}.f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-125))
        yield make(f"sqrt.approx{flush}.f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-125))
        yield make(f"rsqrt.approx{flush}.f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-125))
        yield make(
            f"div.approx{flush}.f32", "f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-124), clean=_near_one
        )
        yield make(f"div.full{flush}.f32", "f32", "f32", "f32", tolerance=("f32", 2.0**-22, 2.0**-124), clean=_near_one)
        yield make(f"sin.approx{flush}.f32", "f32", "f32", tolerance=("f32", 0.0, 2.0**-20), clean=_angle)
        yield make(f"cos.approx{flush}.f32", "f32", "f32", tolerance=("f32", 0.0, 2.0**-20), clean=_angle)
    yield make("tanh.approx.f32", "f32", "f32", tolerance=("f32", 2.0**-10.987, 2.0**-133))
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        bits = 2.0**-10 if t.startswith("f16") else 2.0**-7
        plain = t.removesuffix("x2")
        yield make(f"tanh.approx.{t}", t, t, tolerance=(plain, 2 * bits, 2.0**-23))
    for t in ("f16", "f16x2"):
        yield make(f"ex2.approx.{t}", t, t, tolerance=("f16", 2.0**-9.5, 2.0**-23))
    for t in ("bf16", "bf16x2"):
        yield make(f"ex2.approx.ftz.{t}", t, t, tolerance=("bf16", 2.0**-7, 2.0**-125))


def _near_one(*arrays):  # type: ignore[no-untyped-def]
    """Exponents between -60 and 60, where the bounds of approximate division hold."""
    import numpy as np

    for array in arrays:
        exponent = (array >> 23 & 0xFF) % 120 + 67
        yield (array & 0x807FFFFF | exponent << 23).astype(np.uint32)


def _angle(array):  # type: ignore[no-untyped-def]
    """Angles within [-pi, pi]."""
    import numpy as np

    yield (array.astype(np.float64) / 2**32 * 2 * np.pi - np.pi).astype(np.float32).view(np.uint32)
