"""Slabs: parts of the output in shared memory, and how a thread reaches the elements of its fragments there.

A slab is the rows of a block by 128 bytes, swizzled over 128 bytes, as the copy engine stores and loads them.
"""

from __future__ import annotations

from typing import Protocol

from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, F32, DType
from tilekit.tile_op.accumulators import AccumulatorLayout

SLAB_BYTES = 128
"""Bytes of a slab's row: the widest box a 128-byte swizzle allows."""


UNIT_BYTES = 32
"""Bytes of a row that 16-bit and 32-bit elements are reached by together."""


class SlabAccess(Protocol):
    """How a thread reaches its elements, `columns` at a time.

    Their order is that of the accumulator fragment: of 8 columns, two in row r and the same two in row r + 8.
    """

    columns: int

    def write(self, w: Writer, unit: int, offset: int, values: list[Value]) -> None:
        """Round the f32 `values` of unit `unit` of the fragment at `offset` bytes and store them."""

    def read(self, w: Writer, unit: int, offset: Operand) -> list[Value]:
        """Load the elements of unit `unit` of the fragment at `offset` bytes, as f32."""


def slab_columns(dtype: DType) -> int:
    """Columns of a slab."""
    return SLAB_BYTES // dtype.bytes


def slab_access(w: Writer, layout: AccumulatorLayout, dtype: DType, *, thread: Value, slabs: Value) -> SlabAccess:
    """Prepare a thread's addresses in slabs at `slabs`."""
    if dtype == F32:
        return _Words(layout, thread, slabs)
    return _Halves(dtype, layout, thread, slabs) if dtype.bits == 16 else _Bytes(dtype, layout, thread, slabs)


def _swizzled(first: Value) -> list[Value]:
    """The addresses of a thread's units, 32 bytes each, in a slab's row of which `first` is the first.

    They are a XOR away, because the swizzle flips address bits 4 to 6 by the row's low three bits; and the same for all
    slabs and fragments, which are multiples of 8 rows: what lies between is added to them.
    """
    return [first, *(first ^ unit for unit in range(UNIT_BYTES, SLAB_BYTES, UNIT_BYTES))]


class _Halves:
    """16-bit elements, by stmatrix and ldmatrix: 16 columns of a warp's 16 rows together."""

    columns = 16

    def __init__(self, dtype: DType, layout: AccumulatorLayout, thread: Value, slabs: Value) -> None:
        self._bf16 = dtype == BF16
        # Lane l names row l % 16 of a fragment's 16 rows and the left or right half of a 16-column pair.
        row = layout.first_row(thread) + (thread & 15)
        chunk = ((thread >> 4) & 1) ^ (thread & 7)
        self._units = _swizzled(slabs + row * SLAB_BYTES + (chunk << 4))

    def write(self, w: Writer, unit: int, offset: int, values: list[Value]) -> None:
        pack = w.ptx.convert.pack_bf16 if self._bf16 else w.ptx.convert.pack_f16
        packed = [pack(low=values[i], high=values[i + 1]) for i in range(0, 8, 2)]
        w.ptx.stmatrix.store_x4(address=self._units[unit] + offset, values=RegisterTile(packed))

    def read(self, w: Writer, unit: int, offset: Operand) -> list[Value]:
        widen = w.ptx.convert.widen_bf16 if self._bf16 else w.ptx.convert.widen_f16
        packed = w.ptx.ldmatrix.load_x4(address=self._units[unit] + offset)
        return [widen(narrow=narrow) for pair in packed for narrow in w.ptx.convert.unpack(packed=pair)]


class _Words:
    """32-bit elements, two at a time."""

    columns = 8

    def __init__(self, layout: AccumulatorLayout, thread: Value, slabs: Value) -> None:
        # Thread (row r, column pair c) of the accumulator layout; the swizzle flips the 16-byte chunk by the row.
        row = layout.first_row(thread) + ((thread >> 2) & 7)
        chunk = ((thread & 3) >> 1) ^ (row & 7)
        self._units = _swizzled(slabs + row * SLAB_BYTES + (thread & 1) * 8 + (chunk << 4))

    def write(self, w: Writer, unit: int, offset: int, values: list[Value]) -> None:
        address = self._units[unit] + offset
        w.ptx.memory.store_shared_f32x2(address=address, low=values[0], high=values[1])
        w.ptx.memory.store_shared_f32x2(address=address + 8 * SLAB_BYTES, low=values[2], high=values[3])

    def read(self, w: Writer, unit: int, offset: Operand) -> list[Value]:
        address = self._units[unit] + offset
        upper = w.ptx.memory.load_shared_f32x2(address=address)
        return [*upper, *w.ptx.memory.load_shared_f32x2(address=address + 8 * SLAB_BYTES)]


class _Bytes:
    """8-bit elements, two at a time."""

    columns = 8

    def __init__(self, dtype: DType, layout: AccumulatorLayout, thread: Value, slabs: Value) -> None:
        self._e4m3 = dtype == E4M3
        row = layout.first_row(thread) + ((thread >> 2) & 7)
        self._row_address = slabs + row * SLAB_BYTES + (thread & 3) * 2
        self._swizzle = (row & 7) << 4

    def write(self, w: Writer, unit: int, offset: int, values: list[Value]) -> None:
        pack = w.ptx.convert.pack_e4m3 if self._e4m3 else w.ptx.convert.pack_e5m2
        chunk, half = divmod(unit, 2)
        address = self._row_address + ((self._swizzle ^ (chunk << 4)) + (8 * half + offset))
        for row in range(2):
            value = pack(low=values[2 * row], high=values[2 * row + 1])
            w.ptx.memory.store_shared_b16(address=address + row * 8 * SLAB_BYTES, value=value)

    def read(self, w: Writer, unit: int, offset: Operand) -> list[Value]:
        raise AssertionError("no kernel reads 8-bit slabs: a residual has 16 or 32 bits")
