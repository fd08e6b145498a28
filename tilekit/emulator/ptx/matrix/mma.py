"""Warp-level products: ``mma.sync`` and ``mma.sp.sync`` with their fragments.

Operands are decoded exactly and multiplied by one matrix product in float32, so results agree with the hardware bit
for bit wherever every partial sum is exact, and to rounding otherwise; the hardware's own arithmetic is there on
request, see `tensor_core`. Integers and f64 are always the hardware's.
See PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and "... with sparse matrix A".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.ptx.arithmetic.floating import clean, directed, multiply_add_wide
from tilekit.emulator.ptx.arithmetic.tensor_core import multiply_add

__all__ = ["BITS", "Mma", "chunk_indices", "expand", "multiply_accumulate", "operand_rows", "product"]

Registers: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

BITS = {
    "f64": 64,
    "tf32": 32,
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("e4m3", "e5m2", "s8", "u8"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}
"""Bits of an element of A and B in a register, by type."""
_SHAPES = {
    "f64": ((8, 4), (16, 4), (16, 8), (16, 16)),
    "tf32": ((16, 4), (16, 8)),
    "bf16": ((16, 8), (16, 16)),
    "f16": ((16, 8), (16, 16)),
    "e4m3": ((16, 16), (16, 32)),
    "e5m2": ((16, 16), (16, 32)),
    "s8": ((8, 16), (16, 16), (16, 32)),
    "u8": ((8, 16), (16, 16), (16, 32)),
    "s4": ((8, 32), (16, 32), (16, 64)),
    "u4": ((8, 32), (16, 32), (16, 64)),
    "b1": ((8, 128), (16, 128), (16, 256)),
}
_SPARSE_SHAPES = {
    "tf32": ((16, 8), (16, 16)),
    "bf16": ((16, 16), (16, 32)),
    "f16": ((16, 16), (16, 32)),
    "e4m3": ((16, 64),),
    "e5m2": ((16, 64),),
    "s8": ((16, 32), (16, 64)),
    "u8": ((16, 32), (16, 64)),
    "s4": ((16, 64), (16, 128)),
    "u4": ((16, 64), (16, 128)),
}
_ACCUMULATORS = {
    "f64": ("f64",),
    "tf32": ("f32",),
    "bf16": ("f32",),
    "f16": ("f32", "f16"),
    "e4m3": ("f32", "f16"),
    "e5m2": ("f32", "f16"),
    **dict.fromkeys(("s8", "u8", "s4", "u4", "b1"), ("s32",)),
}
_MIXED = ({"e4m3", "e5m2"}, {"s8", "u8"}, {"s4", "u4"})


@dataclass(frozen=True)
class Mma:
    """One form of ``mma.sync.aligned.m<m>n8k<k>.row.col``.

    Attributes
    ----------
    m, k
        Shape; n is always 8.
    a_type, b_type
        f64, tf32, bf16, f16, e4m3, e5m2, s8, u8, s4, u4 or b1. Types of fp8, of 8 and of 4 bits mix among themselves.
    c_type
        Type of C and D: f64, f32, f16 or s32.
    saturate
        ``.satfinite``; integers only.
    bitwise
        What is counted in products of b1: ``xor`` or ``and``; empty for all other types.
    rounding
        Of f64: ``rn``, ``rz``, ``rm`` or ``rp``.
    sparse
        Whether half of each row of A is left out (``mma.sp``): two of four neighbours, one of two for tf32, two of
        four pairs for 4-bit types.
    """

    m: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    saturate: bool = False
    bitwise: str = ""
    rounding: str = "rn"
    sparse: bool = False

    def __post_init__(self) -> None:
        for name, given in (("a_type", self.a_type), ("b_type", self.b_type)):
            if given not in BITS:
                raise ValueError(f"{name} = {given!r}: must be one of {', '.join(BITS)}")
        partners: set[str] = next((mixed for mixed in _MIXED if self.a_type in mixed), {self.a_type})
        if self.b_type not in partners:
            raise ValueError(f"b_type = {self.b_type!r}: {self.a_type} goes with {' or '.join(sorted(partners))}")
        shapes = (_SPARSE_SHAPES if self.sparse else _SHAPES).get(self.a_type, ())
        if (self.m, self.k) not in shapes:
            legal = ", ".join(f"m{m}n8k{k}" for m, k in shapes) or "none"
            what = "sparse shapes" if self.sparse else "shapes"
            raise ValueError(f"m, k = {self.m}, {self.k}: the {what} of {self.a_type} are {legal}")
        if self.c_type not in _ACCUMULATORS[self.a_type]:
            legal = " or ".join(_ACCUMULATORS[self.a_type])
            raise ValueError(f"c_type = {self.c_type!r}: {self.a_type} accumulates in {legal}")
        if self.saturate and (self.c_type != "s32" or self.a_type == "b1"):
            raise ValueError(f"saturate = True: {self.a_type} has no .satfinite (False)")
        if (self.a_type == "b1") != (self.bitwise in ("xor", "and")):
            legal = "'xor' or 'and'" if self.a_type == "b1" else "''"
            raise ValueError(f"bitwise = {self.bitwise!r}: {self.a_type} has {legal}")
        if self.rounding != "rn" and self.a_type != "f64":
            raise ValueError(f"rounding = {self.rounding!r}: {self.a_type} has 'rn'")

    @cached_property
    def a_registers(self) -> int:
        """Registers of A a lane (32 bits each; 64 for f64)."""
        return self.m * self.k // (2 if self.sparse else 1) // 32 // self._each

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
        return max(32 // BITS[self.a_type], 1)


def operand_rows(registers: Registers, dtype: str, halves: int) -> npt.NDArray[Any]:
    """Return the decoded rows of A, or the columns of B, from the registers of a fragment.

    Parameters
    ----------
    registers : uint32 (uint64 for f64)[registers, 32]
    dtype
        Type of the elements.
    halves
        2 where registers alternate between rows g and g + 8 (A of 16 rows), 1 for 8 rows at a time (B).

    Returns
    -------
    rows : [8 * halves * tiles, k] with as many tiles as one row of k takes; here always one
        float32; float64 for f64.
    """
    # Register j * halves + h of lane 4g + t holds row 8h + g; its elements are k = (4j + t) * e ... + e - 1.
    ordered = registers.reshape(-1, halves, 8, 4).transpose(1, 2, 0, 3)
    return _values(ordered, dtype).reshape(8 * halves, -1)


def multiply_accumulate(
    op: Mma,
    a: Registers,
    b: Registers,
    c: Registers,
    *,
    metadata: npt.NDArray[np.uint32] | None = None,
    selector: int = 0,
    exact: bool = False,
) -> Registers:
    """Return the registers of ``D = A * B + C``.

    Parameters
    ----------
    op
        Instruction form.
    a, b, c : uint32 (uint64 for f64)[op.a_registers | op.b_registers | op.c_registers, 32]
        Fragments: one row a register, one column a lane.
    metadata : uint32[32]
        Which elements of A are there; for sparse forms.
    selector
        Which lanes of each four hold the metadata.
    exact
        Round as Hopper's tensor core does: slow. It makes no difference to f64 and integers.

    Returns
    -------
    d : as ``c``, a new array

    Raises
    ------
    ValueError
        If the metadata names an element twice, or lanes that do not exist.
    """
    halves = op.m // 8
    left, right = operand_rows(a, op.a_type, halves), operand_rows(b, op.b_type, 1).T
    if metadata is not None:
        left = expand(left, chunk_indices(op, metadata, selector), op.a_type)
    if (exact and op.c_type in ("f32", "f16")) or op.c_type == "f64" or op.bitwise:
        return _to_registers(product(op, left, right, _accumulator(op, c), exact=exact), op.c_type, halves)
    fragment = (left @ right).reshape(halves, 8, 4, 2)
    # Row 8h + g and column 2t + p of the accumulator live in register 2h + p, or in half p of register h.
    if op.c_type == "f16":
        total = fragment.reshape(halves, 32, 2) + decode(c.view(np.uint16).reshape(halves, 32, 2), "f16")
        return encode(total, "f16").view(np.uint32).reshape(halves, 32)
    fragment = fragment.transpose(0, 3, 1, 2).reshape(2 * halves, 32)
    if op.c_type == "s32":
        return _wrapped(fragment.astype(np.int64) + c.view(np.int32), op.saturate).view(np.uint32)
    return np.asarray(fragment + c.view(np.float32), np.float32).view(np.uint32)


def _accumulator(op: Mma, c: Registers) -> npt.NDArray[Any]:
    """The values of C, [m, 8]."""
    halves = op.m // 8
    if op.c_type == "f16":
        return decode(c.view(np.uint16), "f16").reshape(halves, 8, 4, 2).reshape(op.m, 8)
    kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[op.c_type]
    return c.view(kind).reshape(halves, 2, 8, 4).transpose(0, 2, 3, 1).reshape(op.m, 8)


def _to_registers(total: npt.NDArray[Any], c_type: str, halves: int) -> Registers:
    """Fragments of the values of D, [8 * halves, 8]."""
    if c_type == "f16":
        return encode(total, "f16").view(np.uint32).reshape(halves, 32)
    kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[c_type]
    fragment = np.ascontiguousarray(total.astype(kind).reshape(halves, 8, 4, 2).transpose(0, 3, 1, 2))
    words: Any = fragment.view(np.uint64 if c_type == "f64" else np.uint32)
    return words.reshape(2 * halves, 32)  # type: ignore[no-any-return]


def _wrapped(total: npt.NDArray[np.int64], saturate: bool) -> npt.NDArray[np.int32]:
    return (np.clip(total, -(2**31), 2**31 - 1) if saturate else total).astype(np.int32)


def product(
    op: Mma, left: npt.NDArray[Any], right: npt.NDArray[Any], start: npt.NDArray[Any], *, exact: bool = False
) -> npt.NDArray[Any]:
    """Return ``left @ right + start`` as the types of an instruction compute it.

    Parameters
    ----------
    op
        Its types, rounding and saturation; its shape does not matter.
    left : [m, k], right : [k, n], start : [m, n]
        Decoded values.
    exact
        Round f32 and f16 as Hopper's tensor core does.

    Returns
    -------
    total : [m, n]
        float64 for f64, int32 for s32; else float32 or wider, to be rounded once where the accumulator is f16.
    """
    if op.c_type == "f64":
        return _multiply_wide(op, left, right, start)
    if op.bitwise:
        both = left @ right
        if op.bitwise == "xor":
            both = left.sum(1, keepdims=True) + right.sum(0, keepdims=True) - 2 * both
        return _wrapped(both.astype(np.int64) + start, False)
    if op.c_type == "s32":
        return _wrapped((left @ right).astype(np.int64) + start, op.saturate)
    return _multiply_exactly(op, left, right, start) if exact else np.asarray(left @ right + start)


def _multiply_wide(
    op: Mma, a: npt.NDArray[Any], b: npt.NDArray[Any], start: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Products of f64: one fused multiply-add after the other, in the order of k."""
    (m, depth), n = a.shape, b.shape[1]
    total = start.reshape(-1)
    for k in range(depth):
        operands = np.repeat(a[:, k], n), np.tile(b[k], m), total
        total = multiply_add_wide(*operands) if op.rounding == "rn" else directed("fma", op.rounding, *operands)
    return total.reshape(m, n)


