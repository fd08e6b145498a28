"""TileOp of one warp: ``mma.sync`` on fragments that ``ldmatrix`` brings from shared memory, accumulators in registers.

Warps share the tile as a grid. The fragments of a step along K are read while those of the step before are multiplied;
a step is 32 bytes of K, whatever the type. A K-major tile is read as it lies; of an M- or N-major one of 16-bit
elements, ``ldmatrix`` transposes 8 x 8 of them on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Final, TypeVar

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE, Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, F32, S32, SMEM, RegisterType
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulator_fragments import FRAGMENT_ROWS, INTERLEAVED_FRAGMENT, QUAD_FRAGMENT
from tilekit.tile_op.accumulators import AccumulatorLayout, Part, Warpgroup, require_group, require_sharing
from tilekit.tile_op.images import check_images
from tilekit.tile_op.mfma import Kinds, Share, WaveLayout, in_grid
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tiles.interleave import INTERLEAVED
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage

ROWS: Final = 16
"""Rows of an instruction; and of either operand those that a read of four matrices brings."""

COLUMNS: Final = 8
"""Columns of an instruction."""

STEP_BYTES: Final = 32
"""Bytes along K of an instruction."""

MATRIX_BYTES: Final = 16
"""Bytes of a row of what ``ldmatrix`` reads, and as many bytes of the swizzle stay together."""

LANES: Final = 32

FOUR: Final = 4
"""Accumulators of an instruction that a lane holds."""

SLOTS: Final = 2
"""Steps along K whose fragments are in registers: the one that is multiplied, and the next."""

FP8: Final = ("e4m3", "e5m2")

KINDS: Final = (("bf16",), ("f16",), ("f32",), FP8, ("s8",))
"""Element types, those that one instruction takes together; f32 is read as tf32."""


@cache
def warp_layout(down: Share, across: Share, interleaved: bool) -> WaveLayout:
    """How a warp holds its share of a tile: 16 rows are a block."""
    return WaveLayout(
        down.own // FRAGMENT_ROWS,
        FRAGMENT_ROWS,
        across.own,
        (Part(0, FRAGMENT_ROWS, 0, 0),),
        waves=1,
        lanes=LANES,
        fragment=INTERLEAVED_FRAGMENT if interleaved else QUAD_FRAGMENT,
        down=down,
        across=across,
    )


@component
class MmaSync:
    """Multiplies the tiles of a stage into accumulators, each warp its own rows and columns of the tile.

    Parameters
    ----------
    a, b
        The operand tiles, swizzled: reads of them have no bank conflicts.
    warps
        Warps that share the tile.
    columns
        Warps side by side along N; below each other are as many as that leaves.
    interleaved
        Whether the lines of B's image are those rows of it that give a thread 8 neighbouring columns of the result, as
        a `CopyPlan` that is ``interleaved`` places them: then it stores 16 bytes at once.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles that the warps cannot read or divide.

    Attributes
    ----------
    down, across
        What a warp has of the tile's rows, and of its columns.
    """

    kinds: Kinds = KINDS

    def __init__(
        self, a: OperandTile, b: OperandTile, *, warps: Count, columns: Count = 1, interleaved: bool = False
    ) -> None:
        check_images("mma.sync", a, b, self.kinds)
        if warps % columns:
            nearest = next(fits for fits in range(min(columns, warps), 0, -1) if warps % fits == 0)
            raise TraceError(
                f"{warps} warps make no grid of columns={columns}; nearest: columns={nearest}", code="TK-TRACE-017"
            )
        self.a, self.b = a, b
        for tile, share in ((a, warps // columns), (b, columns)):
            _check_tile(tile, share)
        if interleaved and (b.major != "k" or b.rows % (INTERLEAVED * columns)):
            raise TraceError(
                f"tile {b.name!r}, {b.major!r}-major of {b.rows} rows, is not read interleaved: K is to be contiguous, "
                f"and each of {columns} warps to have a multiple of {INTERLEAVED}; nearest: "
                "interleaved=False",
                code="TK-TRACE-017",
            )
        self.interleaved = interleaved
        self.down = Share(a.rows, warps // columns, 1)
        self.across = Share(b.rows, columns, 1)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of the tile that a stage is multiplied for."""
        return self.a.rows, self.b.rows

    @property
    def layout(self) -> AccumulatorLayout:
        """How a warp holds its accumulators."""
        return warp_layout(self.down, self.across, self.interleaved)

    @property
    def rows(self) -> int:
        """Rows of M that a warp computes."""
        return self.down.own

    @property
    def columns(self) -> int:
        """Columns of N that a warp computes."""
        return self.across.own

    @property
    def steps(self) -> int:
        """Steps along a stage's K."""
        return self.a.k * self.a.bits // (8 * STEP_BYTES)

    @property
    def sums(self) -> RegisterType:
        """The type of an accumulator."""
        return S32 if self.a.dtype.name == "s8" else F32

    @staticmethod
    def read_addresses(tile: OperandTile, *, rows: bool) -> list[list[int]]:
        """Where the lanes of a warp read the first 16 of a tile's image, as its `rows` or its columns, step by step."""
        found = []
        for step in range(tile.row_bytes // STEP_BYTES if tile.major == "k" else tile.slice_k // ROWS):
            access = []
            for lane in range(LANES):
                line, byte = _place(tile, lane, rows=rows)
                if tile.major == "k":
                    access.append(line * tile.row_bytes + tile.swizzled_byte(byte + step * STEP_BYTES, line))
                else:
                    line += step * ROWS
                    access.append(line * tile.row_bytes + tile.swizzled_byte(byte, line))
            found.append(access)
        return found

    @checked
    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundMmaSync:
        """Prepare a lane's places in the tiles, and registers for fragments; once a role.

        Raises
        ------
        TraceError
            ``TK-TRACE-013`` in a role whose warps do not hold their sums one by one.
        """
        group = require_group("MmaSync", group)
        if group.waves != 1:
            raise TraceError(
                f"MmaSync has a warp hold its own sums, and the epilogue of this role takes those of {group.waves} "
                "warps together; nearest: a role with matrix_waves=1, as WarpPlan.waves has it",
                code="TK-TRACE-013",
            )
        require_sharing("MmaSync", "warps", self.down.waves * self.across.waves, group)
        return BoundMmaSync(w, self, tiles, group.part)


class BoundMmaSync:
    """An `MmaSync` in a role: places and registers at hand, ready to multiply stages.

    Attributes
    ----------
    steps
        Steps along a stage's K.
    """

    synchronous = True

    def __init__(self, w: Writer, op: MmaSync, tiles: dict[str, SharedArray], part: Value | int) -> None:
        self._op = op
        self.steps = op.steps
        down, across = in_grid(part, op.across.waves)
        self._a = _Places(w, op.a, tiles[op.a.name], op.down, down, rows=True)
        self._b = _Places(w, op.b, tiles[op.b.name], op.across, across, rows=False)
        registers = (op.rows + op.columns) // ROWS * FOUR
        self._slots = [w.tile(B32, registers, f"fragment{slot}_") for slot in range(SLOTS)]

    @checked
    def multiply(
        self, w: Writer, accumulators: Annotated[RegisterAccumulators, OWN_RULE], stage: Stage, *, accumulate: Value
    ) -> None:
        """Multiply a stage: a step's fragments are read before the step ahead of it is multiplied."""
        with w.when(~accumulate):
            accumulators.clear(w)
        self.read(w, stage.index, 0)
        for step in range(self._op.steps):
            if step + 1 < self._op.steps:
                self.read(w, stage.index, step + 1)
            self.products(w, accumulators, step)

    def read(self, w: Writer, stage: Value, step: int) -> None:
        """Read the fragments of a step along a stage's K."""
        slot, first = self._slots[step % SLOTS], 0
        for places in (self._a, self._b):
            bases = places.at(w, stage)
            for sixteen in range(places.share.own // ROWS):
                values = places.read(w, bases, step, sixteen)
                for register, value in zip(slot[first : first + FOUR], values, strict=True):
                    register.assign(value)
                first += FOUR

    def products(self, w: Writer, accumulators: RegisterAccumulators, step: int) -> None:
        """Multiply the fragments of a step."""
        op, slot = self._op, self._slots[step % SLOTS]
        rows, columns = op.rows // ROWS, op.columns // COLUMNS
        issue = self._instruction(w)
        for row, sums in enumerate(accumulators):
            # Down one row of instructions and up the next: neighbours share an operand.
            for column in range(columns) if row % 2 == 0 else reversed(range(columns)):
                first = rows * FOUR + 2 * column
                issue(
                    sums=sums[FOUR * column : FOUR * (column + 1)],
                    a=slot[FOUR * row : FOUR * (row + 1)],
                    b=slot[first : first + 2],
                )

    def _instruction(self, w: Writer) -> Callable[..., object]:
        """The instruction of the operands' types."""
        mma, a, b = w.ptx.mma, self._op.a.dtype.name, self._op.b.dtype.name
        if a in FP8:
            return lambda **operands: mma.mma_8bit(**operands, a_type=a, b_type=b)
        if a == "f32":
            return lambda **operands: mma.mma_tf32(**operands)
        if a == "s8":
            return lambda **operands: mma.mma_s8(**operands)
        return lambda **operands: mma.mma_16bit(**operands, type=a)

    def commit(self, w: Writer) -> None:
        """Nothing to close: reads return to registers."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait for the warp's lanes, whose reads are done when it multiplies: one gives the stage back for all."""
        w.warp_sync_shared()


def _check_tile(tile: OperandTile, warps: int) -> None:
    """Refuse a tile that so many warps cannot read or share.

    Raises
    ------
    TraceError
        ``TK-TRACE-017``, with the nearest tile.
    """
    if not tile.swizzle_bytes:
        raise TraceError(
            f"mma.sync reads swizzled tiles without bank conflicts, and tile {tile.name!r} has swizzle_bytes=0; "
            "nearest: swizzle_bytes=32",
            code="TK-TRACE-017",
        )
    if tile.major == "mn" and tile.bits != 16:
        raise TraceError(
            f"mma.sync cannot read tile {tile.name!r}: M or N is contiguous and its elements have {tile.bits} bits; "
            "ldmatrix transposes those of 16 bits alone; nearest: major='k'",
            code="TK-TRACE-017",
        )
    unit = ROWS * warps
    if tile.rows % unit:
        raise TraceError(
            f"tile {tile.name!r} has {tile.rows} rows, and is to have a multiple of {unit} ({warps} warps have {ROWS} "
            f"each); nearest: {max(unit, round(tile.rows / unit) * unit)}",
            code="TK-TRACE-017",
        )
    own = tile.rows // warps
    if tile.major == "mn" and own % tile.chunk and tile.chunk % own:
        raise TraceError(
            f"tile {tile.name!r} has rows of {tile.chunk} elements along M or N, and a warp has {own} of its "
            f"{tile.rows}: neither divides the other; nearest: {tile.chunk * warps} rows",
            code="TK-TRACE-017",
        )


_Lane = TypeVar("_Lane", int, Value)


def _place(tile: OperandTile, lane: _Lane, *, rows: bool) -> tuple[_Lane, _Lane]:
    """Line of the image, and byte in it, that a lane reads: row ``lane % 8`` of matrix ``lane / 8``.

    Of A, matrices 0 and 1 lie below each other, and 2 and 3 are their neighbours along K; of B the matrices 0 and 1 are
    neighbours along K, 2 and 3 those of the next 8 columns.
    """
    low, high = (lane // 8) % 2, lane // 16
    below, along = (low, high) if rows else (high, low)
    if tile.major == "k":
        return lane % 8 + below * 8, along * MATRIX_BYTES
    return lane % 8 + along * 8, below * MATRIX_BYTES


class _Places:
    """Where a lane reads a warp's share of a tile."""

    def __init__(
        self, w: Writer, tile: OperandTile, stages: SharedArray, share: Share, warp: Value | int, *, rows: bool
    ) -> None:
        self.share = share
        self._tile = tile
        self._stages = stages
        line, byte = _place(tile, w.lane(), rows=rows)
        own = share.own
        first: Value | int = warp * tile.offset_of(own)
        turns = range(0, tile.row_bytes, STEP_BYTES)
        if tile.major == "mn" and own < tile.chunk:
            per = tile.chunk // own
            first = warp // per * tile.offset_of(tile.chunk)
            byte = byte + warp % per * (own * tile.bits // 8)
            turns = range(0, own * tile.bits // 8, STEP_BYTES)
        self._offsets = [line * tile.row_bytes + tile.swizzled(byte + turn, line) + first for turn in turns]

    def at(self, w: Writer, stage: Value) -> list[Value]:
        """Turn to a stage."""
        base = self._stages.at(w, stage)
        return [base + offset for offset in self._offsets]

    def read(self, w: Writer, bases: list[Value], step: int, sixteen: int) -> RegisterTile:
        """Read four matrices: 16 of a warp's rows or columns, and a step along K."""
        tile = self._tile
        if tile.major == "k":
            block, turn = divmod(step, tile.row_bytes // STEP_BYTES)
            offset = block * tile.slice_bytes + tile.offset_of(sixteen * ROWS)
            load = w.ptx.ldmatrix.load_x4
        else:
            block, line = divmod(step * ROWS, tile.slice_k)
            along, turn = divmod(sixteen, len(bases))
            offset = block * tile.slice_bytes + line * tile.row_bytes + along * tile.offset_of(tile.chunk)
            load = w.ptx.ldmatrix.load_x4_trans
        values: RegisterTile = load(address=(bases[turn] + offset).retyped(SMEM))
        return values
