"""Subtiles: parts of the output in shared memory, and how a thread reaches the elements of its fragments there.

A subtile is some rows of the output by 128 bytes, swizzled over 128 bytes, as the copy engine stores and loads them.
Upright, the rows are those of the accumulators. Transposed, where the kernel computed the transpose of its output, they
are the accumulators' columns, and neighbours in a row come from neighbouring accumulator rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.types import F32 as F32_REGISTER
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, DType
from tilekit.tile_op.accumulator_fragments import FRAGMENT_ROWS
from tilekit.tile_op.accumulators import AccumulatorLayout

SUBTILE_ROW_BYTES = 128
"""Bytes of a subtile's row: the widest box a 128-byte swizzle allows."""

SUBTILE_ALIGNMENT = 1024
"""Bytes of the swizzle's atom."""

STMATRIX_COLUMNS = 16
"""Accumulator columns that one stmatrix.x4 of a warp stores; .x2 stores half as many."""

WORD_COLUMNS = 8
"""Accumulator columns whose elements a thread stores one by one, or two at once."""

UNIT_BYTES = 32
"""Bytes of a row that 16-bit and 32-bit elements are reached by together, upright."""

FRAGMENT_BYTES = FRAGMENT_ROWS * SUBTILE_ROW_BYTES
"""Bytes from a fragment to the next one of the warp, upright."""


def stores_since(index: int, pieces: int, buffers: int) -> int:
    """How many pieces have been stored since the buffer of piece `index` of a tile was last used.

    Every tile starts with buffer 0 again, so where the pieces of a tile are no multiple of the buffers, the last
    use of a tile's first buffers is not `buffers` stores ago. (With a constant wait a tile of one piece raced; the
    emulator found it.)
    """
    if index >= buffers:
        return buffers - 1
    last_use = (pieces - 1 - index) // buffers * buffers + index - pieces
    return index - last_use - 1


@dataclass(frozen=True)
class SubtileBox:
    """What one copy moves: a subtile's place in its buffer, and its first row and column among the accumulators.

    Attributes
    ----------
    offset
        Bytes from the start of the buffer.
    row, column
        Relative to the piece's first row and column in the tile.
    """

    offset: int
    row: int
    column: int


@dataclass(frozen=True)
class SubtilePlan:
    """How a warpgroup's accumulators are cut into pieces, and a piece into subtiles.

    A piece is all rows of a block by up to `columns` columns, and fills one buffer. Upright it is one subtile, of which
    parts of the block may lie apart in the output. Transposed it is a row of subtiles, each `columns` accumulator rows
    wide.

    Attributes
    ----------
    layout
        How a warpgroup holds the accumulators.
    dtype
        Element type in the subtiles.
    transposed
        Whether the accumulators' columns are the output's rows.
    """

    layout: AccumulatorLayout
    dtype: DType
    transposed: bool = False

    @property
    def columns(self) -> int:
        """Accumulator columns of a piece; transposed also accumulator rows of a subtile, all of one part."""
        span = SUBTILE_ROW_BYTES // self.dtype.bytes
        return min(span, self.layout.parts[0].rows) if self.transposed else span

    @property
    def unit(self) -> int:
        """Accumulator columns that a thread reaches together: some of a piece are read so many at a time."""
        return STMATRIX_COLUMNS if self.dtype.bits == 16 else WORD_COLUMNS

    @property
    def cuts(self) -> list[tuple[int, int]]:
        """First column and columns of each piece of a block."""
        return [
            (left, min(self.columns, self.layout.columns - left))
            for left in range(0, self.layout.columns, self.columns)
        ]

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a piece in shared memory."""
        if not self.transposed:
            return self.layout.rows * SUBTILE_ROW_BYTES
        return self.layout.rows // self.columns * self.subtile_bytes

    @property
    def subtile_bytes(self) -> int:
        """Bytes from a subtile to the next one of the piece."""
        rows = min(self.columns, self.layout.columns) if self.transposed else self.layout.rows
        return rows * SUBTILE_ROW_BYTES

    @property
    def widths(self) -> list[int]:
        """How many columns a piece may have, widest first."""
        return sorted({columns for _, columns in self.cuts}, reverse=True)

    def extents(self, columns: int) -> tuple[int, int]:
        """Columns and rows, in the output, of each subtile of a piece of so many columns."""
        return (self.columns, columns) if self.transposed else (columns, self.layout.parts[0].rows)

    @property
    def narrow(self) -> bool:
        """Whether some subtile's rows are shorter than the swizzle's 128 bytes, and still stand so far apart.

        No manual says that the copy engine moves them so; an H200 does.
        """
        return any(self.extents(width)[0] * self.dtype.bytes < SUBTILE_ROW_BYTES for width in self.widths)

    @property
    def boxes(self) -> Iterator[SubtileBox]:
        """The subtiles of a piece, or the parts of its one subtile."""
        for part in self.layout.parts:
            if not self.transposed:
                yield SubtileBox(part.first * SUBTILE_ROW_BYTES, part.row, part.column)
                continue
            for within in range(0, part.rows, self.columns):
                offset = (part.first + within) // self.columns * self.subtile_bytes
                yield SubtileBox(offset, part.row + within, part.column)

    def place(self, *, column: Value, row: Value) -> dict[str, Value]:
        """Row and column in the output of the accumulator at `row` and `column`."""
        return {"row": column, "column": row} if self.transposed else {"row": row, "column": column}

    def access(self, *, thread: Value, subtiles: Value) -> SubtileAccess:
        """Prepare a thread's addresses in buffers from `subtiles` on."""
        if self.transposed:
            if self.dtype.bits == 32:
                return _TransposedWords(self, thread, subtiles)
            return (_TransposedHalves if self.dtype.bits == 16 else _TransposedBytes)(self, thread, subtiles)
        if self.dtype.bits == 32:
            return _Words(self.layout, thread, subtiles)
        kind = _Halves if self.dtype.bits == 16 else _Bytes
        return kind(self.dtype, self.layout, thread, subtiles)


