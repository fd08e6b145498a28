"""What one ``tcgen05.mma`` computes: operands, scales, accumulator layouts, arithmetic.

``D[m][n] (+)= sum over k of A[m][k] * B[n][k]``, B described N by K. Operands are decoded exactly and multiplied by one
matrix product over a run of instructions, as for wgmma: exact wherever every partial sum is, else right to rounding.
See PTX ISA, "tcgen05.mma" with its figures of data paths, and "Block scaling".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.arithmetic.tensor_core import TCGEN05, multiply_add
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import ELEMENT_BITS, MmaForm, MmaShape, OperandLayout
from tilekit.emulator.ptx.matrix.tmem import Region, TensorMemory, split_address

__all__ = [
    "Part",
    "ZeroColumns",
    "a_layout",
    "accumulate",
    "accumulator_parts",
    "b_layout",
    "decode_shared",
    "load_tensor_a",
    "scale_regions",
    "scales",
]

Matrix = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
_A_COLUMNS = 8  # 32 bytes of each row of A.


@dataclass(frozen=True)
class Part:
    """Where some rows and columns of D lie in one CTA: its lanes, in the order of the rows, and its columns of D."""

    lanes: tuple[tuple[int, int], ...]
    first: int
    last: int

    def regions(self, column: int, width: int) -> list[Region]:
        """The part's lanes at some columns of tensor memory."""
        return [Region(low, high, column, column + width) for low, high in self.lanes]

    def read(self, memory: TensorMemory, column: int, width: int) -> npt.NDArray[np.uint32]:
        """The cells of the part's lanes at some columns, a row for each row of D."""
        if len(self.lanes) == 1:
            return memory.read(self.regions(column, width)[0])
        return np.concatenate([memory.read(region) for region in self.regions(column, width)])


