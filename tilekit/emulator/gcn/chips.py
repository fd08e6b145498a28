"""The AMD chips that the emulator knows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHIPS", "Chip"]


@dataclass(frozen=True, slots=True)
class Chip:
    """What differs between chips.

    Attributes
    ----------
    name
        As compilers spell it.
    lds_bytes
        Most LDS of a workgroup.
    units
        Compute units.
    fnuz
        Whether 8-bit floating-point numbers have neither negative zero nor infinity, as on gfx942; else they are OCP's.
    """

    name: str
    lds_bytes: int
    units: int
    fnuz: bool


CHIPS = {chip.name: chip for chip in (Chip("gfx942", 65536, 304, fnuz=True), Chip("gfx950", 163840, 256, fnuz=False))}
"""Chips by name."""
