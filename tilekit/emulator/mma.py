"""Warp-level matrices: ``mma.sync`` with its fragments, ``ldmatrix`` and ``stmatrix``.

Operands are decoded exactly and multiplied by one matrix product in float32, so results agree with the hardware bit
for bit wherever every partial sum is exact, and to rounding otherwise; the hardware's own arithmetic is there on
request, see `tensor_core`. Integers and f64 are always the hardware's.
See PTX ISA, "Matrix multiply-accumulate operation using mma instruction", ``ldmatrix`` and ``stmatrix``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.floating import clean, multiply_add_wide
from tilekit.emulator.formats import decode, encode
from tilekit.emulator.tensor_core import multiply_add

__all__ = ["Mma", "load_matrices", "matrices_from_registers", "matrices_to_registers", "multiply_accumulate"]

Registers: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

_SIZES = {"f64": 8, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_SHAPES = {
    "f64": ((8, 4), (16, 4), (16, 8), (16, 16)),
    "tf32": ((16, 4), (16, 8)),
    "bf16": ((16, 8), (16, 16)),
    "f16": ((16, 8), (16, 16)),
    "e4m3": ((16, 16), (16, 32)),
    "e5m2": ((16, 16), (16, 32)),
    "s8": ((8, 16), (16, 16), (16, 32)),
    "u8": ((8, 16), (16, 16), (16, 32)),
}
_ACCUMULATORS = {
    "f64": ("f64",),
    "tf32": ("f32",),
    "bf16": ("f32",),
    "f16": ("f32", "f16"),
    "e4m3": ("f32", "f16"),
    "e5m2": ("f32", "f16"),
    "s8": ("s32",),
    "u8": ("s32",),
}
_MIXED = ({"e4m3", "e5m2"}, {"s8", "u8"})


@dataclass(frozen=True)
class Mma:
    """One form of ``mma.sync.aligned.m<m>n8k<k>.row.col``.

    Attributes
    ----------
    m, k
        Shape; n is always 8.
    a_type, b_type
        f64, tf32, bf16, f16, e4m3, e5m2, s8 or u8. e4m3 and e5m2 mix, s8 and u8 mix.
    c_type
        Type of C and D: f64, f32, f16 or s32.
    saturate
        ``.satfinite``; integers only.
    """

    m: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    saturate: bool = False

    def __post_init__(self) -> None:
        for name, given in (("a_type", self.a_type), ("b_type", self.b_type)):
            if given not in _SIZES:
                raise ValueError(f"{name} = {given!r}: must be one of {', '.join(_SIZES)}")
        partners: set[str] = next((mixed for mixed in _MIXED if self.a_type in mixed), {self.a_type})
        if self.b_type not in partners:
            raise ValueError(f"b_type = {self.b_type!r}: {self.a_type} goes with {' or '.join(sorted(partners))}")
        if (self.m, self.k) not in _SHAPES[self.a_type]:
            legal = ", ".join(f"m{m}n8k{k}" for m, k in _SHAPES[self.a_type])
            raise ValueError(f"m, k = {self.m}, {self.k}: the shapes of {self.a_type} are {legal}")
        if self.c_type not in _ACCUMULATORS[self.a_type]:
            legal = " or ".join(_ACCUMULATORS[self.a_type])
            raise ValueError(f"c_type = {self.c_type!r}: {self.a_type} accumulates in {legal}")
        if self.saturate and self.c_type != "s32":
            raise ValueError(f"saturate = True: {self.a_type} has no .satfinite (False)")

    @cached_property
    def a_registers(self) -> int:
        """Registers of A a lane (32 bits each; 64 for f64)."""
        return self.m * self.k // 32 // self._each

    @cached_property
    def b_registers(self) -> int:
        """Registers of B a lane."""
        return 8 * self.k // 32 // self._each

    @cached_property
    def c_registers(self) -> int:
        """Registers of C or D a lane."""
        return self.m // 8 if self.c_type == "f16" else self.m // 4

    @cached_property
    def _each(self) -> int:
        """Elements in a register."""
        return max(4 // _SIZES[self.a_type], 1)


def multiply_accumulate(op: Mma, a: Registers, b: Registers, c: Registers, *, exact: bool = False) -> Registers:
    """Return the registers of ``D = A * B + C``.

    Parameters
    ----------
    op
        Instruction form.
    a, b, c : uint32 (uint64 for f64)[op.a_registers | op.b_registers | op.c_registers, 32]
        Fragments: one row a register, one column a lane.
    exact
        Round as Hopper's tensor core does: slow. It makes no difference to f64 and integers.

    Returns
    -------
    d : as ``c``, a new array
    """
    halves = op.m // 8
    # Register j * halves + h of lane 4g + t holds row 8h + g; its elements are k = (4j + t) * e ... + e - 1.
    rows = a.reshape(-1, halves, 8, 4).transpose(1, 2, 0, 3)
    columns = b.reshape(-1, 8, 4).transpose(1, 0, 2)
    left, right = _values(rows, op.a_type).reshape(op.m, op.k), _values(columns, op.b_type).reshape(8, op.k).T
    if exact and op.c_type in ("f32", "f16"):
        return _multiply_exactly(op, left, right, c)
    if op.c_type == "f64":
        return _multiply_wide(op, left, right, c)
    product = left @ right
    # Row 8h + g and column 2t + p of the accumulator live in register 2h + p, or in half p of register h.
    fragment = product.reshape(halves, 8, 4, 2)
    if op.c_type == "f16":
        total = fragment.reshape(halves, 32, 2) + decode(c.view(np.uint16).reshape(halves, 32, 2), "f16")
        return encode(total, "f16").view(np.uint32).reshape(halves, 32)
    fragment = fragment.transpose(0, 3, 1, 2).reshape(2 * halves, 32)
    if op.c_type == "s32":
        total = fragment.astype(np.int64) + c.view(np.int32)
        if op.saturate:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return np.asarray(total, np.int64).astype(np.int32).view(np.uint32)
    return np.asarray(fragment + c.view(np.float32), np.float32).view(np.uint32)


def _multiply_wide(op: Mma, a: npt.NDArray[Any], b: npt.NDArray[Any], c: Registers) -> Registers:
    """Products of f64: one fused multiply-add after the other, in the order of k."""
    halves = op.m // 8
    total = c.view(np.float64).reshape(halves, 2, 8, 4).transpose(0, 2, 3, 1).reshape(-1)
    for k in range(op.k):
        total = multiply_add_wide(np.repeat(a[:, k], 8), np.tile(b[k], op.m), total)
    fragment = total.reshape(halves, 8, 4, 2).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(fragment).view(np.uint64).reshape(2 * halves, 32)


def _multiply_exactly(op: Mma, a: npt.NDArray[Any], b: npt.NDArray[Any], c: Registers) -> Registers:
    """Products of floats as Hopper rounds them.

    Its ``mma.sync`` has no fp8: ptxas widens both operands to f16, multiplies the first two elements of every four
    along k, then the other two on top, and adds C last.
    """
    halves = op.m // 8
    if op.c_type == "f16":
        start = decode(c.view(np.uint16), "f16").reshape(halves, 8, 4, 2).reshape(op.m, 8)
    else:
        start = c.view(np.float32).reshape(halves, 2, 8, 4).transpose(0, 2, 3, 1).reshape(op.m, 8)

    def step(left: npt.NDArray[Any], right: npt.NDArray[Any], onto: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kind = op.a_type if op.a_type in ("bf16", "tf32") else "f16"
        total = multiply_add(left, right, onto, kind, kind, to_f16=op.c_type == "f16")
        return decode(encode(total, "f16"), "f16") if op.c_type == "f16" else total

    if op.a_type in ("e4m3", "e5m2"):
        fours, rows = a.reshape(op.m, -1, 4), b.reshape(-1, 4, 8)
        total = np.zeros_like(start)
        for pair in (slice(0, 2), slice(2, 4)):
            total = step(fours[:, :, pair].reshape(op.m, -1), rows[:, pair].reshape(-1, 8), total)
        total = clean(total + start)
    else:
        total = step(a, b, start)
    if op.c_type == "f16":
        return encode(total, "f16").view(np.uint32).reshape(halves, 32)
    fragment = total.astype(np.float32).reshape(halves, 8, 4, 2).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(fragment).view(np.uint32).reshape(2 * halves, 32)


def load_matrices(shared: npt.NDArray[np.uint8], addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the 16-byte rows at shared addresses, as ``ldmatrix`` fetches them.

    Parameters
    ----------
    shared : uint8[bytes]
        The CTA's shared memory, a multiple of 16 bytes.
    addresses : int64[8 * count]
        Addresses that the first 8, 16 or 32 lanes supply: multiples of 16.

    Returns
    -------
    rows : uint8[8 * count, 16]
    """
    if (addresses & 15).any():
        lane = int(np.flatnonzero(addresses & 15)[0])
        raise ValueError(f"addresses[{lane}] = {int(addresses[lane]):#x}: must be a multiple of 16")
    return shared.view(_ROW).take(addresses >> 4).view(np.uint8).reshape(-1, 16)