@lru_cache(maxsize=256)
def accumulator_parts(form: MmaForm, shape: MmaShape, half: int) -> tuple[Part, ...]:
    """Return how D lies in each CTA's tensor memory; ``half`` is 16 for the upper 16 lanes of each 32 (M = 64)."""
    rows, n = shape.m // form.group, shape.n
    if rows == 128:
        return (Part(((0, 128),), 0, n),)
    if form.weight_stationary:
        count = 128 // rows
        return tuple(Part(((rows * j, rows * j + rows),), n // count * j, n // count * (j + 1)) for j in range(count))
    if form.group == 2 and not form.sparse:
        return Part(((0, 64),), 0, n // 2), Part(((64, 128),), n // 2, n)
    return (Part(tuple((32 * q + half, 32 * q + half + 16) for q in range(4)), 0, n),)


def a_layout(form: MmaForm, shape: MmaShape) -> OperandLayout:
    """How A lies in the shared memory of each CTA."""
    return _layout(form, shape.a_mn_major, shape.m // form.group, shape.a_type, 2, 0)


def b_layout(form: MmaForm, shape: MmaShape, shift: int = 0) -> OperandLayout:
    """How B lies in the shared memory of each CTA, which holds its part of the N rows."""
    return _layout(form, shape.b_mn_major, shape.n // form.group, shape.b_type, 4 if form.sparse else 2, shift)


def _layout(form: MmaForm, mn_major: bool, rows: int, kind: str, chunks: int, shift: int) -> OperandLayout:
    if not mn_major:
        return OperandLayout(False, rows, chunks, first_row=shift)
    size = ELEMENT_BITS[kind] // 8
    return OperandLayout(True, rows, 16 * chunks // size, size, shift)


def decode_shared(layout: OperandLayout, kind: str, packed: bool, data: Bytes) -> Matrix:
    """Return what `gather` read for consecutive instructions as numbers: float32[rows, k * instructions]."""
    if layout.mn_major:
        values = _decode_plain(data, kind)
        return values.reshape(-1, layout.rows).T
    flat = data.reshape(layout.rows, -1)
    if packed:
        return _nibbles(flat)
    if ELEMENT_BITS[kind] < 8:
        return _padded(flat, kind)
    return _decode_plain(flat, kind)


def load_tensor_a(part: Part, memory: TensorMemory, kind: str, packed: bool, columns: Sequence[int]) -> Matrix:
    """Return A from tensor memory, for the rows of a part: float32[rows, k * instructions]."""
    words = np.concatenate([part.read(memory, column, _A_COLUMNS) for column in columns], axis=1)
    data = np.ascontiguousarray(words).view(np.uint8)
    if packed:
        return _nibbles(data)
    if ELEMENT_BITS[kind] == 4:  # A byte holds the element in its bits 5:2.
        return decode(data >> np.uint8(2) & np.uint8(15), kind)
    return _decode_plain(data, kind)


def _decode_plain(data: Bytes, kind: str) -> Matrix:
    if kind == "s8":
        return data.view(np.int8).astype(np.float32)
    if kind == "u8":
        return data.astype(np.float32)
    storage: Any = {16: np.uint16, 32: np.uint32}.get(ELEMENT_BITS[kind], np.uint8)
    return decode(np.ascontiguousarray(data).view(storage), kind)


def _nibbles(data: Bytes) -> Matrix:
    """Two e2m1 elements a byte, the even one low."""
    return decode(np.stack([data & np.uint8(15), data >> np.uint8(4)], axis=-1).reshape(len(data), -1), "e2m1")


def _padded(data: Bytes, kind: str) -> Matrix:
    """Sixteen 4- or 6-bit elements at the start of every 16 bytes."""
    groups = data.reshape(len(data), -1, 16)
    if ELEMENT_BITS[kind] == 4:
        return _nibbles(groups[:, :, :8].reshape(len(data), -1))
    bits = np.unpackbits(groups[:, :, :12], axis=-1, bitorder="little").reshape(len(data), -1, 6)
    return decode(np.packbits(bits, axis=-1, bitorder="little")[..., 0], kind)


# -- scales ----------------------------------------------------------------------------------------------------------


def scale_regions(column: int, rows: int, quarters: Sequence[int]) -> list[Region]:
    """Return the cells that hold the scales of some rows, in each of the given 32-lane quarters."""
    width = -(-rows // 32)
    return [Region(32 * q, 32 * q + 32, column, column + width) for q in quarters]


def scales(
    memory: TensorMemory, column: int, rows: int, quarters: Sequence[int], first: int, vector: int, kind: str
) -> Matrix:
    """Return the scales of some rows: float32[rows, vector].

    Parameters
    ----------
    column
        Tensor-memory column of the first 32 rows.
    quarters
        32-lane quarters that must hold the same scales.
    first, vector
        Bytes of each word to use.
    kind
        ue8m0 or ue4m3.

    Raises
    ------
    ProtocolError
        If the quarters disagree.
    """
    copies = [memory.read(region) for region in scale_regions(column, rows, quarters)]
    words = copies[0]
    wanted = np.uint32(((1 << 8 * vector) - 1) << 8 * first)
    for quarter, other in zip(quarters[1:], copies[1:], strict=True):
        if ((other ^ words) & wanted).any():
            raise ProtocolError(
                f"the scales in columns {column} to {column + words.shape[1] - 1} differ between lanes "
                f"{32 * quarters[0]} and {32 * quarter}: every 32-lane quarter must hold the same copy",
                hint="copy them with tcgen05.cp.32x128b.warpx4",
            )
    data = np.ascontiguousarray(words.T).view(np.uint8).reshape(-1, 4)[:rows, first : first + vector]
    return decode(data, "ue8m0") if kind == "ue8m0" else decode(data & np.uint8(0x7F), "e4m3")


# -- the zero-column mask of .ws ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ZeroColumns:
    """The zero-column mask descriptor of ``tcgen05.mma.ws``: which columns of B count as zero, and B's shift."""

    bits: int

    @property
    def shift(self) -> int:
        """Columns by which B is read further on."""
        return self.bits >> 56 & 63

    def mask(self, m: int, n: int) -> npt.NDArray[np.bool_]:
        """True for each column of B that is replaced by zeros."""
        if not self.bits >> 39 & 1:
            return np.zeros(n, np.bool_)
        zeroed, used = (self.bits >> 40 & 0xFF) + 1, (self.bits >> 48 & 0xFF) + 1
        count = {128: 1, 64: 2, 32: 4}[m]
        parts = []
        for index in range(count):
            start, begins_zeroed = self.bits >> 8 * index & 0xFF, self.bits >> 32 + index & 1
            place = (np.arange(n // count) + start) % (zeroed + used)
            parts.append(place < zeroed if begins_zeroed else place >= used)
        return np.concatenate(parts)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def accumulate(
    form: MmaForm,
    shape: MmaShape,
    a: Matrix,
    b: Matrix,
    before: npt.NDArray[np.uint32] | None,
    scale_d: int,
    *,
    exact: bool = False,
) -> npt.NDArray[np.uint32]:
    """Return the cells of D after ``D = A * B + D * 2**-scale_d``.

    Parameters
    ----------
    form, shape
        The instruction.
    a : float[rows, K]
        K over one or more instructions; already scaled.
    b : float[columns, K]
        Likewise.
    before : uint32[rows, columns]
        Cells of D, or None for ``D = A * B``.
    exact
        Round as the tensor core does, instruction by instruction (`tensor_core`); block-scaled products are in float32
        all the same.

    Returns
    -------
    cells : uint32[rows, columns]
        The upper halves of an f16 accumulator's cells are unspecified: all ones here.
    """
    if shape.negate_a != shape.negate_b:
        a = -a
    k = form.k
    if shape.d_type == "s32":
        total = np.zeros((len(a), len(b)), np.int64) if before is None else before.view(np.int32).astype(np.int64)
        # Sums of one instruction's products are far below 2**53.
        step = k if shape.saturate else a.shape[1]
        for first in range(0, a.shape[1], step):
            total += (a[:, first : first + step].astype(np.float64) @ b[:, first : first + step].T).astype(np.int64)
            if shape.saturate:
                np.clip(total, -(2**31), 2**31 - 1, out=total)
        return total.astype(np.int32).view(np.uint32)
    if exact and not form.vector:
        return _accumulate_exactly(form, shape, a, b, before, scale_d)
    if shape.d_type == "f32":
        result = (a @ b.T).astype(np.float32, copy=False)
        if before is not None:
            held = before.view(np.float32)
            result += np.ldexp(held, -scale_d) if scale_d else held
        bits: npt.NDArray[np.uint32] = result.view(np.uint32)
        missing = np.isnan(result)
        if np.count_nonzero(missing):
            bits[missing] = 0x7FFFFFFF
        return bits
    total16 = (
        None if before is None else np.ldexp(decode((before & np.uint32(0xFFFF)).astype(np.uint16), "f16"), -scale_d)
    )
    for first in range(0, a.shape[1], k):  # Each instruction rounds its result.
        step_product = a[:, first : first + k] @ b[:, first : first + k].T
        step_total = step_product if total16 is None else step_product + total16
        total16 = decode(encode(step_total, "f16"), "f16")
    assert total16 is not None
    return encode(total16, "f16").astype(np.uint32) | np.uint32(0xFFFF0000)


def _accumulate_exactly(
    form: MmaForm, shape: MmaShape, a: Matrix, b: Matrix, before: npt.NDArray[np.uint32] | None, scale_d: int
) -> npt.NDArray[np.uint32]:
    half = shape.d_type == "f16"
    cells = np.zeros((len(a), len(b)), np.uint32) if before is None else before
    for first in range(0, a.shape[1], form.k):
        held = decode((cells & np.uint32(0xFFFF)).astype(np.uint16), "f16") if half else cells.view(np.float32)
        step = slice(first, first + form.k)
        onto = np.ldexp(held, -scale_d).astype(np.float32)
        total = multiply_add(a[:, step], b[:, step].T, onto, shape.a_type, shape.b_type, to_f16=half, adder=TCGEN05)
        cells = encode(total, "f16").astype(np.uint32) | np.uint32(0xFFFF0000) if half else total.view(np.uint32)
    return cells


def check_lane(address: int, half_allowed: bool, what: str) -> tuple[int, int]:
    """Return the (lane, column) of an operand's address.

    Raises
    ------
    ProtocolError
        If the lane is not 0 (or 16, where D has 16 of every 32 lanes).
    """
    lane, column = split_address(address)
    legal = (0, 16) if half_allowed else (0,)
    if lane not in legal:
        raise ProtocolError(
            f"the tensor-memory address {address:#010x} of {what} has lane {lane}; legal: "
            + " or ".join(map(str, legal)),
            hint="the lane is in bits 31:16 of the address",
        )
    return lane, column
