"""Integer operations of vector instructions, over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
u1, u2, u4, u8 = np.uint8, np.uint16, np.uint32, np.uint64
i1, i2, i4, i8 = np.int8, np.int16, np.int32, np.int64
f2, f4, f8 = np.float16, np.float32, np.float64


def v32(value: Any) -> Any:
    """A 32-bit scalar as vector instructions take it."""
    return u4(value) if type(value) is int else value.astype(u4)


def v64(value: Any) -> Any:
    """A 64-bit scalar as vector instructions take it."""
    if type(value) is int:
        return u8(value)
    if value.dtype == np.bool_:
        return np.packbits(np.ascontiguousarray(value), axis=1, bitorder="little").view(u8)
    return value


def pair(low: Array, high: Array) -> Any:
    """Two registers as one of 64 bits."""
    return low | high.astype(u8) << u8(32)


def spread(mask: Any, waves: int) -> Any:
    """A truth for every lane."""
    return mask if getattr(mask, "shape", ()) == (waves, 64) else np.broadcast_to(mask, (waves, 64)).copy()


def sign_extend(value: Any, size: int) -> Any:
    """Spread the sign bit of the low bits."""
    sign = u4(1 << (size - 1))
    return (value ^ sign) - sign


_PLACES = {f"BYTE_{n}": (8 * n, 0xFF) for n in range(4)} | {f"WORD_{n}": (16 * n, 0xFFFF) for n in range(2)}


def insert(value: Any, old: Array, selection: str, unused: str) -> Any:
    """Write part of a register, as SDWA's ``dst_sel`` and ``dst_unused`` say."""
    shift, low = _PLACES[selection]
    part = (value & u4(low)) << u4(shift)
    if unused == "UNUSED_PRESERVE":
        return old & u4(0xFFFFFFFF ^ (low << shift)) | part
    if unused == "UNUSED_SEXT":
        return sign_extend(value & u4(low), 8 if low == 0xFF else 16) << u4(shift)
    return part


def multiply_high_u32(a: Any, b: Any) -> Any:
    """Upper half of an unsigned product."""
    return (np.asarray(a, u8) * np.asarray(b, u8) >> u8(32)).astype(u4)


def multiply_high_i32(a: Any, b: Any) -> Any:
    """Upper half of a signed product."""
    return (np.asarray(a, i8) * np.asarray(b, i8) >> i8(32)).astype(i4)


def low24(a: Any) -> Any:
    """The low 24 bits."""
    return a & u4(0xFFFFFF)


def low24_signed(a: Any) -> Any:
    """The low 24 bits, sign extended."""
    return sign_extend(a & u4(0xFFFFFF), 24).view(i4)


def extract_u32(value: Any, offset: Any, width: Any) -> Any:
    """``v_bfe_u32``."""
    offset, width = offset & u4(31), width & u4(31)
    return (value >> offset) & ((u4(1) << width) - u4(1))


def extract_i32(value: Any, offset: Any, width: Any) -> Any:
    """``v_bfe_i32``."""
    width = width & u4(31)
    field = extract_u32(value, offset, width)
    sign = np.where(width > 0, u4(1) << (np.maximum(width, u4(1)) - u4(1)), u4(0)).astype(u4)
    return (field ^ sign) - sign


def field_mask(width: Any, offset: Any) -> Any:
    """``v_bfm_b32``."""
    return ((u4(1) << (width & u4(31))) - u4(1)) << (offset & u4(31))


def reverse(value: Any) -> Any:
    """Bits in the opposite order."""
    x = np.asarray(value, u4)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = (x >> u4(shift)) & u4(mask) | (x & u4(mask)) << u4(shift)
    return x >> u4(16) | x << u4(16)


def count_bits(value: Any) -> Any:
    """How many bits are set."""
    return np.bitwise_count(np.asarray(value, u4)).astype(u4)


