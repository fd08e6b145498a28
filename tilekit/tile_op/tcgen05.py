"""TileOp on Blackwell: matrix multiply-accumulate of a CTA or a CTA pair, accumulators in tensor memory."""

from __future__ import annotations

from typing import Any

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.tile_op.accumulators import AccumulatorLayout, Part
from tilekit.tile_op.descriptors import ADDRESS_MASK, K_BYTES, MatrixDescriptor, tcgen05_mode
from tilekit.tiles.operand import SPAN, OperandTile
from tilekit.tiles.stage import Stage

LANES = 128
"""Lanes of tensor memory."""

_KINDS: dict[DType, str] = {F16: "f16", BF16: "f16", F32: "tf32", E4M3: "f8f6f4", E5M2: "f8f6f4"}
_FORMATS: dict[DType, int] = {F16: 0, BF16: 1, F32: 2, E4M3: 0, E5M2: 1}


def instruction_descriptor(a: OperandTile, b: OperandTile, *, m: int, n: int) -> int:
    """Encode shape, types and majors (PTX ISA, tcgen05.mma, Instruction descriptor); accumulators are f32."""
    return (
        1 << 4
        | _FORMATS[a.dtype] << 7
        | _FORMATS[b.dtype] << 10
        | int(a.major == "mn") << 15
        | int(b.major == "mn") << 16
        | (n >> 3) << 17
        | (m >> 4) << 24
    )


class Tcgen05:
    """Multiplies the tiles of a stage into accumulators.

    Parameters
    ----------
    a, b
        The operand tiles as one CTA holds them: its rows of A, and all of B's rows or, with pairs, its half of them.
    group
        CTAs that an instruction spans, 1 or 2.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, group: int) -> None:
        self.a = a
        self.b = b
        self.group = group
        self.m = a.rows * group
        self.n = b.rows * group
        self.kind = _KINDS[a.dtype]
        self.descriptor = instruction_descriptor(a, b, m=self.m, n=self.n)
        self._a_descriptor = MatrixDescriptor.of(a.tensor, major=a.major, mode=tcgen05_mode(a.tensor))
        self._b_descriptor = MatrixDescriptor.of(b.tensor, major=b.major, mode=tcgen05_mode(b.tensor))

    @property
    def layout(self) -> AccumulatorLayout:
        """How a CTA's tensor memory holds its part of the tile (PTX ISA, tcgen05, Data path layouts A, B, D and F).

        64 rows of a CTA lie in the lower 16 lanes of each warp's 32; 64 rows of each CTA of a pair fill all lanes,
        the upper ones with the second half of the columns.
        """
        if self.a.rows == LANES:
            return AccumulatorLayout(1, LANES, self.n, (Part(0, LANES, 0, 0),))
        if self.group == 1:
            return AccumulatorLayout(1, self.a.rows, self.n, (Part(0, self.a.rows, 0, 0),))
        half = self.n // 2
        return AccumulatorLayout(1, LANES, half, (Part(0, LANES // 2, 0, 0), Part(LANES // 2, LANES // 2, 0, half)))

    @property
    def data_path(self) -> str:
        """The letter of that layout: D and F of one CTA, A and B of a pair."""
        return ("AB" if self.group == 2 else "DF")[self.a.rows < LANES]

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Any = None) -> BoundTcgen05:
        """Prepare the descriptors; once a role."""
        return BoundTcgen05(w, self, tiles)


class BoundTcgen05:
    """A `Tcgen05` in the thread that issues: descriptors at hand, ready to multiply stages."""

    def __init__(self, w: Writer, op: Tcgen05, tiles: dict[str, SharedArray]) -> None:
        self._op = op
        a, b = tiles[op.a.name], tiles[op.b.name]
        self._a_stride, self._b_stride = a.stride >> 4, b.stride >> 4
        base = w.shared_base.retyped(U32)
        self._a_low = (((base + a.offset) & ADDRESS_MASK) >> 4) | op._a_descriptor.low
        self._b_low = (((base + b.offset) & ADDRESS_MASK) >> 4) | op._b_descriptor.low
        self._issue = getattr(w.ptx.tcgen05, f"mma_{op.kind}")

    def multiply(self, w: Writer, accumulators: Value, stage: Stage, *, accumulate: Value) -> None:
        """Issue a stage's instructions; the first k-slice overwrites the accumulators unless `accumulate` holds."""
        op = self._op
        a_low = self._a_low + stage.index * self._a_stride
        b_low = self._b_low + stage.index * self._b_stride
        w.ptx.tcgen05.fence_after()
        slices = SPAN // K_BYTES
        for index in range(op.a.depth * slices):
            part, within = divmod(index, slices)
            a_offset = part * op.a.slice_bytes + within * op._a_descriptor.step
            b_offset = part * op.b.slice_bytes + within * op._b_descriptor.step
            self._issue(
                d=accumulators,
                a=w.ptx.tcgen05.descriptor(low=a_low + (a_offset >> 4), high=op._a_descriptor.high),
                b=w.ptx.tcgen05.descriptor(low=b_low + (b_offset >> 4), high=op._b_descriptor.high),
                idesc=op.descriptor,
                accumulate=accumulate if index == 0 else True,
                group=op.group,
            )

    def commit(self, w: Writer) -> None:
        """Nothing: giving a stage back is a commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Nothing: the commit waits."""
