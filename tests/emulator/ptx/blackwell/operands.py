"""Operands of tcgen05.mma laid out one element at a time, by the formulas of the PTX ISA's figures."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

SWIZZLE_CODES = {None: 0, "128B_atom_32B": 1, "128B": 2, "64B": 4, "32B": 6}
SPANS = {None: 16, "128B_atom_32B": 128, "128B": 128, "64B": 64, "32B": 32}
SIZES = {"f16": 2, "bf16": 2, "tf32": 4}
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "s8": np.int8,
    "u8": np.uint8,
}


def swizzle(address: int, mode: str | None) -> int:
    """The XOR of a shared address."""
    match mode:
        case "128B":
            return address ^ (address >> 3 & 0x70)
        case "64B":
            return address ^ (address >> 3 & 0x30)
        case "32B":
            return address ^ (address >> 3 & 0x10)
        case "128B_atom_32B":
            return address ^ (address >> 2 & 0x60)
    return address


def offset(row: int, k_byte: int, mode: str | None, leading: int, stride: int) -> int:
    """Byte of a K-major operand, before the swizzle."""
    if mode is None:
        return row % 8 * 16 + row // 8 * stride + k_byte // 16 * leading + k_byte % 16
    return row % 8 * SPANS[mode] + row // 8 * stride + k_byte


def offset_mn(row: int, k: int, size: int, mode: str | None, leading: int, stride: int) -> int:
    """Byte of an MN-major operand, before the swizzle."""
    if mode is None:
        per = 16 // size
        return row % per * size + row // per * stride + k % 8 * 16 + k // 8 * leading
    per = SPANS[mode] // size
    group = 4 if mode == "128B_atom_32B" else 8
    return row % per * size + row // per * leading + k % group * SPANS[mode] + k // group * stride


def descriptor(start: int, mode: str | None, leading: int, stride: int) -> int:
    """A shared-memory descriptor without its start address, which the kernel adds."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | SWIZZLE_CODES[mode] << 61


def codes(values: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.uint8]:
    """Bytes of each element: uint8[..., bytes]; narrow types in the low bits of one."""
    typed = np.ascontiguousarray(values.astype(TYPES[kind]))
    return typed.view(np.uint8).reshape(*values.shape, -1)


def place(
    image: npt.NDArray[np.uint8],
    base: int,
    start: int,
    values: npt.NDArray[np.float32],
    kind: str,
    where: Callable[[int, int], int],
    mode: str | None,
    *,
    packed: bool = False,
) -> None:
    """Write an operand ``values[row, k]`` into an image that lies at the shared address ``base``.

    ``where(row, position)`` gives the linear byte: the position is k for wide elements, and the byte for narrow ones,
    of which sixteen lie at the start of every sixteen bytes (or two a byte when packed).
    """
    data = codes(values, kind)
    rows, depth, size = data.shape
    for row in range(rows):
        if kind in ("e2m1", "e2m3", "e3m2"):
            stream = _narrow(data[row, :, 0], kind, packed)
            for byte, value in stream.items():
                image[swizzle(base + start + where(row, byte), mode) - base] = value
            continue
        for k in range(depth):
            first = swizzle(base + start + where(row, k), mode) - base
            image[first : first + size] = data[row, k]


def _narrow(elements: npt.NDArray[np.uint8], kind: str, packed: bool) -> dict[int, int]:
    """Bytes of a row of 4- or 6-bit elements, by position."""
    width = 4 if kind == "e2m1" else 6
    per_group = 32 if packed else 16
    stream: dict[int, int] = {}
    for group in range(len(elements) // per_group):
        bits = 0
        for index, element in enumerate(elements[group * per_group : (group + 1) * per_group]):
            bits |= int(element) << width * index
        for byte in range(width * per_group // 8):
            stream[16 * group + byte] = bits >> 8 * byte & 0xFF
    return stream
