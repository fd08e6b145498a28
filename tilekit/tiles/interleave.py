"""The order of B's rows in an image that gives a thread neighbouring columns of the result."""

from __future__ import annotations

from typing import Final

INTERLEAVED: Final = 32
"""Rows of B that trade places: those of four instructions of 8 columns."""


def interleaved_row(line: int) -> int:
    """Which row of B a line of the image is: of each 32, column c of instruction j is ``8 (c / 2) + 2 j + c % 2``."""
    group, place = divmod(line, INTERLEAVED)
    instruction, column = divmod(place, 8)
    return group * INTERLEAVED + column // 2 * 8 + instruction * 2 + column % 2
