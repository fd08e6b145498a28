"""Whether an operand may stand where it does: register files, widths, alignment, constants, and the bus for scalars."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence

from tilekit.emulator.gcn.binary.instructions.table import Form, Operand
from tilekit.emulator.gcn.language.syntax import VCC, Constant, Instruction, Off, Register, Symbol
from tilekit.emulator.gcn.language.syntax import Operand as Given

__all__ = ["bus_reason", "inline", "operand_reason", "register_reason", "size_of"]

_VECTORS = 256
_SGPRS = 102
_STATUS = 235
"""The first number of what can only be read: apertures, and the condition codes."""
_TTMP = range(108, 124)
_FLOATS = (0.5, 1.0, 2.0, 4.0)
_INVERSE_TWO_PI = 0.15915494309189532
_LAST_SIZE = re.compile(r"_[a-z]*?(16|32|64)(?=$|_)")


def _bits() -> dict[int, frozenset[int]]:
    values = [sign * value for value in _FLOATS for sign in (1, -1)]
    found = {}
    for size, form, whole in ((16, "<e", "<H"), (32, "<f", "<I"), (64, "<d", "<Q")):
        codes = {struct.unpack(whole, struct.pack(form, value))[0] for value in values}
        found[size] = frozenset(codes | {struct.unpack(whole, struct.pack(form, _INVERSE_TWO_PI))[0]})
    return found


_INLINE = _bits()


def size_of(mnemonic: str, operand: Operand) -> int:
    """Bits of the numbers that an operand takes."""
    if operand.width == 2:
        return 64
    sizes = _LAST_SIZE.findall(mnemonic)
    return 16 if sizes and sizes[-1] == "16" else 32


def inline(constant: Constant, size: int) -> bool:
    """Whether an operand holds a constant without a literal behind the instruction."""
    value = constant.value
    if isinstance(value, float):
        return abs(value) in _FLOATS or value == 0 or abs(value - _INVERSE_TWO_PI) < 1e-8
    if not -(1 << size - 1) <= value < 1 << size:
        return False
    if value >= 1 << size - 1:
        value -= 1 << size
    return -16 <= value <= 64 or value & ((1 << size) - 1) in _INLINE[size]


def operand_reason(
    given: Given,
    kinds: str,
    width: int,
    size: int,
    signs: Mapping[str, bool],
    *,
    written: bool = False,
    floating: bool = True,
) -> str:
    """Why an operand cannot be what the table says; empty where it can.

    Parameters
    ----------
    given
        It.
    kinds, width
        Letters of the table, and registers.
    size
        Bits of a number there.
    signs
        Which of ``neg``, ``abs`` and ``sext`` may stand around it.
    written
        Whether it is a destination.
    floating
        Whether the instruction is one of floating-point numbers.
    """
    match given:
        case Register():
            for sign, name in ((given.negate, "neg"), (given.absolute, "abs"), (given.extend, "sext")):
                if sign and not signs.get(name):
                    return f"cannot be taken with {name}"
            return register_reason(given, kinds, width, written=written)
        case Constant():
            return _constant(given, kinds, size, floating)
        case Symbol():
            return "" if "l" in kinds else "cannot be an address"
        case Off():
            return "cannot be off"
    return f"must be {_words(kinds, width)}"


def _words(kinds: str, width: int) -> str:
    names = {"v": "a vector register", "a": "an accumulator", "s": "a scalar register", "i": "a small integer"}
    found = " or ".join(name for letter, name in names.items() if letter in kinds)
    return f"{found} ({width} wide)" if width > 1 else found


def register_reason(given: Register, kinds: str, width: int, *, written: bool = False) -> str:
    """Why a register cannot stand there."""
    if given.file not in kinds:
        return f"is {given}, and must be {_words(kinds, width)}"
    if given.file in "va":
        if given.count != width:
            return f"is {given}, and takes {width} register{'s' * (width > 1)}"
        if given.first + given.count > _VECTORS:
            return f"is {given}: the last is {given.file}{_VECTORS - 1}"
        return f"is {given}, which does not begin at an even register" if width > 1 and given.first % 2 else ""
    if given.first >= _STATUS:
        return f"is {given}, which can only be read" if written or kinds == "s" else ""
    if given.count != width:
        return f"is {given}, and takes {width} register{'s' * (width > 1)}"
    if given.first >= _SGPRS:
        return "" if given.first not in _TTMP or (given.first - _TTMP.start) % min(width, 4) == 0 else "is misaligned"
    if width > 1 and given.first % min(width, 4):
        return f"is {given}, which does not begin at a multiple of {min(width, 4)}"
    return ""


def _constant(given: Constant, kinds: str, size: int, floating: bool) -> str:
    value = given.value
    if inline(given, size):
        whole = isinstance(value, int) and -16 <= value <= 64
        return "" if ("i" in kinds if whole or value == 0 else "f" in kinds or "l" in kinds) else "cannot be a number"
    if "l" not in kinds:
        return f"cannot be the literal {value}" if "i" in kinds else "cannot be a number"
    if isinstance(value, float) and size == 64 and not floating:
        return f"cannot be the number {value}, which has no 64 bits here"
    if isinstance(value, int):
        wide = 32 if size != 16 else 16
        if not -(1 << wide - 1) <= value < 1 << wide:
            return f"is {value:#x}, which has more than {wide} bits"
    return ""


def bus_reason(i: Instruction, format_: str, form: Form, expected: Sequence[Operand]) -> str:
    """Why scalars and literals of an instruction do not fit: a vector one reads one, others have one literal."""
    literals = {operand.value if isinstance(operand, Constant) else operand for operand in _literals(i, form, expected)}
    if format_.startswith("SOP"):
        return "has room for one literal" if len(literals) > 1 else ""
    if not format_.startswith("VOP"):
        return ""
    scalars = set()
    for operand, given in zip(expected, i.operands, strict=False):
        source = operand.field.startswith(("src", "vsrc"))
        if source and isinstance(given, Register) and given.file == "s" and not _lane(form, operand, given):
            scalars.add(given.first)
    if (form.operands and form.operands[-1].field == "vcc" and len(form.operands) > 1) or form.mnemonic.startswith(
        "v_div_fmas"
    ):
        scalars.add(VCC)
    return "reads more than one scalar or literal" if len(scalars) + len(literals) > 1 else ""


def _lane(form: Form, operand: Operand, given: Register) -> bool:
    """Whether a scalar chooses a lane by way of m0, which takes no place on the bus."""
    return form.mnemonic == "v_writelane_b32" and operand.field == "src1" and given.first == 124


def _literals(i: Instruction, form: Form, expected: Sequence[Operand]) -> list[Constant | Symbol]:
    found: list[Constant | Symbol] = []
    for operand, given in zip(expected, i.operands, strict=False):
        if not isinstance(given, Constant | Symbol) or not (operand.kinds or operand.field == "K"):
            continue
        if isinstance(given, Symbol) or operand.field == "K" or not inline(given, size_of(form.mnemonic, operand)):
            found.append(given)
    return found
