"""TileOp on Blackwell: matrix multiply-accumulate of a CTA or a CTA pair, accumulators in tensor memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import Whole, require_whole
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, S32, U32, RegisterType
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import AccumulatorLayout, Part
from tilekit.tile_op.descriptors import ADDRESS_MASK, K_BYTES, TCGEN05_MODES, MatrixDescriptor
from tilekit.tile_op.images import check_images
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

LANES = 128
"""Lanes of tensor memory."""
MAX_COLUMNS = 256
"""The largest N of an instruction (PTX ISA, tcgen05.mma, Shape table)."""

_KINDS = {"f16": "f16", "bf16": "f16", "f32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8"}
_FORMATS = {"f16": 0, "bf16": 1, "f32": 2, "e4m3": 0, "e5m2": 1, "s8": 1}
_SUMS = {F32: 1, S32: 2}
KINDS = (("bf16",), ("f16",), ("f32",), ("e4m3", "e5m2"), ("s8",))
"""Element types, those that one instruction takes together; f32 is read as tf32."""


def sums_of(a: OperandTile) -> RegisterType:
    """The type of an accumulator."""
    return S32 if a.dtype.name == "s8" else F32


def instruction_descriptor(a: OperandTile, b: OperandTile, *, m: int, n: int) -> int:
    """Encode shape, types and majors (PTX ISA, tcgen05.mma, Instruction descriptor); sums of s8 wrap."""
    return (
        _SUMS[sums_of(a)] << 4
        | _FORMATS[a.dtype.name] << 7
        | _FORMATS[b.dtype.name] << 10
        | int(a.major == "mn") << 15
        | int(b.major == "mn") << 16
        | (n >> 3) << 17
        | (m >> 4) << 24
    )


@component
class Tcgen05:
    """Multiplies the tiles of a stage into accumulators.

    Parameters
    ----------
    a, b
        The operand tiles as one CTA holds them: its rows of A, and all of B's rows or, with pairs, its half of them.
    group
        CTAs that an instruction spans, 1 or 2.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles whose images the instruction cannot read, ``TK-PART-001`` for rows that it has no
        shape for.
    """

    kinds: tuple[tuple[str, ...], ...] = KINDS
    """Element types, those that one instruction takes together."""

    kind = ""
    """Of the instruction; by default that of the tiles' types."""

    scale_columns = 0
    """Columns of tensor memory that it takes beside the accumulators."""

    claimed: Callable[[Writer], Value]
    """The address of these columns, once they are claimed."""

    def __init__(self, a: OperandTile, b: OperandTile, *, group: Annotated[int, Whole(1, 2)]) -> None:
        check_images("tcgen05.mma", a, b, self.kinds)
        require_whole("Tcgen05", "a.rows", a.rows, Whole(LANES // 2, LANES, LANES // 2))
        step = 16 if (group == 1 and a.rows == LANES) or a.dtype.name == "s8" else 8
        require_whole("Tcgen05", "b.rows", b.rows, Whole(step, MAX_COLUMNS // group, step))
        self.kind = self.kind or _KINDS[a.dtype.name]
        self.a = a
        self.b = b
        self.group = group
        self.m = a.rows * group
        self.n = b.rows * group
        self.descriptor = self.encode()
        self.k = 8 * K_BYTES // a.bits
        self._a_descriptor = MatrixDescriptor.of(a, TCGEN05_MODES)
        self._b_descriptor = MatrixDescriptor.of(b, TCGEN05_MODES)

    def encode(self) -> int:
        """The instruction descriptor."""
        return instruction_descriptor(self.a, self.b, m=self.m, n=self.n)

    def claim(self, memory: TensorMemory, role: Role) -> None:
        """Claim the columns that it takes of tensor memory, which `role` fills; with no scales, none."""
        if self.scale_columns:
            region = memory.claim("scales", columns=self.scale_columns, claimant=type(self).__name__)
            self.claimed = lambda w: region.at(memory.bind(w, role))

    @property
    def sums(self) -> RegisterType:
        """The type of an accumulator."""
        return sums_of(self.a)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of the tile that a stage is multiplied for."""
        return self.a.rows, self.n

    @property
    def layout(self) -> AccumulatorLayout:
        """How a CTA's tensor memory holds its part of the tile (PTX ISA, tcgen05, Data path layouts A, B, D and F).

        64 rows of a CTA lie in the lower 16 lanes of each warp's 32; 64 rows of each CTA of a pair fill all lanes,
        the upper ones with the second half of the columns.
        """
        rows, columns = self.a.rows, self.n
        parts: tuple[Part, ...] = (Part(0, rows, 0, 0),)
        if self.a.rows != LANES and self.group > 1:
            rows, columns = LANES, self.n // 2
            parts = (Part(0, LANES // 2, 0, 0), Part(LANES // 2, LANES // 2, 0, columns))
        return AccumulatorLayout(1, rows, columns, parts, waves=4, lanes=32)

    @property
    def data_path(self) -> str:
        """The letter of that layout: D and F of one CTA, A and B of a pair."""
        return ("AB" if self.group == 2 else "DF")[self.a.rows < LANES]

    @checked
    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Any = None) -> BoundTcgen05:
        """Prepare the descriptors; once a role."""
        return BoundTcgen05(w, self, tiles)


class BoundTcgen05:
    """A `Tcgen05` in the thread that issues: descriptors at hand, ready to multiply stages."""

    committed = True

    def __init__(self, w: Writer, op: Tcgen05, tiles: dict[str, SharedArray]) -> None:
        self._op = op
        a, b = tiles[op.a.name], tiles[op.b.name]
        self._a_stride, self._b_stride = a.stride >> 4, b.stride >> 4
        base = w.shared_base.retyped(U32)
        self._a_low = (((base + a.offset) & ADDRESS_MASK) >> 4) | op._a_descriptor.low
        self._b_low = (((base + b.offset) & ADDRESS_MASK) >> 4) | op._b_descriptor.low
        self._issue = getattr(w.ptx.tcgen05, f"mma_{op.kind}")

    @checked
    def multiply(self, w: Writer, accumulators: Value, stage: Stage, *, accumulate: Value | bool) -> None:
        """Issue a stage's instructions; the first k-slice overwrites the accumulators unless `accumulate` holds."""
        op = self._op
        a_low = self._a_low + stage.index * self._a_stride
        b_low = self._b_low + stage.index * self._b_stride
        w.ptx.tcgen05.fence_after()
        self.prepare(w, stage)
        for index in range(op.a.k * op.a.bits // (8 * K_BYTES)):
            a_offset, b_offset = op._a_descriptor.offset(index), op._b_descriptor.offset(index)
            self._issue(
                d=accumulators,
                a=w.ptx.tcgen05.descriptor(low=a_low + (a_offset >> 4), high=op._a_descriptor.high),
                b=w.ptx.tcgen05.descriptor(low=b_low + (b_offset >> 4), high=op._b_descriptor.high),
                accumulate=accumulate if index == 0 else True,
                group=op.group,
                **self.further(index),
            )

    def prepare(self, w: Writer, stage: Stage) -> None:
        """What is issued before a stage's instructions: nothing."""

    def further(self, index: int) -> dict[str, Any]:
        """What a stage's instruction of that number takes beside its tiles."""
        return {"idesc": self._op.descriptor}

    def commit(self, w: Writer) -> None:
        """Nothing: giving a stage back is a commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Nothing: the commit waits."""
