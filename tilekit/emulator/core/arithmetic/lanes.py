"""Arithmetic on lanes that NumPy has no single operation for; called by generated code.

Arguments are arrays of 32 lanes, or of as many as run together; functions that end in ``_int`` work on Python integers
(warp-uniform values, unsigned).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LANES = np.arange(32, dtype=np.uint32)
ONE_LANE: list[npt.NDArray[np.bool_]] = [np.equal(LANES, lane) for lane in range(32)]
"""Each lane alone, as a mask."""


def sized(warps: int) -> dict[str, Any]:
    """What generated code may name that depends on how many warps run together, by name.

    ``full_u8`` to ``full_u64`` and ``full_b1`` make arrays of one value; the rest are the special registers that tell
    lanes apart.
    """
    lanes = np.tile(LANES, warps)
    equal = np.uint32(1) << lanes
    less = equal - np.uint32(1)
    names: dict[str, Any] = {
        "LANES": lanes,
        "LANEMASK_EQ": equal,
        "LANEMASK_LT": less,
        "LANEMASK_LE": less | equal,
        "LANEMASK_GT": ~(less | equal),
        "LANEMASK_GE": ~less,
    }
    for name, dtype in (("u8", np.uint8), ("u16", np.uint16), ("u32", np.uint32), ("u64", np.uint64), ("b1", np.bool_)):
        names[f"full_{name}"] = _filling(lanes.size, np.dtype(dtype))
    return names


def _filling(lanes: int, dtype: np.dtype[Any]) -> Callable[[int | bool], Array]:
    """What makes an array of one value; quicker than ``np.full``."""
    empty = np.empty

    def fill(value: int | bool) -> Array:
        array = empty(lanes, dtype)
        array.fill(value)
        return array

    return fill


def active_bytes(lanes: Iterable[int]) -> bytes:
    """A byte a lane, 1 for those of `lanes`; ``np.isin`` takes fifty times as long."""
    active = bytearray(32)
    for lane in lanes:
        active[lane] = 1
    return bytes(active)


def signed8(value: int) -> int:
    """An unsigned byte as two's complement."""
    return value - 0x100 if value & 0x80 else value


def signed16(value: int) -> int:
    """An unsigned 16-bit pattern as two's complement."""
    return value - 0x10000 if value & 0x8000 else value


def signed32(value: int) -> int:
    """An unsigned 32-bit pattern as two's complement."""
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def signed64(value: int) -> int:
    """An unsigned 64-bit pattern as two's complement."""
    return value - (1 << 64) if value >> 63 else value


def truncating_divide_int(a: int, b: int, bits: int) -> int:
    """Quotient toward zero; division by zero gives all ones, as hardware does."""
    if b == 0:
        return (1 << bits) - 1
    quotient = abs(a) // abs(b)
    return (-quotient if (a < 0) != (b < 0) else quotient) & ((1 << bits) - 1)


def remainder_int(a: int, b: int, bits: int) -> int:
    """Remainder with the sign of the dividend; by zero, the dividend."""
    if b == 0:
        return a & ((1 << bits) - 1)
    remainder = abs(a) % abs(b)
    return (-remainder if a < 0 else remainder) & ((1 << bits) - 1)


def _of_one_type(a: Array | int, b: Array | int) -> tuple[Array, Array]:
    """Lanes of both, of which one may be a number that all lanes share: it has the other's type, not int64."""
    kind = a.dtype if isinstance(a, np.ndarray) else b.dtype if isinstance(b, np.ndarray) else None
    left, right = np.broadcast_arrays(np.asarray(a, kind), np.asarray(b, kind))
    return left, right


def divide(a: Array | int, b: Array | int) -> Array:
    """Integer quotient toward zero; all ones where the divisor is zero."""
    a, b = _of_one_type(a, b)
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = np.asarray(a // safe)
        inexact = (a - quotient * safe != 0) & ((a < 0) != (safe < 0))
        quotient = quotient + inexact.astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), quotient)


def remainder(a: Array | int, b: Array | int) -> Array:
    """Integer remainder with the dividend's sign; the dividend where the divisor is zero."""
    a, b = _of_one_type(a, b)
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b).astype(a.dtype)))