def _multiply_exactly(op: Mma, a: npt.NDArray[Any], b: npt.NDArray[Any], start: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Products of floats as Hopper rounds them.

    Its ``mma.sync`` has no fp8: ptxas widens both operands to f16, multiplies the first two elements of every four
    along k, then the other two on top, and adds C last.
    """

    def step(left: npt.NDArray[Any], right: npt.NDArray[Any], onto: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kind = op.a_type if op.a_type in ("bf16", "tf32") else "f16"
        total = multiply_add(left, right, onto, kind, kind, to_f16=op.c_type == "f16")
        return decode(encode(total, "f16"), "f16") if op.c_type == "f16" else total

    if op.a_type not in ("e4m3", "e5m2"):
        return step(a, b, start)
    fours, rows = a.reshape(len(a), -1, 4), b.reshape(-1, 4, b.shape[1])
    total = np.zeros_like(start)
    for pair in (slice(0, 2), slice(2, 4)):
        total = step(fours[:, :, pair].reshape(len(a), -1), rows[:, pair].reshape(-1, b.shape[1]), total)
    return clean(total + start)


def _values(words: Registers, dtype: str) -> npt.NDArray[Any]:
    """Decode packed registers along the last axis."""
    packed = np.ascontiguousarray(words)
    match dtype:
        case "f64":
            return packed.view(np.float64)
        case "s8" | "u8":
            return packed.view(np.int8 if dtype == "s8" else np.uint8).astype(np.float32)
        case "s4" | "u4":
            octets = packed.view(np.uint8)
            nibbles = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1).astype(np.int8)
            return (nibbles if dtype == "u4" else (nibbles ^ 8) - 8).astype(np.float32)
        case "b1":
            return np.unpackbits(packed.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)
    return decode(packed.view(f"u{BITS[dtype] // 8}"), dtype)


# -- sparse A --------------------------------------------------------------------------------------------------------


def chunk_indices(op: Mma, metadata: npt.NDArray[np.uint32], selector: int) -> npt.NDArray[np.uint8]:
    """Return the four bits of metadata of each chunk of A, [16, chunks].

    A row's 16 chunks of 4-bit and 8-bit types take two words, in different lanes of four: rows g and g + 8 of the first
    eight chunks, then of the others. For wider types a word holds four chunks of row g and above them those of g + 8,
    and the next lane the four after them.
    """
    words = metadata.reshape(8, 4)
    wide = BITS[op.a_type] > 8
    count = op.k // {"tf32": 2, "s4": 8, "u4": 8}.get(op.a_type, 4)
    lanes = count // 4
    if not 0 <= selector < 4 // lanes:
        raise ValueError(f"selector = {selector}: {lanes} lanes of four hold the metadata, so 0 to {4 // lanes - 1}")
    held = np.ascontiguousarray(words[:, selector * lanes : (selector + 1) * lanes])
    nibbles = np.stack([held >> np.uint32(4 * n) & np.uint32(15) for n in range(8)], axis=-1).astype(np.uint8)
    if wide:  # [g, lane, half, chunk]
        return nibbles.reshape(8, lanes, 2, 4).transpose(2, 0, 1, 3).reshape(16, count)
    return nibbles.reshape(8, lanes // 2, 2, 8).transpose(2, 0, 1, 3).reshape(16, count)


def expand(stored: npt.NDArray[Any], chunks: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[Any]:
    """Return the rows of a sparse A with the zeros in their places.

    Parameters
    ----------
    stored : [rows, k / 2]
        The elements that are there.
    chunks : uint8[rows, chunks]
        Two 2-bit indices of a chunk of four: of elements, of pairs of 4-bit elements, of 16-bit halves of tf32.
    dtype
        Type of the elements.

    Raises
    ------
    ValueError
        If the two indices of a chunk are the same, or do not name one whole element of tf32.
    """
    first, second = chunks & 3, chunks >> 2
    wrong = (second != first + 1) | (first & 1 == 1) if dtype == "tf32" else first == second
    if wrong.any():
        row, chunk = (int(i) for i in np.argwhere(wrong)[0])
        legal = "0b0100 or 0b1110" if dtype == "tf32" else "two different indices"
        raise ValueError(f"metadata = {int(chunks[row, chunk]):#06b} of chunk {chunk} of row {row}: must be {legal}")
    rows, count = chunks.shape
    start = np.arange(count) * 4
    places = np.stack([start + first, start + second], axis=-1).reshape(rows, -1)
    if dtype == "tf32":
        places = places[:, ::2] // 2
    elif dtype in ("s4", "u4"):
        places = (2 * places[..., None] + np.arange(2)).reshape(rows, -1)
    whole = np.zeros((rows, 2 * stored.shape[1]), stored.dtype)
    np.put_along_axis(whole, places, stored, axis=1)
    return whole