class SubtileAccess(Protocol):
    """How a thread reaches its elements, up to `columns` columns at a time.

    Their order is that of the accumulator fragment: of 8 columns, two in row r and the same two in row r + 8.
    """

    columns: int
    fragment_bytes: int
    """What a fragment adds to the offset of the one before it."""

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        """Round the f32 `values` of unit `unit` of the fragment at `offset` bytes and store them."""

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        """Load the `count` elements of unit `unit` of the fragment at `offset` bytes, as f32."""


def _swizzled(first: Value) -> list[Value]:
    """The addresses of a thread's units, 32 bytes each, in a subtile's row of which `first` is the first.

    They are a XOR away, because the swizzle flips address bits 4 to 6 by the row's low three bits; and the same for all
    subtiles and fragments, which are multiples of 8 rows: what lies between is added to them.
    """
    return [first, *(first ^ unit for unit in range(UNIT_BYTES, SUBTILE_ROW_BYTES, UNIT_BYTES))]


class _Halves:
    """16-bit elements, by stmatrix and ldmatrix: 16 columns of a warp's 16 rows together, or 8."""

    columns = STMATRIX_COLUMNS
    fragment_bytes = FRAGMENT_BYTES

    def __init__(self, dtype: DType, layout: AccumulatorLayout, thread: Value, subtiles: Value) -> None:
        self._bf16 = dtype == BF16
        # Lane l names row l % 16 of a fragment's 16 rows and the left or right half of 16 columns; of 8, the lower 16
        # lanes speak.
        row = layout.first_row(thread) + (thread & 15)
        chunk = ((thread >> 4) & 1) ^ (thread & 7)
        self._units = _swizzled(subtiles + row * SUBTILE_ROW_BYTES + (chunk << 4))

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        packed = RegisterTile(_packed(w, values, bf16=self._bf16))
        store = w.ptx.stmatrix.store_x4 if len(packed) == 4 else w.ptx.stmatrix.store_x2
        store(address=self._units[unit] + offset, values=packed)

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        load = w.ptx.ldmatrix.load_x4 if count == 8 else w.ptx.ldmatrix.load_x2
        return _widened(w, load(address=self._units[unit] + offset), bf16=self._bf16)