def multiply_high(a: Array, b: Array) -> Array:
    """Upper half of the double-width product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        upper: Array = (a.astype(wide) * b.astype(wide) >> bits).astype(a.dtype)
        return upper
    unsigned_a, unsigned_b = a.view(np.uint64), b.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = unsigned_a >> half, unsigned_a & low, unsigned_b >> half, unsigned_b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low)
    high = a_high * b_high + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, unsigned_b, np.uint64(0)) - np.where(b < 0, unsigned_a, np.uint64(0))
    result: Array = high.view(a.dtype)
    return result


def shift_left(a: Array, count: Array) -> Array:
    """Left shift; counts beyond the width give zero."""
    bits = a.dtype.itemsize * 8
    small = np.minimum(count, bits - 1).astype(a.dtype)
    return np.where(np.asarray(count) < bits, a << small, np.zeros_like(a))


def shift_right(a: Array, count: Array) -> Array:
    """Right shift, arithmetic for signed types; counts beyond the width give zero or the sign."""
    bits = a.dtype.itemsize * 8
    small = np.minimum(count, bits - 1).astype(a.dtype)
    if a.dtype.kind == "i":
        return np.asarray(a >> small)
    return np.where(np.asarray(count) < bits, a >> small, np.zeros_like(a))


def population_count(a: Array) -> Array:
    """Number of set bits, as u32."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """Number of zero bits above the highest set one, as u32."""
    bits = a.dtype.itemsize * 8
    smeared = a.copy()
    shift = 1
    while shift < bits:
        smeared |= smeared >> a.dtype.type(shift)
        shift *= 2
    return (bits - np.bitwise_count(smeared)).astype(np.uint32)


def find_highest(a: Array, shift_amount: bool) -> Array:
    """``bfind``: position of the highest bit unlike the sign, or all ones; as a shift amount, 31 minus it."""
    bits = a.dtype.itemsize * 8
    pattern = np.where(a < 0, ~a, a).view(f"u{a.dtype.itemsize}")
    zeros = leading_zeros(pattern)
    position = (bits - 1 - zeros) if not shift_amount else zeros
    return np.where(pattern == 0, 0xFFFFFFFF, position).astype(np.uint32)


def reverse_bits(a: Array) -> Array:
    """Bits in reverse order."""
    size = a.dtype.itemsize
    as_bytes = a.reshape(-1, 1).view(np.uint8)
    flipped = np.packbits(np.unpackbits(as_bytes, axis=1), axis=1, bitorder="little")
    return np.ascontiguousarray(flipped[:, ::-1]).view(f"u{size}").ravel()


def _field(value: Array, like: Array) -> Array:
    """A bit position or length: of 32-bit forms only the low byte counts, 64-bit forms take all of it."""
    number = np.broadcast_to(np.asarray(value, np.uint32), like.shape).astype(np.int64)
    return number & 0xFF if like.dtype.itemsize == 4 else np.minimum(number, 255)


def extract_bits(a: Array, position: Array, length: Array) -> Array:
    """``bfe``: a field, zero- or sign-extended by the array's type."""
    bits = a.dtype.itemsize * 8
    position, length = _field(position, a), _field(length, a)
    pattern = a.view(f"u{a.dtype.itemsize}")
    shifted = shift_right(pattern, position.astype(pattern.dtype))
    kept = np.minimum(length, np.maximum(bits - position, 0))
    ones = shift_left(np.ones_like(pattern), kept.astype(pattern.dtype)) - pattern.dtype.type(1)
    field: Array = shifted & ones
    if a.dtype.kind == "u":
        return field
    sign_at = np.minimum(position + length - 1, bits - 1)
    sign = (shift_right(pattern, sign_at.astype(pattern.dtype)) & pattern.dtype.type(1)).astype(bool) & (length > 0)
    fill = shift_left(np.full_like(pattern, ~pattern.dtype.type(0)), kept.astype(pattern.dtype))
    result: Array = np.where(sign, field | fill, field).view(a.dtype)
    return result


def insert_bits(source: Array, into: Array, position: Array, length: Array) -> Array:
    """``bfi``: the low bits of ``source`` replace a field of ``into``."""
    position, length = _field(position, into).astype(into.dtype), _field(length, into).astype(into.dtype)
    ones = shift_left(np.ones_like(into), length) - into.dtype.type(1)
    field = shift_left(ones, position)
    return (into & ~field) | (shift_left(source, position) & field)


def look_up_3(a: Array, b: Array, c: Array, table: int) -> Array:
    """``lop3``: any function of three bits."""
    result = np.zeros_like(a)
    for index in range(8):
        if table >> index & 1:
            term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
            result = result | term
    return result


def permute_bytes(a: Array, b: Array, selector: Array, mode: str) -> Array:
    """``prmt``: four bytes of eight, by a selector of nibbles or a mode."""
    pair = np.empty((a.size, 8), np.uint8)
    pair[:, :4] = np.ascontiguousarray(a).view(np.uint8).reshape(-1, 4)
    pair[:, 4:] = np.ascontiguousarray(b).view(np.uint8).reshape(-1, 4)
    selector = np.broadcast_to(np.asarray(selector, np.uint32), a.shape)
    low = (selector & np.uint32(3)).astype(np.int64)[:, None]
    steps = np.arange(4)
    if mode == "":
        nibbles = (selector[:, None] >> (4 * steps).astype(np.uint32)) & np.uint32(15)
        index = (nibbles & np.uint32(7)).astype(np.int64)
        chosen = np.take_along_axis(pair, index, 1)
        signs = np.where(chosen & np.uint8(0x80), np.uint8(0xFF), np.uint8(0))
        chosen = np.where(nibbles & np.uint32(8), signs, chosen).astype(np.uint8)
    else:
        index = {
            "f4e": low + steps,
            "b4e": (low - steps) % 8,
            "rc8": low + 0 * steps,
            "ecl": np.maximum(low, steps),
            "ecr": np.minimum(low, steps),
            "rc16": (low & 1) * 2 + steps % 2,
        }[mode]
        chosen = np.take_along_axis(pair, index, 1)
    return np.ascontiguousarray(chosen).view(np.uint32).ravel()


def funnel_shift(low: Array, high: Array, count: Array, left: bool, wrap: bool) -> Array:
    """``shf``: 32 bits of a 64-bit value, shifted left or right."""
    count = np.broadcast_to(np.asarray(count, np.uint32), low.shape)
    amount = (count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))).astype(np.uint64)
    pair = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    if left:
        return (pair << amount >> np.uint64(32)).astype(np.uint32)
    return (pair >> amount).astype(np.uint32)


def ballot(predicate: Array) -> int:
    """The lanes where a predicate holds, as an integer."""
    return int.from_bytes(np.packbits(predicate, bitorder="little").tobytes(), "little")


def lane_mask(bits: int) -> npt.NDArray[np.bool_]:
    """The lanes of an integer, as booleans."""
    return np.unpackbits(np.frombuffer((bits & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8), bitorder="little").view(
        bool
    )
