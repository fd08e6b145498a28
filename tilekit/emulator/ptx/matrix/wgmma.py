"""``wgmma.mma_async``: matrix descriptors, operands in shared memory or registers, accumulators in registers.

Operands are decoded exactly to float32 and multiplied by one float32 matrix product, also over several k-steps at once.
That agrees with the hardware bit for bit wherever every partial sum is exact (small integers, say), and to rounding
otherwise; the hardware's own arithmetic is there on request, see `tensor_core`. Integer types are always exact.
Layouts, base offsets and saturation were compared with an H200 over hundreds of random descriptors.
See PTX ISA, "Asynchronous warpgroup level matrix instructions".

Operands are passed around in *register order*: rows of A as (h, w, g) and columns of B as (c, i, t), where row
16w + 8h + g and column 8i + 2t + c of the accumulator live in register 4i + 2h + c of lane 4g + t of warp w. Products
then move into registers sixteen bytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.ptx.arithmetic.tensor_core import multiply_add
from tilekit.emulator.ptx.matrix.operand_chunks import CHUNK, START, Bounds, Chunks, Descriptor, relative
from tilekit.emulator.ptx.memory.swizzle import SPAN, Swizzle, swizzled

__all__ = [
    "MatrixDescriptor",
    "Operand",
    "Wgmma",
    "descriptor_problems",
    "load_a",
    "load_b",
    "multiply_accumulate",
    "operand_extents",
    "registers_a",
]

Operand: TypeAlias = Literal["a", "b"]
Matrix: TypeAlias = npt.NDArray[np.float32]
Registers: TypeAlias = npt.NDArray[np.uint32]

_SWIZZLES: tuple[Swizzle | None, ...] = (None, "128B", "64B", "32B")
_RESERVED = 0x3FF1_C000_C000_C000
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
_K_BYTES = 32  # Every type's k is 32 bytes, two 16-byte chunks of a K-major row; twice that in B of sparse forms.


@dataclass(frozen=True, eq=False)
class Wgmma:
    """One form of ``wgmma.mma_async``, m64.

    Attributes
    ----------
    n
        Columns: a multiple of 8 up to 256; for the integer types 8, 16, 24, 32, then multiples of 16.
    a_type, b_type
        f16, bf16, tf32, e4m3, e5m2, s8, u8 or b1. e4m3 and e5m2 mix, s8 and u8 mix; b1 counts the ones of an and.
    d_type
        f32, f16 (from f16, e4m3, e5m2) or s32 (from s8, u8, b1).
    a_mn_major, b_mn_major
        Whether the operand in shared memory is transposed; 16-bit types only.
    negate_a, negate_b
        Scale the operand by -1; floating point only.
    saturate
        ``.satfinite``; 8-bit integers only.
    sparse
        Whether half of each row of A is left out: two of four neighbours, one of two for tf32.
    """

    n: int
    a_type: str
    b_type: str
    d_type: str
    a_mn_major: bool = False
    b_mn_major: bool = False
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    sparse: bool = False

    def __post_init__(self) -> None:
        for name, given in (("a_type", self.a_type), ("b_type", self.b_type)):
            if given not in _BITS:
                raise ValueError(f"{name} = {given!r}: must be one of {', '.join(_BITS)}")
        mixed = next((pair for pair in ({"e4m3", "e5m2"}, {"s8", "u8"}) if self.a_type in pair), {self.a_type})
        if self.b_type not in mixed:
            raise ValueError(f"b_type = {self.b_type!r}: {self.a_type} goes with {' or '.join(sorted(mixed))}")
        accumulators = (
            ["s32"] if self.integer else ["f32", "f16"] if self.a_type in ("f16", "e4m3", "e5m2") else ["f32"]
        )
        if self.d_type not in accumulators:
            raise ValueError(f"d_type = {self.d_type!r}: {self.a_type} accumulates in {' or '.join(accumulators)}")
        unit = 16 if self.integer and self.n > 32 else 8
        if self.n % unit or not 8 <= self.n <= 256:
            nearest = min(max((self.n + unit // 2) // unit * unit, 8), 256)
            raise ValueError(f"n = {self.n}: must be a multiple of {unit} from 8 to 256; nearest legal {nearest}")
        if (self.a_mn_major or self.b_mn_major) and _BITS[self.a_type] != 16:
            raise ValueError(f"a_mn_major, b_mn_major: {self.a_type} operands must be K-major (False)")
        if self.integer and (self.negate_a or self.negate_b):
            raise ValueError("negate_a, negate_b: integer operands cannot be negated (False)")
        if self.saturate and self.a_type not in ("s8", "u8"):
            raise ValueError(f"saturate = True: {self.a_type} has no .satfinite (False)")
        if self.sparse and self.a_type == "b1":
            raise ValueError("sparse = True: b1 has no sparse form (False)")

    @cached_property
    def integer(self) -> bool:
        """Whether this is an integer form."""
        return self.a_type in ("s8", "u8", "b1")

    @cached_property
    def k(self) -> int:
        """Depth of one instruction."""
        return self.stored_k * (2 if self.sparse else 1)

    @cached_property
    def stored_k(self) -> int:
        """Elements of a row of A that are stored."""
        return 8 * _K_BYTES // _BITS[self.a_type]

    @cached_property
    def registers(self) -> int:
        """Accumulator registers a lane: n / 2, or n / 4 where two f16 share one."""
        return self.n // 4 if self.d_type == "f16" else self.n // 2


@dataclass(frozen=True)
class MatrixDescriptor(Descriptor):
    """A decoded 64-bit shared-memory matrix descriptor (PTX ISA, "Matrix descriptor").

    Attributes
    ----------
    reserved
        The reserved bits that are set (0 in a legal descriptor).
    """

    reserved: int

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """Split a descriptor into its fields."""
        return cls(
            start=(bits & START) << 4,
            leading=(bits >> 16 & 0x3FFF) << 4,
            stride=(bits >> 32 & 0x3FFF) << 4,
            base_offset=bits >> 49 & 7,
            swizzle=_SWIZZLES[bits >> 62 & 3],
            reserved=bits & _RESERVED,
        )


def descriptor_problems(op: Wgmma, operand: Operand, bits: int) -> list[str]:
    """Return what is wrong with a descriptor for one operand of an instruction, as one line each.

    Besides reserved bits, these are offsets that the hardware takes as they are but that no layout of the manual has.
    """
    descriptor = MatrixDescriptor.decode(bits)
    span = SPAN[descriptor.swizzle]
    period = 8 * span
    found = []
    if descriptor.reserved:
        found.append(f"reserved bits {descriptor.reserved:#018x} are set: must be 0")
    if descriptor.swizzle is None:
        return found
    mn_major = op.a_mn_major if operand == "a" else op.b_mn_major
    extent = 64 if operand == "a" else op.n
    # K-major operands step 8 rows by the stride offset; MN-major ones step 8 k by it and a span by the leading offset.
    steps = [("stride byte offset", descriptor.stride, mn_major or extent > 8)]
    if mn_major:
        steps.append(("leading byte offset", descriptor.leading, extent > span // 2))
    for name, given, used in steps:
        if used and (given % period or not given):
            nearest = max(round(given / period), 1) * period
            found.append(
                f"{name} = {given}: must be a positive multiple of the {period} bytes that 8 rows of swizzle "
                f"{descriptor.swizzle} take; nearest legal {nearest}"
            )
    return found


def load_a(
    op: Wgmma,
    shared: npt.NDArray[np.uint8],
    descriptors: Sequence[int],
    warp: int | None = None,
    *,
    bounds: Bounds | None = None,
) -> Matrix:
    """Return A from shared memory, in register order.

    Parameters
    ----------
    op
        Instruction form.
    shared : uint8[bytes]
        The CTA's shared memory, a multiple of 16 bytes.
    descriptors
        One for each of the consecutive k-steps to take together.
    warp
        0 to 3 for the 16 rows of one warp, None for all 64.
    bounds
        What of ``shared`` may be read, see `Chunks.read`.

    Returns
    -------
    a : float32[64 or 16, stored_k * len(descriptors)]

    Raises
    ------
    OperandOutside
        If an operand lies, in part, outside the bounds.
    """
    chunks = _gather(shared, _layout("a", op.a_mn_major, 64, warp), _operands(op, "a", descriptors), bounds)
    if op.a_mn_major:
        return _decoded(chunks.reshape(op.stored_k * len(descriptors), -1), op.a_type).T
    return _decoded(chunks.reshape(16 if warp is not None else 64, -1), op.a_type)


def load_b(
    op: Wgmma, shared: npt.NDArray[np.uint8], descriptors: Sequence[int], *, bounds: Bounds | None = None
) -> Matrix:
    """Return B from shared memory, in register order, as float32[k * len(descriptors), n]; see `load_a`."""
    chunks = _gather(shared, _layout("b", op.b_mn_major, op.n, None), _operands(op, "b", descriptors), bounds)
    if op.b_mn_major:
        pairs = chunks.view(np.uint16).reshape(-1, op.n // 2, 2)
        return decode(pairs.transpose(0, 2, 1), op.b_type).reshape(-1, op.n)
    return _decoded(chunks.reshape(op.n, -1), op.b_type).T


def registers_a(op: Wgmma, registers: Registers) -> Matrix:
    """Return A from registers, in register order.

    Parameters
    ----------
    op
        Instruction form.
    registers : uint32[4 * steps, 32 or 128]
        The four A registers of each consecutive k-step, for one warp or for the warpgroup.

    Returns
    -------
    a : float32[16 or 64, stored_k * steps]
    """
    steps, lanes = registers.shape[0] // 4, registers.shape[1]
    # Register 2j + h of lane 4g + t holds row 8h + g, bytes 16j + 4t of the k-step.
    words = registers.reshape(steps, 2, 2, lanes // 4, 4).transpose(2, 3, 0, 1, 4)
    return _decoded(np.ascontiguousarray(words).view(np.uint8).reshape(lanes // 2, steps * _K_BYTES), op.a_type)


def multiply_accumulate(
    op: Wgmma, a: Matrix, b: Matrix, registers: Registers | None, *, exact: bool = False
) -> Registers:
    """Return the accumulator registers after ``D = A * B + D``.

    Parameters
    ----------
    op
        Instruction form.
    a : float32[64 or 16, K]
        From `load_a` or `registers_a`; K may span several k-steps.
    b : float32[K, n]
        From `load_b`.
    registers : uint32[op.registers, 128 or 32]
        D before, or None for ``scale-d`` false: ``D = A * B``.
    exact
        Round as Hopper's tensor core does, instruction by instruction: slow.

    Returns
    -------
    registers : uint32[op.registers, 128 or 32]
        A new array.
    """
    if op.d_type == "s32":
        return _accumulate_integers(op, a, b, registers)
    lanes = 2 * a.shape[0]
    if op.d_type == "f32" and not exact:
        product = _to_registers(op, _product(op, a, b))
        if registers is not None:
            product += registers.view(np.float32)
        return product.view(np.uint32)
    held = None if registers is None else _values(op, registers)
    for k in range(0, a.shape[1], op.k):  # Each instruction rounds its result.
        a_step, b_step = a[:, k : k + op.k], b[k : k + op.k]
        if exact:
            start = np.zeros((lanes // 2, op.n), np.float32) if held is None else _from_registers(op, held)
            signed = -a_step if op.negate_a != op.negate_b else a_step
            sums = multiply_add(signed, b_step, start, op.a_type, op.b_type, to_f16=op.d_type == "f16")
            total = _to_registers(op, decode(encode(sums, "f16"), "f16") if op.d_type == "f16" else sums)
        else:
            total = _to_registers(op, _product(op, a_step, b_step))
            if held is not None:
                total += held
        held = decode(encode(total, "f16"), "f16") if op.d_type == "f16" else total
    assert held is not None
    if op.d_type == "f32":
        return held.view(np.uint32)
    halves = encode(held, "f16").reshape(-1, 2, lanes).transpose(0, 2, 1)
    return np.ascontiguousarray(halves).view(np.uint32).reshape(-1, lanes)


def operand_extents(op: Wgmma, operand: Operand, descriptors: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the shared-memory bytes that an operand reads.

    Returns
    -------
    extents : int64[n, 2]
        First byte and byte after the last of each run, in ascending order; runs do not touch.
    """
    mn_major = op.a_mn_major if operand == "a" else op.b_mn_major
    rows = 64 if operand == "a" else op.n
    base, starts, rest = _operands(op, operand, descriptors)
    return _chunks(_layout(operand, mn_major, rows, None), starts, rest).runs + base


