"""The AMD chips that there are, and their facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CHIPS", "Chip"]


@dataclass(frozen=True, slots=True)
class Chip:
    """What differs between chips.

    Attributes
    ----------
    name
        As compilers spell it.
    machine
        Its number in the low byte of an ELF header's flags.
    lds_bytes, lds_granule
        Local data share of a compute unit, all of which one workgroup may have, and the unit in which it is allocated.
    units
        Compute units.
    fnuz
        Whether 8-bit floating-point numbers have neither negative zero nor infinity, as on gfx942; else they are OCP's.
    """

    name: str
    machine: int
    lds_bytes: int
    lds_granule: int
    units: int
    fnuz: bool


CHIPS: Final = {
    chip.name: chip
    for chip in (
        Chip("gfx942", 0x4C, 65536, 512, 304, fnuz=True),
        Chip("gfx950", 0x4F, 163840, 1280, 256, fnuz=False),
    )
}
"""Chips by name."""
