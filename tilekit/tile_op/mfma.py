"""TileOp on AMD chips: a wave multiplies what it reads from LDS into registers, accumulators in registers.

Waves share the tile as a grid: a wave has rows and columns of it, or rows to itself and all columns. A lane reads 16
bytes at once, neighbours along K; where an instruction is half as deep, they are two instructions' operands, and where
it is twice as deep, half of one's: any order of K that A and B share is right. The operands change places, so that a
lane holds four neighbouring columns of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE, Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, F32, S32, SMEM, RegisterType
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulator_fragments import AccumulatorFragment
from tilekit.tile_op.accumulators import AccumulatorLayout, Part, Warpgroup, require_group, require_sharing
from tilekit.tile_op.images import check_images
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage, Step

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

FORMATS: Final = {"e4m3": 0, "e5m2": 1}
"""Numbers of the formats of the deep instruction of narrow floats."""

NARROW: Final = {"e4m3": "fp8", "e5m2": "bf8", "e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}
"""What instructions call 8-bit floats, of the chip's own formats."""

Kinds: TypeAlias = tuple[tuple[str, ...], ...]

KINDS: Final = (("bf16",), ("f16",), ("e4m3", "e5m2"), ("e4m3fnuz", "e5m2fnuz"), ("s8",))
"""Element types, those that one instruction takes together."""


MFMA_FRAGMENT: Final = AccumulatorFragment(rows=2 * ATOM, columns=ATOM, row_lanes=1, column_lanes=ATOM)
"""Two instructions, one below the other: lane l has rows ``l % 16`` and ``+ 16``, and of each 16 columns the four from
``4 (l / 16)`` on (CDNA ISA, V_MFMA: of the transpose, column ``l % 16`` and rows ``4 (l / 16) + i``)."""


