"""A stage's products in four quadrants: halves of a wave's rows by halves of its columns, read and multiplied in steps.

What a schedule of a k-tile's instructions is made of: each step emits one read or one product, and the schedule calls
them in its order. Registers for what is read are there for the whole role, so a half can be read turns ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tilekit.assembly.types import B32
from tilekit.assembly.values import RegisterTile
from tilekit.assembly.writer import Writer
from tilekit.tile_op.mfma import ATOM, READ_BYTES, BoundMfma, StagePlaces, sums_of
from tilekit.tiles.stage import Step

HALVES: Final = 2
"""Halves of the rows and of the columns."""

WORDS: Final = READ_BYTES // 4
"""Registers that a read fills."""


@dataclass(frozen=True)
class Half:
    """Registers for what a lane reads of half of a wave's rows or columns, a whole stage deep.

    Attributes
    ----------
    registers
        All of them: those of an instruction's reads stand side by side.
    atoms
        Instructions that the rows or columns are.
    slices
        Reads along K.
    reads
        Those that one instruction takes.
    """

    registers: RegisterTile
    atoms: int
    slices: int
    reads: int

    @classmethod
    def of_rows(cls, w: Writer, op: BoundMfma, name: str) -> Half:
        """Registers for half of the rows."""
        return cls._of(w, op, op.op.rows, name)

    @classmethod
    def of_columns(cls, w: Writer, op: BoundMfma, name: str) -> Half:
        """Registers for half of the columns."""
        return cls._of(w, op, op.op.columns, name)

    @classmethod
    def _of(cls, w: Writer, op: BoundMfma, extent: int, name: str) -> Half:
        atoms, slices = extent // (ATOM * HALVES), op.op.slices
        return cls(w.tile(B32, atoms * slices * WORDS, name), atoms, slices, op.reads)

    def factor(self, index: int, atom: int) -> RegisterTile:
        """What an instruction takes: those of 16 rows or columns, and of its reads along K from one on."""
        first = (index * self.atoms + atom * self.reads) * WORDS
        return self.registers[first : first + self.reads * WORDS]

    def steps(self, w: Writer, places: StagePlaces, which: int) -> list[Step]:
        """Steps that read half `which`, in the order in which products need it."""
        return [
            partial(
                places.refill,
                w,
                first + index,
                which * self.atoms + atom,
                self.factor(first, atom)[index * WORDS : (index + 1) * WORDS],
            )
            for first in range(0, self.slices, self.reads)
            for atom in range(self.atoms)
            for index in range(self.reads)
        ]


def products(
    w: Writer, op: BoundMfma, accumulators: Any, rows: tuple[int, Half], columns: tuple[int, Half]
) -> list[Step]:
    """Steps that multiply a quadrant: which half of the rows and of the columns, and the registers that hold it."""
    (down, a), (across, b) = rows, columns
    return [
        step
        for index in range(0, a.slices, a.reads)
        for column in range(b.atoms)
        for row in range(a.atoms)
        for step in op.steps(
            w,
            sums_of(accumulators, down * a.atoms + row, across * b.atoms + column),
            b.factor(index, column),
            a.factor(index, row),
            (index, down * a.atoms + row, across * b.atoms + column),
        )
    ]