class _Words:
    """32-bit elements, two at a time."""

    columns = WORD_COLUMNS
    fragment_bytes = FRAGMENT_BYTES

    def __init__(self, layout: AccumulatorLayout, thread: Value, subtiles: Value) -> None:
        # Thread (row r, column pair c) of the accumulator layout; the swizzle flips the 16-byte chunk by the row.
        row = layout.first_row(thread) + ((thread >> 2) & 7)
        chunk = ((thread & 3) >> 1) ^ (row & 7)
        self._units = _swizzled(subtiles + row * SUBTILE_ROW_BYTES + (thread & 1) * 8 + (chunk << 4))

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        address = self._units[unit] + offset
        w.isa.memory.store_shared_f32x2(address=address, low=values[0], high=values[1])
        w.isa.memory.store_shared_f32x2(address=address + 8 * SUBTILE_ROW_BYTES, low=values[2], high=values[3])

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        address = self._units[unit] + offset
        upper = w.isa.memory.load_shared_f32x2(address=address)
        return [*upper, *w.isa.memory.load_shared_f32x2(address=address + 8 * SUBTILE_ROW_BYTES)]


class _Bytes:
    """8-bit elements, two at a time."""

    columns = WORD_COLUMNS
    fragment_bytes = FRAGMENT_BYTES

    def __init__(self, dtype: DType, layout: AccumulatorLayout, thread: Value, subtiles: Value) -> None:
        self._e4m3 = dtype == E4M3
        row = layout.first_row(thread) + ((thread >> 2) & 7)
        first = subtiles + row * SUBTILE_ROW_BYTES + (thread & 3) * 2 + ((row & 7) << 4)
        self._chunks = [first, *(first ^ chunk for chunk in range(16, SUBTILE_ROW_BYTES, 16))]

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        pack = w.isa.convert.pack_e4m3 if self._e4m3 else w.isa.convert.pack_e5m2
        chunk, half = divmod(unit, 2)
        address = self._chunks[chunk] + (8 * half + offset)
        for row in range(2):
            value = pack(low=values[2 * row], high=values[2 * row + 1])
            w.isa.memory.store_shared_b16(address=address + row * 8 * SUBTILE_ROW_BYTES, value=value)

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        raise AssertionError("no kernel reads 8-bit subtiles: a residual has 16 or 32 bits")


class _TransposedHalves:
    """16-bit elements, by transposing stmatrix and ldmatrix: 16 rows of the output, or 8, by a warp's 16 columns."""

    columns = STMATRIX_COLUMNS
    fragment_bytes = 0

    def __init__(self, plan: SubtilePlan, thread: Value, subtiles: Value) -> None:
        self._bf16 = plan.dtype == BF16
        # Matrices come as the accumulators hold them: rows 0 and 8 of columns 0, then of columns 8. Lane l names
        # column l % 8 of matrix l / 8, which is a row of the subtile.
        subtile, chunk = _subtile_and_chunk(plan, thread)
        row = ((thread >> 4) & 1) * 8 + (thread & 7)
        chunk = (chunk + ((thread >> 3) & 1)) ^ (thread & 7)
        first = subtiles + subtile * plan.subtile_bytes + row * SUBTILE_ROW_BYTES + (chunk << 4)
        self._fragments = [first, *(first ^ (fragment << 5) for fragment in range(1, plan.layout.fragments))]

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        packed = RegisterTile(_packed(w, values, bf16=self._bf16))
        store = w.ptx.stmatrix.store_x4_trans if len(packed) == 4 else w.ptx.stmatrix.store_x2_trans
        store(address=self._place(unit, fragment, offset), values=packed)

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        load = w.ptx.ldmatrix.load_x4_trans if count == 8 else w.ptx.ldmatrix.load_x2_trans
        return _widened(w, load(address=self._place(unit, fragment, offset)), bf16=self._bf16)

    def _place(self, unit: int, fragment: int, offset: Operand) -> Value:
        return self._fragments[fragment] + (offset + unit * self.columns * SUBTILE_ROW_BYTES)


