"""The codes of operands as text: registers, constants, literals (CDNA3 and CDNA4 manuals, Scalar Operands)."""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "LITERAL_CODE",
    "VECTOR",
    "Literal",
    "UnknownCode",
    "registers",
    "scalar",
    "scalar_register",
    "source",
]

VECTOR: Final = 256
_INTEGERS: Final = 128  # 128 is 0, then come 1 to 64, then -1 to -16
_LAST_POSITIVE: Final = 192
_LAST_INTEGER: Final = 208
_LAST_SGPR: Final = 101
_NAMED: Final = {
    102: "flat_scratch_lo",
    103: "flat_scratch_hi",
    104: "xnack_mask_lo",
    105: "xnack_mask_hi",
    106: "vcc_lo",
    107: "vcc_hi",
    124: "m0",
    126: "exec_lo",
    127: "exec_hi",
}
_PAIRS: Final = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_TTMP: Final = range(108, 124)
_STATUS: Final = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
}
_FLOATS: Final = {
    240: "0.5",
    241: "-0.5",
    242: "1.0",
    243: "-1.0",
    244: "2.0",
    245: "-2.0",
    246: "4.0",
    247: "-4.0",
    248: "0.15915494",
}
_INVERSE_TWO_PI: Final = 248
_INVERSE_TWO_PI_64: Final = "0.15915494309189532"
LITERAL_CODE: Final = 255


def _inline() -> frozenset[int]:
    """Literals that the assembler would make an inline constant, in an operand of some type."""
    found = {value & 0xFFFFFFFF for value in range(-16, 65)} | {value & 0xFFFF for value in range(-16, 65)}
    for text in _FLOATS.values():
        value = float(text)
        found.add(int(struct.unpack("<I", struct.pack("<f", value))[0]))
        found.add(int(struct.unpack("<H", struct.pack("<e", value))[0]))
        found.add(int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16)
        found.add(int(struct.unpack("<Q", struct.pack("<d", value))[0]) >> 32)
    return frozenset(found)


_INLINE: Final = _inline()


class UnknownCode(Exception):  # noqa: N818  it never leaves the decoder
    """An operand that has no text: reserved, misaligned, or of a kind that the instruction does not take."""


class Literal:
    """The 32 bits after an instruction; `taken` when an operand has used them."""

    def __init__(self, value: int | None) -> None:
        self.value = value
        self.taken = False

    def text(self) -> str:
        """Return the value as an operand of which the assembler makes no shorter constant."""
        if self.value is None:
            raise UnknownCode("the literal is cut off")
        self.taken = True
        return f"lit({self.value:#x})" if self.value in _INLINE else f"{self.value:#x}"

    def plain(self) -> str:
        """Return the value as an operand that is a literal whatever it is."""
        if self.value is None:
            raise UnknownCode("the literal is cut off")
        self.taken = True
        return f"{self.value:#x}"


def registers(letter: str, first: int, width: int) -> str:
    """Return a vector register, or a range of them."""
    if first + width > 256 or (width > 1 and first % 2):
        raise UnknownCode(f"{letter}[{first}:{first + width - 1}]")
    return f"{letter}{first}" if width == 1 else f"{letter}[{first}:{first + width - 1}]"


def scalar(code: int, width: int, *, kinds: str = "s", of: Literal | None = None) -> str:
    """Return a scalar operand.

    Parameters
    ----------
    code
        0 to 255.
    width
        Registers.
    kinds
        What it may be, as in the table: ``s``, ``i``, ``f`` and ``l``.
    of
        The literal that follows, where there is room for one.
    """
    if code == LITERAL_CODE:
        if of is None or "l" not in kinds:
            raise UnknownCode("a literal")
        return of.text()
    if code in _FLOATS:
        if "f" not in kinds:
            raise UnknownCode(_FLOATS[code])
        return _INVERSE_TWO_PI_64 if code == _INVERSE_TWO_PI and width == 2 else _FLOATS[code]
    if _INTEGERS <= code <= _LAST_INTEGER:
        if "i" not in kinds:
            raise UnknownCode("an integer constant")
        return str(code - _INTEGERS if code <= _LAST_POSITIVE else _LAST_POSITIVE - code)
    if "s" not in kinds:
        raise UnknownCode("a scalar register")
    if code in _STATUS:
        if kinds == "s":
            raise UnknownCode(_STATUS[code])
        return _STATUS[code]
    return _register(code, width)


def scalar_register(code: int) -> bool:
    """Whether a code is read over the bus that brings scalars to the vector unit."""
    return code < _INTEGERS or code in _STATUS or code == LITERAL_CODE


def _register(code: int, width: int) -> str:
    last = code + width - 1
    aligned = width == 1 or code % min(width, 4) == 0
    if last <= _LAST_SGPR and aligned:
        return f"s{code}" if width == 1 else f"s[{code}:{last}]"
    if code in _TTMP and last in _TTMP and aligned:
        first = code - _TTMP.start
        return f"ttmp{first}" if width == 1 else f"ttmp[{first}:{first + width - 1}]"
    if width == 1 and code in _NAMED:
        return _NAMED[code]
    if width == 2 and code in _PAIRS:
        return _PAIRS[code]
    raise UnknownCode(f"scalar register {code}, {width} wide")


def source(code: int, kinds: str, width: int, *, accumulator: bool = False, of: Literal | None = None) -> str:
    """Return an operand of nine bits: a vector register, or whatever a scalar operand can be."""
    if code < VECTOR:
        if accumulator:
            raise UnknownCode("an accumulator that is none")
        return scalar(code, width, kinds=kinds, of=of)
    letter = "a" if accumulator else "v"
    if letter not in kinds:
        raise UnknownCode(f"{letter}{code - VECTOR}")
    return registers(letter, code - VECTOR, width)
