"""Directed rounding, exactly: the nearest result is corrected by the sign of its error.

For float32 the error is found in float64, where products of two operands are exact and sums leave a remainder that is
known. For float64 each lane is computed with rational numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def nudge(nearest: Array, error: Array, rounding: str) -> Array:
    """The neighbour that a direction asks for, given the sign of ``exact - nearest``."""
    toward: Array
    if rounding == "rz":
        wrong = error * np.sign(nearest) < 0
        toward = np.zeros_like(nearest)
    elif rounding == "rm":
        wrong = error < 0
        toward = np.full_like(nearest, -np.inf)
    elif rounding == "rp":
        wrong = error > 0
        toward = np.full_like(nearest, np.inf)
    else:
        return nearest
    return np.where(wrong, np.nextafter(nearest, toward), nearest)


def _sum32(a: Array, b: Array, rounding: str) -> Array:
    """Sum of two float64 arrays as float32; neither the sum nor its remainder is lost."""
    total = a + b
    virtual = total - a
    remainder = (a - (total - virtual)) + (b - virtual)
    nearest = total.astype(np.float32)
    difference = total - nearest
    result = nudge(nearest, np.where(difference != 0, np.sign(difference), np.sign(remainder)), rounding)
    if rounding == "rm":  # An exact zero is negative, unless both terms are positive zeros.
        plus = (a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b)
        result = np.where((total == 0) & (remainder == 0) & ~plus, np.float32(-0.0), result)
    return result


def arithmetic32(operation: str, a: Array, b: Array, rounding: str) -> Array:
    """``add``, ``sub``, ``mul``, ``div`` of float32 in a direction."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if operation == "add":
        return _sum32(a, b, rounding)
    if operation == "sub":
        return _sum32(a, -b, rounding)
    if operation == "mul":
        product = a * b
        nearest = product.astype(np.float32)
        return nudge(nearest, np.nan_to_num(np.sign(product - nearest)), rounding)
    nearest = (a / b).astype(np.float32)
    error = np.sign(a - nearest.astype(np.float64) * b) * np.sign(b)
    return nudge(nearest, np.nan_to_num(error), rounding)


def multiply_add32(a: Array, b: Array, c: Array, rounding: str) -> Array:
    """``fma`` of float32 in a direction."""
    return _sum32(a.astype(np.float64) * b, c.astype(np.float64), rounding)


def root32(a: Array, rounding: str) -> Array:
    """``sqrt`` of float32 in a direction."""
    wide = a.astype(np.float64)
    nearest = np.sqrt(wide).astype(np.float32)
    return nudge(nearest, np.nan_to_num(np.sign(wide - nearest.astype(np.float64) ** 2)), rounding)


def arithmetic64(operation: str, rounding: str, *operands: Array) -> Array:
    """``add``, ``sub``, ``mul``, ``div``, ``fma``, ``sqrt`` of float64 in a direction, lane by lane."""
    nearest = _nearest64(operation, operands)
    error = np.zeros(nearest.shape)
    for lane in range(nearest.size):
        values = [float(operand[lane]) for operand in operands]
        if not all(map(math.isfinite, values)) or math.isnan(nearest[lane]):
            continue
        exact = _exact(operation, [Fraction(value) for value in values])
        if exact is None:
            continue
        error[lane], nearest[lane] = _compare(operation, exact, float(nearest[lane]))
        if exact == 0 and operation in ("add", "sub", "fma"):
            nearest[lane] = _zero(operation, values, rounding)
    return nudge(nearest, error, rounding)


def _nearest64(operation: str, operands: tuple[Array, ...]) -> Array:
    if operation == "sqrt":
        return np.sqrt(operands[0])
    if operation == "fma":
        a, b, c = operands
        return np.asarray(a * b + c)
    a, b = operands
    result: Array = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[operation](a, b)
    return result


def _exact(operation: str, values: list[Fraction]) -> Fraction | None:
    """The exact result; for ``sqrt`` the argument, compared with the square of the nearest root."""
    match operation:
        case "add":
            return values[0] + values[1]
        case "sub":
            return values[0] - values[1]
        case "mul":
            return values[0] * values[1]
        case "div":
            return values[0] / values[1] if values[1] else None
        case "fma":
            return values[0] * values[1] + values[2]
    return values[0]


def _compare(operation: str, exact: Fraction, nearest: float) -> tuple[int, float]:
    """Sign of the error of the nearest float64, and that float64."""
    if operation != "sqrt":
        nearest = to_float64(exact, nearest)
    if math.isinf(nearest):
        return (-1 if nearest > 0 else 1), nearest
    got = Fraction(nearest) ** 2 if operation == "sqrt" else Fraction(nearest)
    return (exact > got) - (exact < got), nearest


def to_float64(exact: Fraction, like: float) -> float:
    """A fraction as the nearest float64; an infinity or a zero takes the sign of ``like``."""
    try:
        result = exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    return math.copysign(0.0, like) if result == 0 else result


def _zero(operation: str, values: list[float], rounding: str) -> float:
    """The zero that a sum which cancels exactly gives."""
    if operation == "fma":
        first, second = math.copysign(1.0, values[0]) * math.copysign(1.0, values[1]), math.copysign(1.0, values[2])
        both_zero = values[0] * values[1] == 0 and values[2] == 0
    else:
        first = math.copysign(1.0, values[0])
        second = math.copysign(1.0, values[1]) * (-1 if operation == "sub" else 1)
        both_zero = values[0] == 0 and values[1] == 0
    if both_zero and first == second:
        return math.copysign(0.0, first)
    return -0.0 if rounding == "rm" else 0.0


def integers(values: Array, bits: int, rounding: str) -> Array:
    """64-bit integers as float32 or float64 in a direction."""
    dtype = np.float32 if bits == 32 else np.float64
    nearest = values.astype(dtype)
    error = np.array([(int(v) > int(n)) - (int(v) < int(n)) for v, n in zip(values, nearest, strict=True)], np.float64)
    return nudge(nearest, error, rounding)
