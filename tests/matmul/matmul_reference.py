"""The result that must come out, how far from it a kernel may be, and the comparison.

Everything is computed in float64 with operators alone, so that the arrays may be NumPy's or, where there is a GPU,
torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.matmul.matmul_case import Case
from tests.matmul.matmul_data import Inputs
from tilekit.dtypes import DType

Array = NDArray[Any]

CHUNKS = 16
"""Parts in which K is walked to bound what accumulating costs."""


class Mismatch(AssertionError):  # noqa: N818  the name says what happened
    """A result is not what it must be; says where."""


@dataclass(frozen=True)
class Expected:
    """The true result in float64, and how far each element may be from it (None: to the last bit)."""

    value: Array
    bound: Array | None
    dtype: DType


def expected_of(case: Case, inputs: Inputs, machine: Any) -> Expected:
    """Compute what `case` must give; `machine` says where (`wide` and `narrow`)."""
    a, b = (machine.wide(as_multiplied(operand)) for operand in (inputs.a, inputs.b))
    x, slack = machine.narrow(a @ b), np.zeros(())
    if not case.exact and case.data == "normal":
        promoted = case.kernel.accumulation == "promoted"
        slack = machine.narrow(accumulation_bound(a, b, bits=case.a_dtype.bits, promoted=promoted))
    if inputs.scale is not None:
        x, slack = x * inputs.scale, slack * abs(inputs.scale)
    for factors in (inputs.scale_a, inputs.scale_b):
        if factors is not None:
            x, slack = x * factors, slack * np.abs(factors)
    if inputs.bias is not None:
        x = x + inputs.bias.astype(np.float64)
    y = activate(x, case.kernel.activation)
    if case.out_dtype.bits == 8:
        most = float(ml_dtypes.finfo(case.out_dtype.numpy).max)
        y = np.clip(y, -most, most)
    if case.exact:
        return Expected(y, None, case.out_dtype)
    return Expected(y, _bound(case, x, y, slack), case.out_dtype)


def as_multiplied(operand: Array) -> Array:
    """What a tensor core sees of an operand: of f32 the upper 19 bits (PTX ISA, tf32)."""
    return (operand.view(np.uint32) & 0xFFFFE000).view(np.float32) if operand.dtype == np.float32 else operand


def accumulation_bound(a: Any, b: Any, *, bits: int, promoted: bool = False) -> Any:
    """How far the tensor core's sum may be from the true one, for each output element.

    A wgmma adds 16 products of 16-bit types (32 of 8-bit ones, 8 of tf32) and the accumulator at once. Each term is cut
    off at 2^-25 of the largest power of two among them (2^-13 for 8-bit types), and the sum at 23 bits (13). So an
    instruction errs by at most 17 2^-25 + 2^-23, or 33 2^-13 + 2^-13, of the largest number it meets, and that is at
    most the partial sum before it plus the magnitudes it adds. Promoted, the partial sum is one of 128 products, and
    one is added to the next in f32.
    """
    width = 256 // bits
    unit = 34 * 2.0**-13 if bits == 8 else (width + 1) * 2.0**-25 + 2.0**-23
    k = a.shape[-1]
    if promoted:
        total = bound = a[..., :0] @ b[..., :0, :]
        for first in range(0, k, 128):
            left, right = a[..., first : first + 128], b[..., first : first + 128, :]
            total = total + left @ right
            bound = bound + 4 * unit * (abs(left) @ abs(right)) + 2.0**-23 * abs(total)
        return bound
    chunk = max(1, -(-k // (CHUNKS * width))) * width
    partial = a[..., :0] @ b[..., :0, :]
    bound = abs(partial)
    for first in range(0, k, chunk):
        left, right = a[..., first : first + chunk], b[..., first : first + chunk, :]
        largest = abs(partial) + abs(left) @ abs(right)
        bound = bound + chunk // width * unit * largest
        partial = partial + left @ right
    return bound


def activate(x: Array, activation: str | None) -> Array:
    """The activation in float64, from its definition."""
    with np.errstate(over="ignore"):
        if activation == "relu":
            return np.maximum(x, 0)
        if activation == "gelu":
            return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        if activation == "silu":
            return x / (1 + np.exp(-x))
    return x


def _bound(case: Case, x: Array, y: Array, slack: Array) -> Array:
    """Error of the accumulator, of scale and bias, of the activation and of the final rounding, in that order.

    gelu and silu are nowhere steeper than 1.13. With a 16-bit output they are ``x/2 (1 + tanh)``, and tanh.approx errs
    by 2^-11 of its value. With an f32 output they are ``x g``, g the sigmoid of some z: ex2 and rcp err by 2 and 1
    units, z by a few units of its own, and g follows z by ``g (1 - g)``.
    """
    error = slack + 2.0**-23 * np.abs(x)
    if case.kernel.activation in ("gelu", "silu"):
        error = 1.13 * error
        if case.kernel.out == "f32":
            near = np.minimum(np.abs(x), 1e3)  # further out, g is 0 or 1
            z = near if case.kernel.activation == "silu" else 1.6 * near + 0.072 * near**3
            g = np.divide(y, x, out=np.full_like(y, 0.5), where=x != 0)
            error = error + 2.0**-21 * (np.abs(y) + np.abs(x) * g * (1 - g) * z) + 2.0**-126 * np.abs(x) + 2.0**-126
        else:
            error = error + 2.0**-11 * np.abs(x / 2) + 2.0**-22 * np.abs(x)
    narrow = case.kernel.out in ("f16", "e4m3", "e5m2")
    smallest = float(ml_dtypes.finfo(case.out_dtype.numpy).smallest_subnormal) if narrow else 0.0
    return error + case.out_dtype.epsilon / 2 * (np.abs(y) + error) + smallest


def compare(got: Array, expected: Expected) -> None:
    """Compare a result with what it must be.

    An exact result must have every bit of the rounded float64 product (f32 holds all of them first, so the rounding is
    one), but for the sign of a zero, which depends on the order of adding. Others must lie within their bound; NaN
    never does.

    Raises
    ------
    Mismatch
        With the number of wrong elements, where they lie, and the first of them.
    """
    wide = got.astype(np.float64)
    if expected.bound is None:
        target = expected.value.astype(np.float32).astype(expected.dtype.numpy)
        bits = np.dtype(f"u{expected.dtype.bytes}")
        zero = expected.dtype.numpy.type(0)
        wrong = (got + zero).view(bits) != (target + zero).view(bits)
        shown = target.astype(np.float64)
    else:
        wrong = ~(np.abs(wide - expected.value) <= expected.bound)
        shown = expected.value
    if not wrong.any():
        return
    places = np.argwhere(wrong)
    ranges = ", ".join(f"{low} to {high}" for low, high in zip(places.min(0), places.max(0), strict=True))
    first = [
        f"{tuple(map(int, p))}: {wide[tuple(p)]:g} for {shown[tuple(p)]:g}"
        + (f" +- {expected.bound[tuple(p)]:.3g}" if expected.bound is not None else "")
        for p in places[:6]
    ]
    raise Mismatch(
        f"{len(places)} of {got.size} elements are wrong, at indices {ranges} ({int(np.isnan(wide).sum())} NaN); "
        f"first: {'; '.join(first)}"
    )
