"""TileOp on AMD chips: a wave multiplies what it reads from LDS into registers, accumulators in registers.

A wave has rows of the tile to itself, and all of its columns. A lane reads 16 bytes at once, neighbours along K; where
an instruction is half as deep, they are two instructions' operands: any order of K that A and B share is right. The
operands change places, so that a lane holds four neighbouring columns of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import Count, component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import SMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulator_fragments import AccumulatorFragment
from tilekit.tile_op.accumulators import AccumulatorLayout, Part, Warpgroup, require_group
from tilekit.tile_op.images import check_images
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

ATOM: Final = 16
"""Rows and columns of an instruction."""

ATOM_REGISTERS: Final = 4
"""Accumulators of an instruction that a lane holds."""

LANES: Final = 64

READ_BYTES: Final = 16
"""Bytes that a lane reads from LDS at once."""

SLICE_BYTES: Final = READ_BYTES * LANES // ATOM
"""Bytes along K that the lanes of a row read at once."""

OFFSETS: Final = 1 << 16
"""Bytes that an LDS read reaches behind its address."""

ROWS, COLUMNS = 0, 1
"""The sides of a product: A, and B."""

AHEAD: Final = 2
"""Reads in flight beyond the rows of the next slice along K."""

KINDS: Final = (("bf16",), ("f16",))
"""Element types, those that one instruction takes together."""


MFMA_FRAGMENT: Final = AccumulatorFragment(rows=2 * ATOM, columns=ATOM, row_lanes=1, column_lanes=ATOM)
"""Two instructions, one below the other: lane l has rows ``l % 16`` and ``+ 16``, and of each 16 columns the four from
``4 (l / 16)`` on (CDNA ISA, V_MFMA: of the transpose, column ``l % 16`` and rows ``4 (l / 16) + i``)."""


@cache
def wave_layout(rows: int, columns: int) -> AccumulatorLayout:
    """How a wave holds `rows` of a tile: a fragment is a block."""
    block = MFMA_FRAGMENT.rows
    parts = (Part(0, block, 0, 0),)
    return AccumulatorLayout(rows // block, block, columns, parts, waves=1, lanes=LANES, fragment=MFMA_FRAGMENT)


@component
class Mfma:
    """Multiplies the tiles of a stage into accumulators: wave g has rows ``g * rows … (g + 1) * rows - 1``.

    Parameters
    ----------
    a, b
        The operand tiles, K contiguous and swizzled over 128 bytes: reads of them have no bank conflicts.
    waves
        Waves that share the tile.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles that the waves cannot read or divide.

    Attributes
    ----------
    rows
        Rows of M that a wave computes.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, waves: Count) -> None:
        check_images("mfma", a, b, KINDS)
        for tile in (a, b):
            if tile.major != "k":
                raise TraceError(
                    f"mfma cannot read tile {tile.name!r}: M or N is contiguous, and a lane reads neighbours along K; "
                    "nearest: major='k'",
                    code="TK-TRACE-017",
                )
            if tile.swizzle_bytes != SWIZZLE_BYTES:
                raise TraceError(
                    f"mfma reads tiles swizzled over {SWIZZLE_BYTES} bytes without bank conflicts, and tile "
                    f"{tile.name!r} has swizzle_bytes={tile.swizzle_bytes}; nearest: swizzle_bytes={SWIZZLE_BYTES}",
                    code="TK-TRACE-017",
                )
        for tile, unit, of in (
            (a, MFMA_FRAGMENT.rows * waves, f"{waves} waves have {MFMA_FRAGMENT.rows} rows each"),
            (b, ATOM, "mfma"),
        ):
            if tile.rows % unit:
                raise TraceError(
                    f"tile {tile.name!r} has {tile.rows} rows, and is to have a multiple of {unit} ({of}); nearest: "
                    f"{max(unit, round(tile.rows / unit) * unit)}",
                    code="TK-TRACE-017",
                )
        self.a = a
        self.b = b
        self.rows = a.rows // waves

    @property
    def layout(self) -> AccumulatorLayout:
        """How a wave holds its accumulators."""
        return wave_layout(self.rows, self.b.rows)

    READ_BYTES = READ_BYTES

    @staticmethod
    def read_addresses(tile: OperandTile) -> list[list[int]]:
        """Where the lanes of a wave read the first rows of a tile's image, an access for each slice along K."""
        lanes = [(lane % ATOM, lane // ATOM * READ_BYTES) for lane in range(LANES)]
        return [
            [row * tile.row_bytes + tile.swizzled_byte(byte + along, row) for row, byte in lanes]
            for along in range(0, tile.row_bytes, SLICE_BYTES)
        ]

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundMfma:
        """Prepare a lane's places in the tiles; once a role."""
        group = require_group("Mfma", group)
        return BoundMfma(w, self, tiles, group.part)


class BoundMfma:
    """An `Mfma` in a role: places at hand, ready to multiply stages."""

    def __init__(self, w: Writer, op: Mfma, tiles: dict[str, SharedArray], part: Value | int) -> None:
        self._op = op
        self._a = _Places(w, op.a, tiles[op.a.name], part * op.a.offset_of(op.rows))
        self._b = _Places(w, op.b, tiles[op.b.name], 0)

    def multiply(self, w: Writer, accumulators: RegisterAccumulators, stage: Stage, *, accumulate: Value) -> None:
        """Multiply a stage, with reads a few steps ahead of the instructions that need them."""
        op = self._op
        places = self._a.at(w, stage), self._b.at(w, stage)
        with w.when(~accumulate):
            accumulators.clear(w)
        slices, rows, columns = op.a.k * op.a.bits // (8 * SLICE_BYTES), op.rows // ATOM, op.b.rows // ATOM
        # In the order in which they are needed: the rows of a slice along K, then column by column.
        order = [(index, *one) for index in range(slices) for one in _side_by_side(rows, columns)]
        reads = iter(order)
        read: dict[tuple[int, int, int], RegisterTile] = {}
        for step, (index, side, column) in enumerate(order):
            if side == ROWS:
                continue
            for one in islice(reads, max(0, step + 1 + rows + AHEAD - len(read))):
                read[one] = places[one[1]].read(w, one[0], one[2])
            for row in range(rows):
                block, lower = divmod(row, 2)
                first = (2 * column + lower) * ATOM_REGISTERS
                sums = list(accumulators)[block][first : first + ATOM_REGISTERS]
                self._mma(w, sums, read[index, side, column], read[index, ROWS, row])

    def _mma(self, w: Writer, sums: RegisterTile, a: RegisterTile, b: RegisterTile) -> None:
        mfma, name = w.gcn.mfma, self._op.a.dtype.name
        if w.target.has("deep_matrix"):
            mfma.f32_16x16x32(sums=sums, a=a, b=b, type=name)
            return
        for half in (slice(0, 2), slice(2, 4)):
            mfma.f32_16x16x16(sums=sums, a=a[half], b=b[half], type=name)

    def commit(self, w: Writer) -> None:
        """Nothing to close: reads return to registers."""

    def wait(self, w: Writer, pending: int) -> None:
        """Nothing to wait for: what gives a stage back waits for the wave's reads."""


def _side_by_side(rows: int, columns: int) -> list[tuple[int, int]]:
    """Every atom of both sides: the rows', then the columns'."""
    return [(side, atom) for side, count in ((ROWS, rows), (COLUMNS, columns)) for atom in range(count)]


class _Places:
    """Where a lane reads a tile: row ``lane % 16`` of each instruction, piece ``lane / 16`` of each slice along K."""

    def __init__(self, w: Writer, tile: OperandTile, stages: SharedArray, first: Value | int) -> None:
        lane = w.lane()
        row = lane & (ATOM - 1)
        byte = (lane // ATOM) * READ_BYTES
        self._tile = tile
        self._stages = stages
        self._offsets = [
            row * tile.row_bytes + tile.swizzled(byte + along, row) + first
            for along in range(0, tile.row_bytes, SLICE_BYTES)
        ]

    def at(self, w: Writer, stage: Stage) -> _StagePlaces:
        """Turn to a stage."""
        base = self._stages.at(w, stage.index)
        return _StagePlaces(self._tile, [base + offset for offset in self._offsets])


@dataclass(frozen=True)
class _StagePlaces:
    """The same in one stage."""

    tile: OperandTile
    bases: list[Value]

    def read(self, w: Writer, index: int, atom: int) -> RegisterTile:
        """Read a lane's part of an instruction's rows and a slice along K."""
        tile = self.tile
        block, along = divmod(index, len(self.bases))
        far, offset = divmod(block * tile.slice_bytes + tile.offset_of(atom * ATOM), OFFSETS)
        values: RegisterTile = w.gcn.lds.read_b32x4(
            address=(self.bases[along] + far * OFFSETS).retyped(SMEM), offset=offset
        )
        return values
