"""TileOp on AMD chips for block-scaled factors: a matrix instruction of narrow floats that takes their scales, too.

A stage carries them beside the tiles. A lane reads the word of a row, four scales, those of 128 elements along K, and
hands the instruction the one of its own 32.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, SMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.targets import CHIPS
from tilekit.tile_op.accumulators import Warpgroup, require_group, require_sharing
from tilekit.tile_op.mfma import ATOM, COLUMNS, ROWS, BoundMfma, Mfma, Share, in_grid
from tilekit.tile_op.quadrants import HALVES
from tilekit.tiles.scale_tile import WORD_BYTES, ScaleTile
from tilekit.tiles.stage import Step

FORMATS: Final = {"e4m3": 0, "e5m2": 1, "e2m1x2": 4}
"""Numbers of the formats."""

KINDS: Final = (("e4m3", "e5m2"), ("e2m1x2",))
"""Element types, those that one instruction takes together here."""

SCALE_BITS: Final = 8


@component
class ScaledMfma(Mfma):
    """Multiplies tiles whose elements have a power of two for each 32 along K: MXFP8 and MXFP4.

    Parameters
    ----------
    a, b
        The scales' tiles, which say whose they are.
    waves, columns, pieces
        As of an `Mfma`.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for tiles that the waves cannot read or divide.
    """

    kinds = KINDS

    def __init__(self, a: ScaleTile, b: ScaleTile, *, waves: Count, columns: Count = 1, pieces: Count = 1) -> None:
        super().__init__(a.of, b.of, waves=waves, columns=columns, pieces=pieces)
        self.scales = a, b

    tile_shape = Mfma.tile_shape

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Warpgroup | None) -> BoundScaledMfma:
        """Prepare a lane's places in the tiles; once a role."""
        group = require_group("ScaledMfma", group)
        require_sharing("ScaledMfma", "waves", self.down.waves * self.across.waves, group)
        return BoundScaledMfma(w, self, tiles, group.part)


class BoundScaledMfma(BoundMfma):
    """A `ScaledMfma` in a role."""

    def __init__(self, w: Writer, op: ScaledMfma, tiles: dict[str, SharedArray], part: Value | int) -> None:
        super().__init__(w, op, tiles, part)
        down, across = in_grid(part, op.across.waves)
        lane = w.lane()
        self._group = lane // ATOM
        self._turn = self._group * SCALE_BITS
        sides = ((op.scales[0], op.down, down), (op.scales[1], op.across, across))
        self._places = [
            _Words(tile, share, tiles[tile.name], ((lane & (ATOM - 1)) + wave * share.own) * WORD_BYTES)
            for tile, share, wave in sides
        ]
        self._scales: dict[tuple[int, int, int], Value] = {}

    def _check_types(self, w: Writer) -> None:
        """Refuse a chip without the instruction.

        Raises
        ------
        TraceError
            ``TK-TARGET-003``.
        """
        if not w.target.has("scaled_matrix"):
            able = ", ".join(chip.name for chip in CHIPS.values() if chip.has("scaled_matrix"))
            raise TraceError(
                f"{w.target.name} has no matrix instruction that takes scales; nearest: {able}", code="TK-TARGET-003"
            )
        self.reads = 1 if self.op.a.dtype.name == "e2m1x2" else 2

    def begin(self, w: Writer, stage: Value) -> None:
        """Read the scales of a stage."""
        self._scales = {
            (side, word, atom): (value >> self._turn).retyped(B32)
            for side, places in enumerate(self._places)
            for (word, atom), value in places.read(w, stage)
        }

    def hold(self, w: Writer) -> None:
        """Have registers for a stage's scales, of which a half is read while products take the other."""
        for side, places in enumerate(self._places):
            registers = w.tile(B32, places.tile.words * places.atoms, "scale")
            for index, register in enumerate(registers):
                self._scales[side, *divmod(index, places.atoms)] = register

    def beside(self, w: Writer, stage: Value, half: int) -> list[Step]:
        """Steps that read the scales of a half of the rows and of the columns: each lane the byte of its own 32."""
        return [
            partial(
                w.gcn.lds.refill_u8,
                address=address,
                value=self._scales[side, word, atom],
                offset=places.offset(word, atom),
            )
            for side, places in enumerate(self._places)
            for address in [(places.address(w, stage) + self._group).retyped(SMEM)]
            for word in range(places.tile.words)
            for atom in range(half * places.atoms // HALVES, (half + 1) * places.atoms // HALVES)
        ]

    def steps(
        self, w: Writer, sums: RegisterTile, a: RegisterTile, b: RegisterTile, at: tuple[int, int, int]
    ) -> list[Step]:
        """Steps that add the product of what lanes have read of 16 columns (`a`) and 16 rows (`b`)."""
        index, row, column = at
        word = index // self.reads
        return [
            partial(
                w.gcn.mfma.f32_16x16x128_scaled,
                sums=sums,
                a=a,
                b=b,
                a_scale=self._scales[COLUMNS, word, column],
                b_scale=self._scales[ROWS, word, row],
                a_format=FORMATS[self.op.b.dtype.name],
                b_format=FORMATS[self.op.a.dtype.name],
                a_low=0,
                a_high=0,
                b_low=0,
                b_high=0,
            )
        ]


class _Words:
    """Where a lane reads the scales of a side."""

    def __init__(self, tile: ScaleTile, share: Share, stages: SharedArray, first: Value) -> None:
        self.tile, self._share, self._stages, self._first = tile, share, stages, first

    @property
    def atoms(self) -> int:
        """Instructions that the wave's rows are."""
        return self._share.own * self._share.pieces // ATOM

    def address(self, w: Writer, stage: Value) -> Value:
        """Where the lane's first word is in a stage."""
        return (self._stages.at(w, stage) + self._first).retyped(SMEM)

    def offset(self, word: int, atom: int) -> int:
        """Bytes from there to the word of an atom of 16 rows."""
        return self.tile.offset(word, self._share.row(atom * ATOM))

    def read(self, w: Writer, stage: Value) -> list[tuple[tuple[int, int], Value]]:
        """The words of a stage, by their place along K and the atom of 16 rows."""
        address = self.address(w, stage)
        return [
            ((word, atom), w.gcn.lds.read_b32(address=address, offset=self.offset(word, atom)))
            for word in range(self.tile.words)
            for atom in range(self.atoms)
        ]