def matrices_to_registers(rows: npt.NDArray[np.uint8], transposed: bool = False) -> npt.NDArray[np.uint32]:
    """Return the registers in which ``ldmatrix .m8n8 .b16`` leaves matrices.

    Parameters
    ----------
    rows : uint8[8 * count, 16]
        The rows of 1, 2 or 4 matrices of 8x8 16-bit elements.
    transposed
        ``.trans``: each lane gets elements of two rows instead of two elements of a row.

    Returns
    -------
    registers : uint32[count, 32]
        Register i of lane 4g + t holds elements (g, 2t) and (g, 2t + 1) of matrix i, the first in the low half.
    """
    if not transposed:
        return np.ascontiguousarray(rows).view(np.uint32).reshape(-1, 32)
    elements = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
    return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint32).reshape(-1, 32)


def matrices_from_registers(registers: npt.NDArray[np.uint32], transposed: bool = False) -> npt.NDArray[np.uint8]:
    """Return the rows that ``stmatrix .m8n8 .b16`` stores: the inverse of `matrices_to_registers`.

    Parameters
    ----------
    registers : uint32[count, 32]
    transposed
        ``.trans``.

    Returns
    -------
    rows : uint8[8 * count, 16]
        Row r of matrix i goes to the address that lane 8i + r supplies.
    """
    elements = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, 8, 8)
    if transposed:
        elements = np.ascontiguousarray(elements.transpose(0, 2, 1))
    return elements.view(np.uint8).reshape(-1, 16)


_ROW = np.dtype((np.void, 16))


def _values(words: Registers, dtype: str) -> npt.NDArray[Any]:
    """Decode packed registers along the last axis."""
    packed = np.ascontiguousarray(words)
    if dtype == "f64":
        return packed.view(np.float64)
    if dtype in ("s8", "u8"):
        return packed.view(np.int8 if dtype == "s8" else np.uint8).astype(np.float32)
    storage: Literal["u1", "u2", "u4"] = "u1" if _SIZES[dtype] == 1 else "u2" if _SIZES[dtype] == 2 else "u4"
    return decode(packed.view(storage), dtype)