def first_high(value: Any) -> Any:
    """Zeros above the highest bit that is set; all ones where none is."""
    x = np.asarray(value, u4)
    _, exponent = np.frexp(x.astype(f8))
    return np.where(x == 0, u4(0xFFFFFFFF), (32 - exponent).astype(u4))


def first_low(value: Any) -> Any:
    """Number of the lowest bit that is set; all ones where none is."""
    x = np.asarray(value, u4)
    _, exponent = np.frexp((x & (~x + u4(1))).astype(f8))
    return np.where(x == 0, u4(0xFFFFFFFF), (exponent - 1).astype(u4))


def first_sign(value: Any) -> Any:
    """Bits at the top that equal the sign; all ones where all do."""
    x = np.asarray(value, i4)
    other = np.where(x < 0, ~x, x).view(u4)
    return np.where(other == 0, u4(0xFFFFFFFF), first_high(other))


def align_bits(high: Any, low: Any, shift: Any) -> Any:
    """``v_alignbit_b32``."""
    return (pair(np.asarray(low, u4), np.asarray(high, u4)) >> (shift & u4(31)).astype(u8)).astype(u4)


def align_bytes(high: Any, low: Any, shift: Any) -> Any:
    """``v_alignbyte_b32``."""
    return (pair(np.asarray(low, u4), np.asarray(high, u4)) >> ((shift & u4(3)) * u4(8)).astype(u8)).astype(u4)


def permute_bytes(high: Any, low: Any, selector: Any) -> Any:
    """``v_perm_b32``: each byte of the selector names a byte of eight, a sign, or a constant."""
    if np.ndim(selector) == 0 or np.size(selector) == 1:
        return _permute_alike(high, low, int(np.asarray(selector).flat[0]))
    both = pair(np.asarray(low, u4), np.asarray(high, u4))
    result: Any = u4(0)
    for place in range(4):
        chosen = (selector >> u4(8 * place)) & u4(0xFF)
        byte = (both >> (np.minimum(chosen, u4(7)) * u4(8)).astype(u8)).astype(u4) & u4(0xFF)
        sign_place = (np.clip(chosen, 8, 11).astype(u8) - u8(8)) * u8(16) + u8(15)
        sign = np.where((both >> sign_place) & u8(1) == 1, u4(0xFF), u4(0)).astype(u4)
        byte = np.where(chosen < 8, byte, np.where(chosen < 12, sign, np.where(chosen == 12, u4(0), u4(0xFF))))
        result = result | byte.astype(u4) << u4(8 * place)
    return result


def _permute_alike(high: Any, low: Any, selector: int) -> Any:
    """The same where all lanes have one selector."""
    words = (np.asarray(low, u4), np.asarray(high, u4))
    part: Any
    result: Any = None
    for place in range(4):
        chosen = selector >> (8 * place) & 0xFF
        if chosen < 8:
            shift = 8 * (chosen % 4 - place)
            part = words[chosen // 4] & u4(0xFF << (8 * (chosen % 4)))
            part = part >> u4(shift) if shift >= 0 else part << u4(-shift)
        elif chosen < 12:
            sign = words[(chosen - 8) // 2] >> u4(16 * (chosen % 2) + 15) & u4(1)
            part = sign * u4(0xFF << (8 * place))
        else:
            part = u4(0 if chosen == 12 else 0xFF << (8 * place))
        result = part if result is None else result | part
    return np.asarray(result, u4)


def look_up_3(a: Any, b: Any, c: Any, table: int) -> Any:
    """``v_bitop3``: any function of three bits."""
    ones: Any = u4(0xFFFFFFFF)
    result: Any = u4(0)
    for entry in range(8):
        if table >> entry & 1:
            term = (a if entry & 4 else a ^ ones) & (b if entry & 2 else b ^ ones) & (c if entry & 1 else c ^ ones)
            result = result | term
    return result


def held(value: Any, least: int, most: int) -> Any:
    """A wide result held between two bounds."""
    return np.clip(value, least, most)
