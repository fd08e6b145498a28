"""Constants in PTX."""

from __future__ import annotations

import struct

from tilekit.assembly.numbers import Number


def literal(number: Number) -> str:
    """Spell a constant: integers in decimal, an f32 exactly, in hexadecimal, rounded to the nearest float32."""
    if number.type.kind == "float":
        return "0f" + struct.pack(">f", number.value).hex().upper()
    return str(number.value)
