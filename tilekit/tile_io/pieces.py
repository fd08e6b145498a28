"""Pieces of a tile's image: what the swizzle keeps together, and which of them a thread of the load role writes."""

from __future__ import annotations

from typing import Final

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES

__all__ = ["PIECE", "PIECES", "BoundPieces"]

PIECE: Final = 16
"""Bytes that the swizzle keeps together."""

PIECES: Final = SWIZZLE_BYTES // PIECE
"""Pieces of a line of the image."""


class BoundPieces:
    """The pieces of a thread of the load role.

    Thread t has piece t % 8 of lines t / 8, t / 8 + threads / 8, …, which are whole swizzles apart: the swizzle moves
    its piece alike in all of them.

    Parameters
    ----------
    w
        The writer.
    first
        The role's first thread.
    apart
        From piece to piece of a line of the operand, in bytes or elements.
    stages
        The images.

    Attributes
    ----------
    line, along
        The thread's first line of a block, and what lies before its piece there.
    """

    def __init__(self, w: Writer, first: int, apart: int, stages: SharedArray) -> None:
        thread = w.thread() - first
        piece = thread % PIECES
        self.line = thread // PIECES
        self.along = piece * apart
        self._stages = stages
        self._image = self.line * SWIZZLE_BYTES + (piece ^ (self.line % ATOM_ROWS)) * PIECE

    def image(self, w: Writer, stage: Value) -> Value:
        """Where this thread's first piece lies in a stage."""
        return self._stages.at(w, stage) + self._image