@dataclass(frozen=True, eq=False)
class _Layout:
    """Which chunks of an operand are gathered, in which order.

    ``order`` lists the rows of a K-major operand, or the 8-element blocks of an MN-major one.
    """

    mn_major: bool
    order: tuple[int, ...]


@lru_cache(maxsize=256)
def _layout(operand: Operand, mn_major: bool, rows: int, warp: int | None) -> _Layout:
    """Return the register order of an operand's rows; see the module's description."""
    if operand == "b":
        if mn_major:
            return _Layout(True, tuple(range(rows // 8)))
        return _Layout(False, tuple(8 * i + 2 * t + c for c in range(2) for i in range(rows // 8) for t in range(4)))
    warps = range(4) if warp is None else (warp,)
    blocks = [2 * w + h for h in range(2) for w in warps]
    return _Layout(mn_major, tuple(blocks) if mn_major else tuple(8 * block + g for block in blocks for g in range(8)))


def _operands(op: Wgmma, operand: Operand, descriptors: Sequence[int]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Base, starts and the descriptors' other bits, see `relative`: of a sparse form's B, twice as deep, by halves."""
    base, starts, rest = relative(tuple(descriptors))
    if operand == "a" or not op.sparse:
        return base, starts, rest
    halves: list[int] = []
    for start, bits in zip(starts, descriptors, strict=True):
        halves += start, start + _second_half(op, MatrixDescriptor.decode(bits)) // CHUNK.itemsize
    return base, tuple(halves), tuple(bits for bits in rest for _ in range(2))


def _second_half(op: Wgmma, descriptor: MatrixDescriptor) -> int:
    """Bytes from the first half of a sparse form's B to the second."""
    if op.b_mn_major:  # 16 k further
        return 2 * (descriptor.stride if descriptor.swizzle else descriptor.leading)
    if descriptor.swizzle is None:
        return 2 * descriptor.leading
    return descriptor.leading if descriptor.swizzle == "32B" else _K_BYTES


@lru_cache(maxsize=4096)
def _chunks(layout: _Layout, starts: tuple[int, ...], rest: tuple[int, ...]) -> Chunks:
    """Return an operand's chunks: [rows, steps, 2] of a K-major one, [steps * 16, blocks] of an MN-major one."""
    tables = []
    for start, high in zip(starts, rest, strict=True):
        descriptor = MatrixDescriptor.decode(high << START.bit_length())
        span = SPAN[descriptor.swizzle]
        order = np.array(layout.order, np.int64)
        if layout.mn_major:
            k = np.arange(16)[:, None]
            rows = (
                k // 8 * descriptor.stride + k % 8 * span + order * 16 % span + order * 16 // span * descriptor.leading
            )
            if descriptor.swizzle is None:  # The two offsets change places.
                rows = k // 8 * descriptor.leading + k % 8 * 16 + order * descriptor.stride
        else:
            step = 16 if descriptor.swizzle else descriptor.leading
            rows = (order // 8 * descriptor.stride + order % 8 * span)[:, None] + step * np.arange(2)
        address = start * 16 + rows
        # The base offset shifts the rows of the pattern, not the operand.
        pattern = address - 128 * descriptor.base_offset
        tables.append((address ^ pattern ^ swizzled(pattern, descriptor.swizzle)) // 16)
    return Chunks.of(np.concatenate(tables) if layout.mn_major else np.stack(tables, axis=1))


def _gather(
    shared: npt.NDArray[np.uint8],
    layout: _Layout,
    operands: tuple[int, tuple[int, ...], tuple[int, ...]],
    bounds: Bounds | None,
) -> npt.NDArray[np.uint8]:
    base, starts, rest = operands
    return _chunks(layout, starts, rest).read(shared, base, bounds)


def _decoded(data: npt.NDArray[np.uint8], dtype: str) -> Matrix:
    if dtype == "s8":
        return data.view(np.int8).astype(np.float32)
    if dtype == "u8":
        return data.astype(np.float32)
    if dtype == "b1":
        return np.unpackbits(data, axis=-1, bitorder="little").astype(np.float32)
    storage: Any = {8: np.uint8, 16: np.uint16, 32: np.uint32}[_BITS[dtype]]
    return decode(data.view(storage), dtype)


@lru_cache(maxsize=256)
def _register_order(rows: int, n: int) -> npt.NDArray[np.intp]:
    """Return, for each 16-byte group of four lanes in the registers, where the product matrix has it."""
    groups = np.arange(rows * n // 4).reshape(2, rows // 2, 2, n // 8)  # h, (w, g), c, i
    return np.ascontiguousarray(groups.transpose(3, 0, 2, 1)).reshape(-1)


def _product(op: Wgmma, a: Matrix, b: Matrix) -> Matrix:
    """Return A * B as float32[rows, n], in register order."""
    product = a @ b
    if op.negate_a != op.negate_b:
        np.negative(product, out=product)
    return product


def _to_registers(op: Wgmma, matrix: Matrix) -> Matrix:
    """Return a float32[rows, n] matrix as registers, float32[n / 2, lanes]."""
    rows = matrix.shape[0]
    groups = matrix.reshape(-1).view(CHUNK).take(_register_order(rows, op.n))
    return groups.view(np.float32).reshape(op.n // 2, 2 * rows)


def _from_registers(op: Wgmma, registers: Matrix) -> Matrix:
    """Return float32[n / 2, lanes] registers as a matrix: the inverse of `_to_registers`."""
    matrix = np.empty((registers.shape[1] // 2, op.n), np.float32)
    groups = np.ascontiguousarray(registers).reshape(-1).view(CHUNK)
    matrix.reshape(-1).view(CHUNK)[_register_order(matrix.shape[0], op.n)] = groups
    return matrix


def _values(op: Wgmma, registers: Registers) -> Matrix:
    """Return accumulator registers as float32[n / 2, lanes], packed f16 pairs taken apart."""
    if op.d_type == "f32":
        return registers.view(np.float32)
    lanes = registers.shape[1]
    halves = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, lanes, 2).transpose(0, 2, 1)
    return decode(halves, "f16").reshape(-1, lanes)


def _accumulate_integers(op: Wgmma, a: Matrix, b: Matrix, registers: Registers | None) -> Registers:
    lanes = 2 * a.shape[0]
    total = np.zeros((op.n // 2, lanes), np.int64) if registers is None else registers.view(np.int32).astype(np.int64)
    # Up to eight instructions, sums stay below 2**24 and so exact in float32; saturation acts after each instruction.
    step = op.k if op.saturate else 8 * op.k
    for k in range(0, a.shape[1], step):
        total += _to_registers(op, _product(op, a[:, k : k + step], b[k : k + step])).astype(np.int64)
        if op.saturate:
            np.clip(total, -(2**31), 2**31 - 1, out=total)
    return total.astype(np.int32).view(np.uint32)
