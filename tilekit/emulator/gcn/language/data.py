"""Data in the text: what stands in sections that a launch has in memory, and where labels are in it."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from tilekit.emulator.gcn.language.expressions import Reader

__all__ = ["DataSection", "Pointer", "is_loaded", "read_data"]

_SIZES = {
    ".byte": 1, ".short": 2, ".hword": 2, ".2byte": 2, ".long": 4, ".int": 4, ".word": 4, ".4byte": 4, ".quad": 8,
    ".8byte": 8, ".octa": 16,
}  # fmt: skip
_FLOATS = {".float": "<f", ".single": "<f", ".double": "<d"}
_ALIGNED = {".p2align": True, ".align": False, ".balign": False}
_FILLED = {".zero", ".space", ".skip"}
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]+|.)", re.DOTALL)
_LETTERS = {b"n": 10, b"t": 9, b"r": 13, b"b": 8, b"f": 12, b"v": 11}
_LARGEST = 1 << 28


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address among the data: where it stands, and the symbol that it is of, with what is added."""

    offset: int
    symbol: str
    addend: int


@dataclass(slots=True)
class DataSection:
    """The data of one section."""

    name: str
    image: bytearray = field(default_factory=bytearray)
    pointers: list[Pointer] = field(default_factory=list)


def is_loaded(name: str) -> bool:
    """Whether a launch has a section's data in memory."""
    return name.startswith((".rodata", ".data", ".bss"))


def read_data(name: str, reader: Reader, section: DataSection) -> bool:
    """Add what a directive says to a section; returns whether it is one of data.

    Raises
    ------
    GcnSyntaxError
        Where an operand is no number, or no address of eight bytes.
    """
    image = section.image
    if name in _SIZES:
        while not reader.done:
            _add_number(reader, section, _SIZES[name])
            reader.accept(",")
    elif name in _FLOATS:
        while not reader.done:
            sign = -1.0 if reader.accept("-") else 1.0
            image += struct.pack(_FLOATS[name], sign * float(reader.take().text))
            reader.accept(",")
    elif name in (".ascii", ".asciz", ".string"):
        while not reader.done:
            image += _unescaped(reader.take().text[1:-1]) + (b"" if name == ".ascii" else b"\0")
            reader.accept(",")
    elif name in _FILLED:
        _fill(reader, image, 1, reader.number(), reader.number() if reader.accept(",") else 0)
    elif name == ".fill":
        count, size, value = reader.number(), 1, 0
        if reader.accept(","):
            size = reader.number()
            value = reader.number() if reader.accept(",") else 0
        _fill(reader, image, size, count, value)
    elif name in _ALIGNED:
        value = reader.number()
        to = 1 << value if _ALIGNED[name] else max(value, 1)
        image += bytes(-len(image) % to)
    else:
        return False
    return True


def _fill(reader: Reader, image: bytearray, size: int, count: int, value: int) -> None:
    if count < 0 or not 0 < size <= 8 or count * size > _LARGEST:
        raise reader.error(f"{count} times {size} bytes")
    image += (value & ((1 << 8 * size) - 1)).to_bytes(size, "little") * count


def _add_number(reader: Reader, section: DataSection, size: int) -> None:
    token = reader.peek()
    if token.kind == "word" and token.text not in reader.constants:
        reader.take()
        addend = reader.number() if reader.peek().text in ("+", "-") else 0
        if size != 8 or "@" in token.text:
            raise reader.error(f"'{token.text}' in {size} bytes: only addresses of 8 bytes are placed")
        section.pointers.append(Pointer(len(section.image), token.text, addend))
        section.image += bytes(8)
        return
    value = reader.number()
    section.image += (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _unescaped(text: str) -> bytes:
    def character(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape[:1] == b"x":
            return bytes([int(escape[1:], 16) & 255])
        return bytes([int(escape, 8) & 255 if escape.isdigit() else _LETTERS.get(escape, escape[0])])

    return _ESCAPE.sub(character, text.encode())