@dataclass(frozen=True)
class Share:
    """What a wave has of one side of a tile: as many rows of each of its `pieces`, which follow those of other waves.

    Attributes
    ----------
    rows
        Of the tile.
    waves
        Waves that have different rows.
    pieces
        Equal pieces of the tile: 1, or 2 for halves.
    """

    rows: int
    waves: int
    pieces: int

    @property
    def own(self) -> int:
        """Rows that a wave has of a piece."""
        return self.rows // (self.waves * self.pieces)

    def row(self, own: int) -> int:
        """Where one of a wave's rows is, from its first one."""
        piece, row = divmod(own, self.own)
        return piece * (self.rows // self.pieces) + row


@dataclass(frozen=True)
class WaveLayout(AccumulatorLayout):
    """How a wave of a grid holds its share of a tile: a fragment is a block.

    Attributes
    ----------
    down, across
        Its rows, and its columns.
    """

    down: Share = Share(0, 1, 1)
    across: Share = Share(0, 1, 1)

    @property
    def side_by_side(self) -> int:
        """Waves that have columns of the same rows."""
        return self.across.waves

    def share_of(self, column: Value) -> Value | int:
        """Which of them has a column: those of a piece of the tile lie wave by wave."""
        return column % (self.across.waves * self.across.own) // self.across.own

    def place(self, part: Value | int) -> tuple[Value | int, Value | int]:
        """Row and column of the tile at which a wave begins."""
        row, column = in_grid(part, self.across.waves)
        return row * self.down.own, column * self.across.own

    def row_of(self, block: int) -> int:
        """First row of a block, from where the wave begins."""
        return self.down.row(block * self.rows)

    def column_of(self, column: int) -> int:
        """Where a column of its accumulators is, from where the wave begins."""
        return self.across.row(column)


def in_grid(part: Value | int, columns: int) -> tuple[Value | int, Value | int]:
    """Row and column in a grid of waves, the last along a row first."""
    return (part, 0) if columns == 1 else (part // columns, part % columns)


@cache
def wave_layout(down: Share, across: Share) -> WaveLayout:
    """How a wave holds its share of a tile."""
    block = MFMA_FRAGMENT.rows
    return WaveLayout(
        down.own * down.pieces // block,
        block,
        across.own * across.pieces,
        (Part(0, block, 0, 0),),
        waves=1,
        lanes=LANES,
        fragment=MFMA_FRAGMENT,
        down=down,
        across=across,
    )


@component
class Mfma:
    """Multiplies the tiles of a stage into accumulators, each wave its own rows and columns of the tile.

    Parameters
    ----------
    a, b
        The operand tiles, K contiguous and swizzled over 128 bytes: reads of them have no bank conflicts.
    waves
        Waves that share the tile.
    columns
        Waves side by side along N; below each other are as many as that leaves.
    pieces
        Pieces of the tile along M and N, of each of which a wave has a part: 2 where the halves are loaded and read one
        by one.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles that the waves cannot read or divide.

    Attributes
    ----------
    down, across
        What a wave has of the tile's rows, and of its columns.
    """

    kinds: Kinds = KINDS

    def __init__(self, a: OperandTile, b: OperandTile, *, waves: Count, columns: Count = 1, pieces: Count = 1) -> None:
        check_images("mfma", a, b, self.kinds)
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
        if waves % columns:
            nearest = next(fits for fits in range(min(columns, waves), 0, -1) if waves % fits == 0)
            raise TraceError(
                f"{waves} waves make no grid of columns={columns}; nearest: columns={nearest}", code="TK-TRACE-017"
            )
        shared = f"{waves // columns}x{columns} waves have"
        each = " of each half" if pieces == 2 else ""
        for tile, unit, of in (
            (a, MFMA_FRAGMENT.rows * waves // columns * pieces, f"{shared} {MFMA_FRAGMENT.rows} rows each{each}"),
            (b, ATOM * columns * pieces, f"{shared} {ATOM} columns each{each}"),
        ):
            if tile.rows % unit:
                raise TraceError(
                    f"tile {tile.name!r} has {tile.rows} rows, and is to have a multiple of {unit} ({of}); nearest: "
                    f"{max(unit, round(tile.rows / unit) * unit)}",
                    code="TK-TRACE-017",
                )
        self.a = a
        self.b = b
        self.pieces = pieces
        self.down = Share(a.rows, waves // columns, pieces)
        self.across = Share(b.rows, columns, pieces)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of the tile that a stage is multiplied for."""
        return self.a.rows, self.b.rows

    @property
    def layout(self) -> AccumulatorLayout:
        """How a wave holds its accumulators."""
        return wave_layout(self.down, self.across)

    @property
    def rows(self) -> int:
        """Rows of M that a wave computes."""
        return self.down.own * self.pieces

    @property
    def columns(self) -> int:
        """Columns of N that a wave computes."""
        return self.across.own * self.pieces

    @property
    def sums(self) -> RegisterType:
        """The type of an accumulator."""
        return S32 if self.a.dtype.name == "s8" else F32

    @property
    def slices(self) -> int:
        """Reads of a lane along a stage's K."""
        return self.a.k * self.a.bits // (8 * SLICE_BYTES)

    READ_BYTES = READ_BYTES

    @staticmethod
    def read_addresses(tile: OperandTile) -> list[list[int]]:
        """Where the lanes of a wave read the first rows of a tile's image, an access for each slice along K."""
        lanes = [(lane % ATOM, lane // ATOM * READ_BYTES) for lane in range(LANES)]
        return [
            [row * tile.row_bytes + tile.swizzled_byte(byte + along, row) for row, byte in lanes]
            for along in range(0, tile.row_bytes, SLICE_BYTES)
        ]

    @checked
    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundMfma:
        """Prepare a lane's places in the tiles; once a role."""
        group = require_group(type(self).__name__, group)
        require_sharing(type(self).__name__, "waves", self.down.waves * self.across.waves, group)
        return BoundMfma(w, self, tiles, group.part)


class BoundMfma:
    """An `Mfma` in a role: places at hand, ready to multiply stages.

    Attributes
    ----------
    reads
        Reads of a lane that an instruction takes.
    """

    synchronous = True

    def __init__(self, w: Writer, op: Mfma, tiles: dict[str, SharedArray], part: Value | int) -> None:
        self.op = op
        self._check_types(w)
        down, across = in_grid(part, op.across.waves)
        self._a = _Places(w, op.a, tiles[op.a.name], op.down, down)
        self._b = _Places(w, op.b, tiles[op.b.name], op.across, across)

    def row_places(self, w: Writer, stage: Value) -> StagePlaces:
        """Where a lane reads the wave's rows in a stage."""
        return self._a.at(w, stage)

    def column_places(self, w: Writer, stage: Value) -> StagePlaces:
        """Where a lane reads the wave's columns in a stage."""
        return self._b.at(w, stage)

    @checked
    def multiply(
        self, w: Writer, accumulators: Annotated[RegisterAccumulators, OWN_RULE], stage: Stage, *, accumulate: Value
    ) -> None:
        """Multiply a stage, with reads a few steps ahead of the instructions that need them."""
        op = self.op
        places = self.row_places(w, stage.index), self.column_places(w, stage.index)
        self.begin(w, stage.index)
        with w.when(~accumulate):
            accumulators.clear(w)
        slices, rows, columns = op.slices, op.rows // ATOM, op.columns // ATOM
        # In the order in which they are needed: the rows of a slice along K, then column by column.
        order = [(index, *one) for index in range(0, slices, self.reads) for one in _side_by_side(rows, columns)]
        reads = iter(order)
        read: dict[tuple[int, int, int], RegisterTile] = {}
        for place, (index, side, column) in enumerate(order):
            if side == ROWS:
                continue
            for one in islice(reads, max(0, place + 1 + rows + AHEAD - len(read))):
                read[one] = places[one[1]].read(w, one[0], one[2], self.reads)
            for row in range(rows):
                sums = sums_of(accumulators, row, column)
                at = index, row, column
                for step in self.steps(w, sums, read[index, side, column], read[index, ROWS, row], at):
                    step()

    def _check_types(self, w: Writer) -> None:
        """Refuse 8-bit floats that are another chip's.

        Raises
        ------
        TraceError
            ``TK-TRACE-017`` with the chip's own.
        """
        fnuz = w.target.has("fnuz_floats")
        self.reads = 1
        for tile in (self.op.a, self.op.b):
            name = tile.dtype.name
            if name not in NARROW:
                continue
            self.reads = 1 if fnuz else 2
            if name.endswith("fnuz") != fnuz:
                nearest = f"{name}fnuz" if fnuz else name.removesuffix("fnuz")
                raise TraceError(
                    f"mfma of {w.target.name} multiplies no {name}, of which tile {tile.name!r} is; nearest: {nearest}",
                    code="TK-TRACE-017",
                )

    def begin(self, w: Writer, stage: Value) -> None:
        """Read what else the products of a stage need: nothing."""

    def hold(self, w: Writer) -> None:
        """Have registers for the same where halves of a stage are multiplied one by one: none."""

    def beside(self, w: Writer, stage: Value, half: int) -> list[Step]:
        """Steps that read the same for a half of the wave's rows and columns into them."""
        return []

    def steps(
        self, w: Writer, sums: RegisterTile, a: RegisterTile, b: RegisterTile, at: tuple[int, int, int]
    ) -> list[Step]:
        """Steps that add the product of what lanes have read of 16 columns (`a`) and 16 rows (`b`).

        They are `at` a read along K, and the wave's so many atoms of rows and of columns.
        """
        mfma, names = w.gcn.mfma, (self.op.b.dtype.name, self.op.a.dtype.name)
        if self.reads == 2:
            formats = {f"{side}_format": FORMATS[name] for side, name in zip("ab", names, strict=True)}
            return [partial(mfma.f32_16x16x128, sums=sums, a=a, b=b, **formats)]
        halves = slice(0, 2), slice(2, 4)
        if names[0] == "s8":
            if w.target.has("deep_matrix"):
                return [partial(mfma.s32_16x16x64, sums=sums, a=a, b=b)]
            return [partial(mfma.s32_16x16x32, sums=sums, a=a[half], b=b[half]) for half in halves]
        if names[0] not in NARROW and w.target.has("deep_matrix"):
            return [partial(mfma.f32_16x16x32, sums=sums, a=a, b=b, type=names[0])]
        if names[0] in NARROW:
            types = {f"{side}_type": NARROW[name] for side, name in zip("ab", names, strict=True)}
            return [partial(mfma.f32_16x16x32_fp8, sums=sums, a=a[half], b=b[half], **types) for half in halves]
        return [partial(mfma.f32_16x16x16, sums=sums, a=a[half], b=b[half], type=names[0]) for half in halves]

    def commit(self, w: Writer) -> None:
        """Nothing to close: reads return to registers."""

    def wait(self, w: Writer, pending: int) -> None:
        """Nothing to wait for: what gives a stage back waits for the wave's reads."""


def sums_of(accumulators: Any, row: int, column: int) -> RegisterTile:
    """The sums of an instruction: 16 rows and 16 columns of a wave's."""
    block, lower = divmod(row, 2)
    first = (2 * column + lower) * ATOM_REGISTERS
    sums: RegisterTile = list(accumulators)[block][first : first + ATOM_REGISTERS]
    return sums


def _side_by_side(rows: int, columns: int) -> list[tuple[int, int]]:
    """Every atom of both sides: the rows', then the columns'."""
    return [(side, atom) for side, count in ((ROWS, rows), (COLUMNS, columns)) for atom in range(count)]


class _Places:
    """Where a lane reads a tile: row ``lane % 16`` of each instruction, piece ``lane / 16`` of each slice along K."""

    def __init__(self, w: Writer, tile: OperandTile, stages: SharedArray, share: Share, wave: Value | int) -> None:
        lane = w.lane()
        row = lane & (ATOM - 1)
        byte = (lane // ATOM) * READ_BYTES
        first = wave * tile.offset_of(share.own)
        self._tile = tile
        self._share = share
        self._stages = stages
        self._offsets = [
            row * tile.row_bytes + tile.swizzled(byte + along, row) + first
            for along in range(0, tile.row_bytes, SLICE_BYTES)
        ]

    def at(self, w: Writer, stage: Value) -> StagePlaces:
        """Turn to a stage."""
        base = self._stages.at(w, stage)
        return StagePlaces(self._tile, self._share, [base + offset for offset in self._offsets])


@dataclass(frozen=True)
class StagePlaces:
    """The same in one stage."""

    tile: OperandTile
    share: Share
    bases: list[Value]

    def read(self, w: Writer, index: int, atom: int, reads: int) -> RegisterTile:
        """Read a lane's part of an instruction's rows and so many slices along K."""
        if reads == 1:
            address, offset = self._place(index, atom)
            values: RegisterTile = w.gcn.lds.read_b32x4(address=address, offset=offset)
            return values
        words = READ_BYTES // 4
        values = w.tile(B32, reads * words, "factor")
        for number in range(reads):
            self.refill(w, index + number, atom, values[number * words : (number + 1) * words])
        return values

    def refill(self, w: Writer, index: int, atom: int, values: RegisterTile) -> None:
        """Read it into registers that are there."""
        address, offset = self._place(index, atom)
        w.gcn.lds.refill_b32x4(address=address, offset=offset, values=values)

    def _place(self, index: int, atom: int) -> tuple[Value, int]:
        tile = self.tile
        block, along = divmod(index, len(self.bases))
        far, offset = divmod(block * tile.slice_bytes + tile.offset_of(self.share.row(atom * ATOM)), OFFSETS)
        return (self.bases[along] + far * OFFSETS).retyped(SMEM), offset
