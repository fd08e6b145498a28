"""TileOp on Hopper: warpgroup matrix multiply-accumulate, both operands in shared memory, accumulators in registers."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE, Count, Whole, illegal, require_whole
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, S32, U32, RegisterType
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import AccumulatorLayout, Part, Warpgroup, require_group, require_sharing
from tilekit.tile_op.descriptors import ADDRESS_MASK, K_BYTES, WGMMA_MODES, MatrixDescriptor
from tilekit.tile_op.images import check_images
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

ATOM_ROWS = 64
"""Rows of M that one instruction computes."""

MAX_N = 256
"""Columns of N that one instruction computes at most."""

KINDS = (("bf16",), ("f16",), ("f32",), ("e4m3", "e5m2"), ("s8",))
"""Element types, those that one instruction takes together; f32 is read as tf32."""

WHOLE_COLUMNS = (8, 16, 24, *range(32, MAX_N + 1, 16))
"""Columns of N that an instruction of whole numbers may have (PTX ISA, wgmma.mma_async)."""

WORDS_OF_WHOLE = f"8, 16, 24, or a multiple of 16 from 32 to {MAX_N}"


@cache
def atom_layout(rows: int, columns: int) -> AccumulatorLayout:
    """How a warpgroup holds `rows` of a tile: an instruction for each 64, one below the other, is a block.

    Fewer than 64 rows are the first ones of an instruction.
    """
    parts = (Part(0, min(rows, ATOM_ROWS), 0, 0),)
    return AccumulatorLayout(-(-rows // ATOM_ROWS), ATOM_ROWS, columns, parts, waves=4, lanes=32)


@component
class Wgmma:
    """Multiplies the tiles of a stage into accumulators.

    The warpgroups that share a tile split it along M: part g is rows ``g * rows … (g + 1) * rows - 1``, in instructions
    of 64 rows each. A tile of fewer rows is one warpgroup's, whose instruction reads on behind A: what it finds there
    must be complete (`StandardPayload`, ``adjacent``), and what it makes of it is not stored, since a row of the result
    depends on that row of A alone.

    Parameters
    ----------
    a, b
        The operand tiles; `b.rows` is the instruction's n.
    warpgroups
        Warpgroups that share the tile.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles whose images the instruction cannot read, ``TK-PART-001`` for rows that its shapes do
        not divide.

    Attributes
    ----------
    rows
        Rows of M that a warpgroup computes.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, warpgroups: Count) -> None:
        check_images("wgmma", a, b, KINDS)
        if a.rows > ATOM_ROWS or warpgroups > 1:
            step = ATOM_ROWS * warpgroups
            require_whole(f"Wgmma of {warpgroups} warpgroups", "a.rows", a.rows, Whole(step, step=step))
        require_whole("Wgmma", "b.rows", b.rows, Whole(8, MAX_N, 8))
        if a.dtype.name == "s8" and b.rows not in WHOLE_COLUMNS:
            nearest = min(WHOLE_COLUMNS, key=lambda columns: abs(columns - b.rows))
            raise illegal("Wgmma of s8", "b.rows", b.rows, WORDS_OF_WHOLE, nearest)
        for tile in (a, b):
            if tile.major == "mn" and tile.bits != 16:
                raise TraceError(
                    f"wgmma cannot read tile {tile.name!r}: M or N is contiguous and its elements have {tile.bits} "
                    "bits; it reads those of 16 bits alone; nearest: major='k'",
                    code="TK-TRACE-017",
                )
        self.a = a
        self.b = b
        self.warpgroups = warpgroups
        self.rows = a.rows // warpgroups
        self._a_descriptor = MatrixDescriptor.of(a, WGMMA_MODES)
        self._b_descriptor = MatrixDescriptor.of(b, WGMMA_MODES)

    @property
    def columns(self) -> int:
        """Columns of N that a warpgroup computes."""
        return self.b.rows

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of the tile that a stage is multiplied for."""
        return self.a.rows, self.b.rows

    @property
    def layout(self) -> AccumulatorLayout:
        """How a warpgroup holds its accumulators: one block an instruction."""
        return atom_layout(self.rows, self.columns)

    @property
    def sums(self) -> RegisterType:
        """The type of an accumulator."""
        return S32 if self.a.dtype.name == "s8" else F32

    @checked
    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundWgmma:
        """Prepare the descriptors of a warpgroup; once a role."""
        group = require_group("Wgmma", group)
        require_sharing("Wgmma", "warpgroups", self.warpgroups, group)
        return BoundWgmma(w, self, tiles, group.part)


class BoundWgmma:
    """A `Wgmma` in a role: descriptors at hand, ready to multiply stages."""

    def __init__(self, w: Writer, op: Wgmma, tiles: dict[str, SharedArray], part: Value | int) -> None:
        self._op = op
        a, b = tiles[op.a.name], tiles[op.b.name]
        self._a_stride, self._b_stride = a.stride >> 4, b.stride >> 4
        first_a = w.shared_base.retyped(U32) + a.offset + part * op.a.offset_of(op.rows)
        first_b = w.shared_base.retyped(U32) + b.offset
        self._a_low = ((first_a & ADDRESS_MASK) >> 4) | op._a_descriptor.low
        self._b_low = ((first_b & ADDRESS_MASK) >> 4) | op._b_descriptor.low

    @checked
    def multiply(
        self,
        w: Writer,
        accumulators: Annotated[RegisterAccumulators, OWN_RULE],
        stage: Stage,
        *,
        accumulate: Value | bool,
    ) -> None:
        """Issue a stage's instructions; the first k-slice overwrites the accumulators unless `accumulate` holds."""
        op = self._op
        a_low = self._a_low + stage.index * self._a_stride
        b_low = self._b_low + stage.index * self._b_stride
        carried = accumulators.carried(w, stage, accumulate)
        for turn in accumulators.turns(w, self):
            w.ptx.wgmma.fence()
            for index in range(op.a.k * op.a.bits // (8 * K_BYTES)):
                b_offset = op._b_descriptor.offset(index)
                b = w.ptx.wgmma.descriptor(low=b_low + (b_offset >> 4), high=op._b_descriptor.high)
                for atom, tile in turn:
                    offset = op._a_descriptor.offset(index) + op.a.offset_of(atom * ATOM_ROWS)
                    a = w.ptx.wgmma.descriptor(low=a_low + (offset >> 4), high=op._a_descriptor.high)
                    self._issue(w, tile, a, b, carried if index == 0 else True)

    def commit(self, w: Writer) -> None:
        """Close the group of instructions issued since the last commit."""
        w.ptx.wgmma.commit()

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are in flight."""
        w.ptx.wgmma.wait(pending=pending)

    def _issue(self, w: Writer, acc: RegisterTile, a: Value, b: Value, accumulate: Value | bool) -> None:
        op = self._op
        common = {"acc": acc, "a": a, "b": b, "accumulate": accumulate, "n": op.columns}
        if op.sums is S32:
            w.ptx.wgmma.mma_s8(**common)
        elif op.a.bits == 8:
            w.ptx.wgmma.mma_8bit(**common, a_type=op.a.dtype.name, b_type=op.b.dtype.name)
        elif op.a.bits == 32:
            w.ptx.wgmma.mma_tf32(**common)
        else:
            w.ptx.wgmma.mma_16bit(
                **common, type=op.a.dtype.name, a_mn_major=int(op.a.major == "mn"), b_mn_major=int(op.b.major == "mn")
            )
