"""TileOp on Hopper: warpgroup matrix multiply-accumulate, both operands in shared memory, accumulators in registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import Count, Whole, component, require_whole
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import AccumulatorLayout, Part, Warpgroup
from tilekit.tile_op.descriptors import ADDRESS_MASK, K_BYTES, WGMMA_MODES, MatrixDescriptor
from tilekit.tile_op.images import check_images
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import HeldStage, Promote, Stage

ATOM_ROWS = 64
"""Rows of M that one instruction computes."""

MAX_N = 256
"""Columns of N that one instruction computes at most."""

KINDS = (("bf16",), ("f16",), ("f32",), ("e4m3", "e5m2"))
"""Element types, those that one instruction takes together; f32 is read as tf32."""


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
        for tile in (a, b):
            if tile.major == "mn" and tile.bits != 16:
                raise TraceError(
                    f"wgmma cannot read tile {tile.name!r}: M or N is contiguous and its elements have {tile.bits} "
                    "bits; it reads those of 16 bits alone; nearest: major='k'",
                    code="TK-TRACE-017",
                )
        self.a = a
        self.b = b
        self.rows = a.rows // warpgroups
        self._a_descriptor = MatrixDescriptor.of(a, WGMMA_MODES)
        self._b_descriptor = MatrixDescriptor.of(b, WGMMA_MODES)

    @property
    def columns(self) -> int:
        """Columns of N that a warpgroup computes."""
        return self.b.rows

    @property
    def layout(self) -> AccumulatorLayout:
        """How a warpgroup holds its accumulators: one block an instruction."""
        return atom_layout(self.rows, self.columns)

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundWgmma:
        """Prepare the descriptors of a warpgroup; once a role."""
        assert group is not None, "wgmma is a warpgroup's"
        return BoundWgmma(w, self, tiles, group.part)


class RegisterAccumulators:
    """Accumulators in registers, one tile of n / 2 for each 64 rows: the warps that multiply run the epilogue too.

    Parameters
    ----------
    op
        The instruction.
    """

    allocated = False

    def __init__(self, op: Wgmma) -> None:
        self.layout = op.layout
        self._tiles: list[RegisterTile] = []

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def free(self, w: Writer, warp: Value) -> None:
        """Nothing to free."""

    def producer(self, w: Writer, role: Role) -> RegisterAccumulators:
        """Declare the registers; once a role."""
        layout = self.layout
        self._tiles = [w.tile(F32, layout.columns // 2, "acc") for _ in range(layout.blocks)]
        return self

    def consumer(self, w: Writer, group: Warpgroup) -> RegisterAccumulators:
        """The same registers."""
        return self

    @contextmanager
    def acquire(self) -> Iterator[RegisterAccumulators]:
        """Enter with the registers, which are free and complete when the role's own program order says so."""
        yield self

    def __iter__(self) -> Iterator[RegisterTile]:
        return iter(self._tiles)

    def carried(self, accumulate: Value) -> Value | bool:
        """Whether a k-block's first instruction adds to what the registers hold; `accumulate`: it is not the first."""
        return accumulate

    @property
    def promote(self) -> Promote | None:
        """Nothing is left to do with a k-block: the instructions add to what the registers hold."""
        return None

    def clear(self, w: Writer) -> None:
        """Zero the accumulators with ordinary moves."""
        for tile in self._tiles:
            for register in tile:
                register.assign(0.0)

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the registers of `columns` columns of a block."""
        return [self._tiles[block][left // 2 : (left + columns) // 2]]

    def done(self, w: Writer) -> None:
        """Nothing to hand back."""


class PromotedAccumulators(RegisterAccumulators):
    """Sums in registers of their own, to which those of each k-block are added when its instructions are complete.

    For 8-bit types, of whose sums the tensor core keeps 13 bits from one instruction to the next. A k-block begins
    anew, so its sums must be read before the next one's instructions are issued.
    """

    def producer(self, w: Writer, role: Role) -> PromotedAccumulators:
        """Declare the registers; once a role."""
        super().producer(w, role)
        self._w = w
        self._sums = [w.tile(F32, len(tile), "sum") for tile in self._tiles]
        return self

    @contextmanager
    def acquire(self) -> Iterator[PromotedAccumulators]:
        """Enter with the registers, the sums being zero."""
        self.clear(self._w)
        yield self

    def carried(self, accumulate: Value) -> bool:
        """Never: a k-block's sums are its own."""
        return False

    @property
    def promote(self) -> Promote:
        """Add the k-block's sums."""
        return self._add

    def _add(self, w: Writer, stage: HeldStage) -> None:
        stage.release()  # it has nothing more for the sums, and the load role may wait for it
        for sums, partial in zip(self._sums, self._tiles, strict=True):
            for register, value in zip(sums, partial, strict=True):
                register.assign(register + value)

    def clear(self, w: Writer) -> None:
        """Zero the sums."""
        for sums in self._sums:
            for register in sums:
                register.assign(0.0)

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the registers of `columns` columns of a block."""
        return [self._sums[block][left // 2 : (left + columns) // 2]]


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

    def multiply(self, w: Writer, accumulators: RegisterAccumulators, stage: Stage, *, accumulate: Value) -> None:
        """Issue a stage's instructions; the first k-slice overwrites the accumulators unless `accumulate` holds."""
        op = self._op
        a_low = self._a_low + stage.index * self._a_stride
        b_low = self._b_low + stage.index * self._b_stride
        carried = accumulators.carried(accumulate)
        w.ptx.wgmma.fence()
        for index in range(op.a.k * op.a.bits // (8 * K_BYTES)):
            b_offset = op._b_descriptor.offset(index)
            b = w.ptx.wgmma.descriptor(low=b_low + (b_offset >> 4), high=op._b_descriptor.high)
            for atom, tile in enumerate(accumulators):
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
        if op.a.bits == 8:
            w.ptx.wgmma.mma_8bit(**common, a_type=op.a.dtype.name, b_type=op.b.dtype.name)
        elif op.a.bits == 32:
            w.ptx.wgmma.mma_tf32(**common)
        else:
            w.ptx.wgmma.mma_16bit(
                **common, type=op.a.dtype.name, a_mn_major=int(op.a.major == "mn"), b_mn_major=int(op.b.major == "mn")
            )