class _TransposedWords:
    """32-bit elements, one at a time: a warp stores 8 columns of 4 rows of the output, in 32 different banks."""

    columns = WORD_COLUMNS
    fragment_bytes = 0

    def __init__(self, plan: SubtilePlan, thread: Value, subtiles: Value) -> None:
        subtile, chunk = _subtile_and_chunk(plan, thread)
        row = (thread & 3) * 2
        chunk = (chunk + ((thread >> 4) & 1)) ^ row
        first = (
            subtiles + subtile * plan.subtile_bytes + row * SUBTILE_ROW_BYTES + (chunk << 4) + ((thread >> 2) & 3) * 4
        )
        # The next column is the next row of the subtile and so one chunk over; 8 and 16 rows are 2 and 4 chunks.
        self._fragments = [
            [first ^ (fragment << 6 | corner << 4) if fragment or corner else first for corner in range(4)]
            for fragment in range(plan.layout.fragments)
        ]

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        for index, value in enumerate(values):
            w.isa.memory.store_shared_f32(address=self._place(index, unit, fragment, offset), value=value)

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        load = w.isa.memory.load_shared_f32
        return [load(address=self._place(index, unit, fragment, offset)) for index in range(count)]

    def _place(self, index: int, unit: int, fragment: int, offset: Operand) -> Value:
        half, odd = divmod(index, 2)
        within = (unit * self.columns + odd) * SUBTILE_ROW_BYTES
        return self._fragments[fragment][2 * half + odd] + (offset + within)


class _TransposedBytes:
    """8-bit elements, two at a time: neighbouring lanes, which hold neighbouring rows, swap one of two columns."""

    columns = WORD_COLUMNS
    fragment_bytes = 0

    def __init__(self, plan: SubtilePlan, thread: Value, subtiles: Value) -> None:
        self._e4m3 = plan.dtype == E4M3
        subtile, chunk = _subtile_and_chunk(plan, thread)
        upper = (thread >> 2) & 1
        row = (thread & 3) * 2 + upper
        address = subtiles + subtile * plan.subtile_bytes + row * SUBTILE_ROW_BYTES
        first = address + ((chunk ^ row) << 4) + ((thread >> 2) & 6)
        self._fragments = [first, *(first ^ (fragment << 4) for fragment in range(1, plan.layout.fragments))]
        self._upper = upper == 1

    def write(self, w: Writer, unit: int, fragment: int, offset: Operand, values: list[Value]) -> None:
        pack = w.isa.convert.pack_e4m3 if self._e4m3 else w.isa.convert.pack_e5m2
        for half in range(2):
            left, right = values[2 * half], values[2 * half + 1]
            # The lane with the upper row of two takes the right column of both, its neighbour the left one.
            given = w.select(self._upper, left, right, F32_REGISTER)
            taken = w.isa.warp.shuffle_xor_f32(value=given, mask=4)
            packed = pack(
                low=w.select(self._upper, taken, left, F32_REGISTER),
                high=w.select(self._upper, right, taken, F32_REGISTER),
            )
            place = self._fragments[fragment] + (offset + unit * self.columns * SUBTILE_ROW_BYTES + 8 * half)
            w.isa.memory.store_shared_b16(address=place, value=packed)

    def read(self, w: Writer, unit: int, fragment: int, offset: Operand, count: int) -> list[Value]:
        raise AssertionError("no kernel reads 8-bit subtiles: a residual has 16 or 32 bits")


def _subtile_and_chunk(plan: SubtilePlan, thread: Value) -> tuple[Value, Value]:
    """Subtile and 16-byte chunk of its rows in which the rows of this thread's warp begin, transposed."""
    row, span = plan.layout.first_row(thread), plan.columns
    chunk_rows = 16 // plan.dtype.bytes
    return row >> (span.bit_length() - 1), (row & (span - 1)) >> (chunk_rows.bit_length() - 1)


def _packed(w: Writer, values: list[Value], *, bf16: bool) -> list[Value]:
    pack = w.isa.convert.pack_bf16 if bf16 else w.isa.convert.pack_f16
    return [pack(low=values[i], high=values[i + 1]) for i in range(0, len(values), 2)]


def _widened(w: Writer, packed: RegisterTile, *, bf16: bool) -> list[Value]:
    widen = w.isa.convert.widen_bf16 if bf16 else w.isa.convert.widen_f16
    return [widen(narrow=narrow) for pair in packed for narrow in w.isa.convert.unpack(packed=pair)]
