"""The weights in registers: which lane loads what, so that 16-byte loads are fragments of the matrix instruction.

``mma.m16n8k16`` multiplies 16 columns of B (its "rows") with eight tokens. Its lane (g, t), g = lane / 4 and t = lane %
4, holds the k-pairs 2t and 2t + 8 of the rows g and g + 8. A sum does not care in which order K is walked, nor the
kernel which columns of B stand in which row: both are permuted so that what a lane holds is contiguous in memory. The
tokens are permuted along K in the same way (`tokens.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.types import B32, F32, GMEM, S32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.streaming import Place, Slots
from tilekit.dtypes import BF16, F16
from tilekit.kernels.gemv.chunk import CHUNK_REGISTERS, load_chunk
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec

ROWS = 16
"""Columns of B in one matrix instruction."""

SPAN = 128
"""Bytes that a k-block takes along the contiguous dimension: a line of L2."""


@dataclass(frozen=True)
class Shape:
    """What one k-block of one group is, for either major.

    Attributes
    ----------
    columns, k_block
        Columns of B and elements of K.
    bytes
        Weights of a k-block.
    lane_k
        Consecutive elements of K of one lane, in each of `chunks` places.
    sums
        Accumulators of a thread.
    pointers
        64-bit addresses a thread keeps.
    """

    columns: int
    k_block: int
    bytes: int
    lane_k: int
    chunks: int
    sums: int
    pointers: int


def shape_of(spec: GemvSpec) -> Shape:
    """The k-block that a spec's major and types give."""
    size = spec.b_dtype.bytes
    if spec.b_major == "k":
        return Shape(ROWS, SPAN // size, ROWS * SPAN, VECTOR // size, chunks=2, sums=4, pointers=2)
    columns, lane_k = SPAN // size, VECTOR // size
    return Shape(columns, 4 * lane_k, 4 * lane_k * SPAN, lane_k, chunks=1, sums=2 * lane_k, pointers=1)


class Weights(ABC):
    """B on its way through the registers of a warp.

    Parameters
    ----------
    w
        The writer; address and pitch become kernel parameters.
    spec
        Types, major, width of the loads.
    groups, slots
        Column groups of the tile, and the ring of slots.
    l2_bytes
        What L2 fetches around a load.
    n
        Columns of B.
    """

    def __init__(self, w: Writer, spec: GemvSpec, *, groups: int, slots: Slots, l2_bytes: int, n: Value) -> None:
        self.spec = spec
        self.shape = shape_of(spec)
        self.groups = groups
        self.slots = slots
        self._l2_bytes = l2_bytes
        self._n = n
        self._base = w.parameter("b", GMEM)
        self._pitch = w.parameter("b_pitch", U32)

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.shape.columns * self.groups

    def sums(self, w: Writer) -> list[RegisterTile]:
        """Four accumulators for each matrix instruction of a k-block's slice along K."""
        return [w.tile(F32, 4, "sum_") for _ in range(self.groups * self.shape.sums // 4)]

    def clear(self, w: Writer, sums: list[RegisterTile]) -> None:
        """Zero the accumulators."""
        for tile in sums:
            for register in tile:
                register.assign(0.0)

    def bind(self, w: Writer, place: Place) -> None:
        """Prepare a thread's registers; once a kernel."""
        self._place = place
        lines = range(self.groups * self.shape.bytes // (32 * VECTOR))
        self._slots = [[w.tile(B32, CHUNK_REGISTERS, "w_") for _ in lines] for _ in range(self.slots.count)]
        self._pointers = [
            w.new(GMEM, "weights", uniform=False)
            for _ in range(self.shape.pointers * (self.groups if self.spec.b_major == "k" else 1))
        ]

    @abstractmethod
    def begin(self, w: Writer, tile: Value) -> None:
        """Point at what this lane reads first of a tile of columns."""

    @abstractmethod
    def advance(self, w: Writer) -> None:
        """Go on by one step along K."""

    @abstractmethod
    def load(self, w: Writer, slot: int, left: Value) -> None:
        """Start the loads of a slot; `left` elements of K remain for this lane (s32), what lies beyond becomes zero."""

    @abstractmethod
    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        """Add a slot's products to the accumulators."""

    @abstractmethod
    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        """Bring the first `steps` steps of a tile into L2: K from `start` to `end`, with all threads of the CTA."""

    @abstractmethod
    def lane_column(self) -> Value:
        """The first column of the tile that this lane has sums of."""

    @abstractmethod
    def sum_columns(self) -> list[tuple[int, int]]:
        """For each accumulator tile the distances of its two columns from `lane_column`."""

    def _mma(self, w: Writer, sums: RegisterTile, weights: tuple[Value, ...], x0: Value, x1: Value) -> None:
        operands = {f"w{i}": value for i, value in enumerate(weights)} | {"x0": x0, "x1": x1}
        if self.spec.b_dtype in (BF16, F16):
            w.ptx.gemv.mma_16bit(sums=sums, **operands, type=self.spec.b_dtype.name)
        else:
            types = {"w_type": self.spec.b_dtype.name, "x_type": self.spec.a_dtype.name}
            w.ptx.gemv.mma_8bit(sums=sums, **operands, **types)


class RowWeights(Weights):
    """K contiguous: lane (g, t) loads 16 bytes at 16 t and at 64 + 16 t of the rows g and g + 8 of each group.

    A load of a warp covers 64 contiguous bytes of eight rows, the next one the other half of these lines.
    """

    def begin(self, w: Writer, tile: Value) -> None:
        first = tile * self.columns + self._place.group
        along = w.widen_multiply(self._place.k, self.spec.b_dtype.bytes)
        for index, pointer in enumerate(self._pointers):
            # A row beyond the last is the last once more: its sums go nowhere.
            row = w.minimum(first + 8 * index, self._n - 1)
            pointer.assign(self._base + w.widen_multiply(row, self._pitch) + along)

    def advance(self, w: Writer) -> None:
        for pointer in self._pointers:
            pointer.assign(pointer + self.slots.step * self.spec.b_dtype.bytes)

    def load(self, w: Writer, slot: int, left: Value) -> None:
        size = self.spec.b_dtype.bytes
        for chunk in range(self.shape.chunks):
            first = slot * self.slots.stride + chunk * self.shape.k_block // self.shape.chunks
            valid = remaining(left, first, size)
            for row, pointer in enumerate(self._pointers):
                load_chunk(
                    w,
                    self._slots[slot][chunk * len(self._pointers) + row],
                    pointer,
                    offset=first * size,
                    access=self.spec.b_access,
                    valid=valid,
                    l2_bytes=self._l2_bytes,
                )

    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        for chunk, x in enumerate(tokens):
            for group, accumulators in enumerate(sums):
                at = chunk * len(self._pointers) + 2 * group
                low, high = self._slots[slot][at : at + 2]
                for half in (0, 2):
                    weights = (low[half], high[half], low[half + 1], high[half + 1])
                    self._mma(w, accumulators, weights, x[half], x[half + 1])

    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        size = self.spec.b_dtype.bytes
        count = w.minimum(end - start, steps * self.slots.step) * size
        for first in range(0, self.columns, threads):
            row = self._place.thread + first
            column = tile * self.columns + row
            valid = (row < self.columns) & (column < self._n) & (start < end)
            address = self._base + w.widen_multiply(column, self._pitch) + w.widen_multiply(start, size)
            w.ptx.gemv.prefetch(address=address, bytes=count, valid=valid)

    def lane_column(self) -> Value:
        return self._place.group

    def sum_columns(self) -> list[tuple[int, int]]:
        return [(ROWS * group, ROWS * group + 8) for group in range(self.groups)]


class ColumnWeights(Weights):
    """N contiguous: lane (g, t) loads the columns 8g to 8g + 7 of the rows 8t to 8t + 7 of a k-block of 32.

    A load of a warp covers 128 contiguous bytes of four rows. Two rows are interleaved into pairs along K.
    """

    def bind(self, w: Writer, place: Place) -> None:
        super().bind(w, place)
        self._columns_left = w.new(S32, "columns_left", uniform=False)
        self._row = w.widen_multiply(self._pitch, 1)
        self._slot_rows = w.widen_multiply(self._pitch, self.slots.stride)

    def begin(self, w: Writer, tile: Value) -> None:
        self._column = tile * self.columns + self._place.group * self.shape.lane_k
        (pointer,) = self._pointers
        row = w.widen_multiply(self._place.k, self._pitch)
        pointer.assign(self._base + row + w.widen_multiply(self._column, self.spec.b_dtype.bytes))
        self._columns_left.assign((self._n - self._column).retyped(self._columns_left.type))

    def advance(self, w: Writer) -> None:
        (pointer,) = self._pointers
        pointer.assign(pointer + self._slot_rows * self.slots.count)

    def load(self, w: Writer, slot: int, left: Value) -> None:
        size = self.spec.b_dtype.bytes
        (address,) = self._pointers
        if slot:
            address = address + self._slot_rows * slot
        for row in range(self.shape.lane_k):
            inside = left > slot * self.slots.stride + row
            for group in range(self.groups):
                first = group * self.shape.columns
                columns = remaining(self._columns_left, first, size)
                load_chunk(
                    w,
                    self._slots[slot][group * self.shape.lane_k + row],
                    address,
                    offset=first * size,
                    access=self.spec.b_access,
                    valid=both(columns, inside),
                    l2_bytes=self._l2_bytes,
                )
            address = address + self._row

    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        (x,) = tokens
        for half in (0, 2):
            for group in range(self.groups):
                at = group * self.shape.lane_k + 2 * half
                rows = self._slots[slot][at : at + 4]
                for pair in range(CHUNK_REGISTERS):
                    low, high = w.ptx.gemv.interleave(first=rows[0][pair], second=rows[1][pair])
                    low8, high8 = w.ptx.gemv.interleave(first=rows[2][pair], second=rows[3][pair])
                    accumulators = sums[group * CHUNK_REGISTERS + pair]
                    self._mma(w, accumulators, (low, high, low8, high8), x[half], x[half + 1])

    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        size = self.spec.b_dtype.bytes
        column = tile * self.columns
        count = w.minimum(self._n - column, self.columns) * size
        along = w.widen_multiply(column, size)
        for first in range(0, steps * self.slots.step, threads):
            row = start + self._place.thread + first
            valid = (row < end) & (self._place.thread + first < steps * self.slots.step)
            address = self._base + w.widen_multiply(row, self._pitch) + along
            w.ptx.gemv.prefetch(address=address, bytes=count, valid=valid)

    def lane_column(self) -> Value:
        return self._place.group * self.shape.lane_k

    def sum_columns(self) -> list[tuple[int, int]]:
        return [
            (self.shape.columns * group + 2 * pair, self.shape.columns * group + 2 * pair + 1)
            for group in range(self.groups)
            for pair in range(CHUNK_REGISTERS)
        ]


def both(columns: Callable[[int], Value], inside: Value) -> Callable[[int], Value]:
    """Whether a load's columns exist, and its row."""
    return lambda byte: columns(byte) & inside


def remaining(left: Value, first: int, size: int) -> Callable[[int], Value]:
    """Whether the element at a byte of a chunk exists, where `left` elements remain and the chunk begins at `first`."""
    known: dict[int, Value] = {}

    def valid(byte: int) -> Value:
        if byte not in known:
            known[byte] = left > first + byte // size
        return known[byte]

    return valid
