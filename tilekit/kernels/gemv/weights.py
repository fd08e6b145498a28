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
from tilekit.dtypes import BF16, F16, DType
from tilekit.kernels.gemv.chunk import CHUNK_REGISTERS, load_chunk
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec, counted

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
    """

    columns: int
    k_block: int
    bytes: int
    lane_k: int
    chunks: int
    sums: int


def shape_of(spec: GemvSpec) -> Shape:
    """The k-block that a spec's major and types give."""
    size = spec.b_dtype.bytes
    if spec.b_major == "k":
        return Shape(ROWS, SPAN // size, ROWS * SPAN, VECTOR // size, chunks=2, sums=4)
    columns, lane_k = SPAN // size, VECTOR // size
    return Shape(columns, 4 * lane_k, 4 * lane_k * SPAN, lane_k, chunks=1, sums=2 * lane_k)


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
        self._base = w.parameter("b", GMEM, lambda call: call.address("b"))
        self._pitch = w.parameter("b_pitch", U32, lambda call: counted("b's pitch", call.matrix("b").pitch))

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

    def _mma(self, w: Writer, sums: RegisterTile, weights: tuple[Value, ...], x: tuple[Value, Value]) -> None:
        operands = {f"w{i}": value for i, value in enumerate(weights)} | {"x0": x[0], "x1": x[1]}
        narrow = self.spec.b_dtype not in (BF16, F16)
        w.ptx.mma.m16n8k16(sums=sums, **operands, type="f16" if narrow else self.spec.b_dtype.name)


class RowWeights(Weights):
    """K contiguous: lane (g, t) loads 16 bytes at 16 t and at 64 + 16 t of the rows g and g + 8 of each group.

    A load of a warp covers 64 contiguous bytes of eight rows, the next one the other half of these lines.
    """

    def bind(self, w: Writer, place: Place) -> None:
        super().bind(w, place)
        self._rows = range(2 * self.groups)
        self._first = w.new(U32, "first_row", uniform=False)
        self._along = w.new(GMEM, "weights", uniform=False)

    def begin(self, w: Writer, tile: Value) -> None:
        self._first.assign(tile * self.columns + self._place.group)
        self._along.assign(self._base + w.widen_multiply(self._place.k, self.spec.b_dtype.bytes))

    def advance(self, w: Writer) -> None:
        self._along.assign(self._along + self.slots.step * self.spec.b_dtype.bytes)

    def load(self, w: Writer, slot: int, left: Value) -> None:
        size = self.spec.b_dtype.bytes
        # A row beyond the last is the last once more: its sums go nowhere.
        rows = [w.minimum(self._first + ROWS // 2 * index, self._n - 1) for index in self._rows]
        addresses = [(self._along + w.widen_multiply(row, self._pitch)).retyped(GMEM) for row in rows]
        for chunk in range(self.shape.chunks):
            first = slot * self.slots.stride + chunk * self.shape.k_block // self.shape.chunks
            valid = remaining(left, first, size)
            for index, address in enumerate(addresses):
                load_chunk(
                    w,
                    self._slots[slot][chunk * len(self._rows) + index],
                    address,
                    offset=first * size,
                    access=self.spec.b_access,
                    valid=valid,
                    l2_bytes=self._l2_bytes,
                )

    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        for chunk, registers in enumerate(tokens):
            x = pairs(w, registers, self.spec.a_dtype)
            for group, accumulators in enumerate(sums):
                at = chunk * len(self._rows) + 2 * group
                upper, lower = (pairs(w, line, self.spec.b_dtype) for line in self._slots[slot][at : at + 2])
                for one, other in zip(range(0, len(x), 2), range(1, len(x), 2), strict=True):
                    weights = (upper[one], lower[one], upper[other], lower[other])
                    self._mma(w, accumulators, weights, (x[one], x[other]))

    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        size = self.spec.b_dtype.bytes
        count = w.minimum(end - start, steps * self.slots.step) * size
        for first in range(0, self.columns, threads):
            row = self._place.thread + first
            column = tile * self.columns + row
            valid = (row < self.columns) & (column < self._n) & (start < end)
            address = self._base + w.widen_multiply(column, self._pitch) + w.widen_multiply(start, size)
            w.ptx.stream.prefetch(address=address, bytes=count, valid=valid)

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
        self._first = w.new(GMEM, "weights", uniform=False)
        self._columns_left = w.new(S32, "columns_left", uniform=False)

    def begin(self, w: Writer, tile: Value) -> None:
        column = tile * self.columns + self._place.group * self.shape.lane_k
        row = w.widen_multiply(self._place.k, self._pitch)
        self._first.assign(self._base + row + w.widen_multiply(column, self.spec.b_dtype.bytes))
        self._columns_left.assign((self._n - column).retyped(self._columns_left.type))

    def advance(self, w: Writer) -> None:
        self._first.assign(self._first + w.widen_multiply(self._pitch, self.slots.step))

    def load(self, w: Writer, slot: int, left: Value) -> None:
        size = self.spec.b_dtype.bytes
        for row in range(self.shape.lane_k):
            below = slot * self.slots.stride + row
            inside = left > below
            address = self._first + w.widen_multiply(self._pitch, below) if below else self._first
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

    def multiply(self, w: Writer, slot: int, tokens: list[RegisterTile], sums: list[RegisterTile]) -> None:
        (x,) = tokens
        for half in (0, 2):
            for group in range(self.groups):
                at = group * self.shape.lane_k + 2 * half
                rows = self._slots[slot][at : at + 4]
                for pair in range(CHUNK_REGISTERS):
                    low, high = w.isa.convert.interleave(first=rows[0][pair], second=rows[1][pair])
                    low8, high8 = w.isa.convert.interleave(first=rows[2][pair], second=rows[3][pair])
                    accumulators = sums[group * CHUNK_REGISTERS + pair]
                    self._mma(w, accumulators, (low, high, low8, high8), (x[half], x[half + 1]))

    def prefetch(self, w: Writer, tile: Value, steps: int, start: Value, end: Value, threads: int) -> None:
        size = self.spec.b_dtype.bytes
        column = tile * self.columns
        count = w.minimum(self._n - column, self.columns) * size
        along = w.widen_multiply(column, size)
        for first in range(0, steps * self.slots.step, threads):
            row = start + self._place.thread + first
            valid = (row < end) & (self._place.thread + first < steps * self.slots.step)
            address = self._base + w.widen_multiply(row, self._pitch) + along
            w.ptx.stream.prefetch(address=address, bytes=count, valid=valid)

    def lane_column(self) -> Value:
        return self._place.group * self.shape.lane_k

    def sum_columns(self) -> list[tuple[int, int]]:
        return [
            (self.shape.columns * group + 2 * pair, self.shape.columns * group + 2 * pair + 1)
            for group in range(self.groups)
            for pair in range(CHUNK_REGISTERS)
        ]


def pairs(w: Writer, registers: RegisterTile, dtype: DType) -> list[Value]:
    """The 16-bit pairs of a chunk along K: its registers, or 8-bit types widened to f16, in which they are exact."""
    if dtype.bits == 16:
        return list(registers)
    halves = (w.isa.convert.widen_fp8x4(packed=register, type=dtype.name) for register in registers)
    return [half for both_halves in halves for half in both_halves]


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
