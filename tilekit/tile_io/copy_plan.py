"""How threads copy an operand's tiles where the copy engine does not: in pieces of so many bytes, shifted or not."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import illegal, require_word
from tilekit.assembly.shared import SharedDeclaration
from tilekit.tiles.interleave import INTERLEAVED, interleaved_row
from tilekit.tiles.operand import OperandTile

WIDTHS = (8, 4, 2, 1)
"""Bytes of which an operand's address and pitches may be multiples, where TMA wants 16."""

PIECE = 16
"""Bytes that the swizzle keeps together, and that are copied together where lines are shifted."""

WORD = 4

SWIZZLE_LINES = 8
"""Lines after which the swizzle repeats."""

WARPS = 4
"""Warps that copy where nothing else is asked for."""

COPYING_REGISTERS = 56
"""Registers of a thread that copies: addresses of both operands, and the words it has in hand."""

NARROW_REGISTERS = 96
"""Those of a thread that multiplies, too, beside those that pieces of 16 bytes take: two ways, and lines to shift."""

TAIL_ALIGNMENT = 128


@dataclass(frozen=True)
class CopyPlan:
    """Which thread copies what of an image, a sequence of lines of `row_bytes` of the tile.

    Lines that are as far apart as swizzle and shift take to repeat are of one class, and a warp has whole classes: what
    a thread knows of its first line of a class holds for all of them. A warp copies several lines of a class at once,
    one piece a lane, and comes back every `unit` lines.

    Attributes
    ----------
    tile
        The image.
    width
        What the operand's address, rows and pitches, in bytes, are multiples of: one of `WIDTHS`, or 16.
    warps
        Warps that copy; the first of them has a number that is a multiple of this.
    interleaved
        Whether lines of the image are rows of the tile in the order of `interleaved_row`, as an interleaved `MmaSync`
        reads B: of K-major tiles that are copied in pieces of 16 bytes.
    """

    tile: OperandTile
    width: int
    warps: int = WARPS
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.tile, OperandTile):
            raise illegal("CopyPlan", "tile", self.tile, "an OperandTile")
        require_word("CopyPlan", "width", self.width, (PIECE, *WIDTHS))
        require_word("CopyPlan", "warps", self.warps, (1, 2, 4, 8))
        legal = (True, False) if self.width == PIECE and self.tile.major == "k" else (False,)
        require_word("CopyPlan", "interleaved", self.interleaved, legal)

    @property
    def shifts(self) -> bool:
        """Whether lines are shifted after the copy."""
        return self.width < WORD

    @property
    def clocks(self) -> int:
        """Instructions of a warp of the load role for a stage, where they are what takes the time: here copies are."""
        return 0

    @property
    def registers(self) -> int:
        """Registers of a thread of the load role."""
        return COPYING_REGISTERS

    @property
    def copied(self) -> int:
        """Bytes of one copy."""
        return PIECE if self.shifts else self.width

    @property
    def period(self) -> int:
        """Lines after which swizzle and shift repeat."""
        return max(SWIZZLE_LINES, PIECE // self.width)

    @property
    def classes(self) -> int:
        """Classes of a warp."""
        return self.period // self.warps

    @property
    def unit(self) -> int:
        """Lines that all warps copy at once, each in one class."""
        return self.period * (32 * self.copied // self.tile.row_bytes)

    @property
    def lines(self) -> int:
        """Lines of the image."""
        return self.tile.bytes // self.tile.row_bytes

    @property
    def block_lines(self) -> int:
        """Lines that are one pitch of the operand apart; the image goes on with what lies beside the first of them."""
        return self.tile.rows if self.tile.major == "k" else self.tile.k

    @property
    def blocks(self) -> int:
        """Blocks of so many lines."""
        return self.lines // self.block_lines

    def check(self) -> None:
        """Refuse a tile that the threads cannot divide.

        Raises
        ------
        TraceError
            ``TK-TRACE-017``, with the nearest tile.
        """
        tile = self.tile
        if tile.dtype.bits % 8:
            raise TraceError(
                f"CpAsyncLoader copies whole bytes, and tile {tile.name!r} has elements of {tile.dtype.bits} bits; "
                "load it by TMA",
                code="TK-TRACE-017",
            )
        if self.interleaved and (self.width != PIECE or tile.major != "k" or self.unit % INTERLEAVED):
            raise TraceError(
                f"tile {tile.name!r}, {tile.major!r}-major, is copied {self.unit} lines at once, and interleaved are "
                f"{INTERLEAVED} of a K-major one; nearest: interleaved=False",
                code="TK-TRACE-017",
            )
        if self.block_lines % self.unit:
            nearest = -(-self.block_lines // self.unit) * self.unit
            raise TraceError(
                f"CpAsyncLoader copies {self.unit} rows of {tile.row_bytes} bytes at once, in pieces of {self.copied}, "
                f"and tile {tile.name!r} has {self.block_lines}; nearest: {nearest} rows, or a wider swizzle",
                code="TK-TRACE-017",
            )

    def row_after(self, index: int) -> int:
        """Rows of the tile from a warp's first class of lines to another."""
        return interleaved_row(index) if self.interleaved else index

    @property
    def tail_bytes(self) -> int:
        """Shared memory of a stage's ninth pieces."""
        return self.lines * PIECE if self.shifts else 0

    def kept(self, name: str) -> tuple[SharedDeclaration, ...]:
        """Shared memory that it takes once, whatever the stages of the ring called `name`."""
        return ()

    def declared(self, name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory that it takes beside the image, in the ring called `name`."""
        if not self.shifts:
            return ()
        return (SharedDeclaration(f"{name}.{self.tile.name}_tails", self.tail_bytes, stages, TAIL_ALIGNMENT, "tile"),)
