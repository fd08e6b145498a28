"""Operands of vector instructions as Python expressions over NumPy arrays.

A vector register is a row of ``V``: `U`, `I` and `F` are its rows as uint32, int32 and float32, each [waves, 64].
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.gcn.language.syntax import (
    EXEC,
    SCC,
    Call,
    Constant,
    Instruction,
    Operand,
    Register,
    Symbol,
)
from tilekit.emulator.gcn.memory.flat_access import APERTURES

if TYPE_CHECKING:
    from tilekit.emulator.gcn.compiler.emitter import Emitter

__all__ = ["bits_of", "index_mode", "scalar", "scalar64", "source", "unsupported"]

_FLOATS = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}
_SELECTIONS = {f"BYTE_{n}": (8 * n, 0xFF) for n in range(4)} | {f"WORD_{n}": (16 * n, 0xFFFF) for n in range(2)}


def unsupported(instruction: Instruction, why: str) -> UnsupportedInstruction:
    """Return the error for a form that is not executed."""
    return UnsupportedInstruction(
        f"'{instruction.name}' {why}: {instruction.text}", line=instruction.line, column=instruction.column,
        form=instruction.name,
    )  # fmt: skip


_PARTS = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": 8}


def index_mode(i: Instruction) -> int:
    """Which operands an instruction has indexed from then on."""
    operand = i.operands[-1] if i.operands else None
    if isinstance(operand, Call) and operand.name == "gpr_idx":
        unknown = [part for part in operand.arguments if part not in _PARTS]
        if not unknown:
            return sum(_PARTS[str(part)] for part in set(operand.arguments))
    elif isinstance(operand, Constant) and isinstance(operand.value, int) and 0 <= operand.value <= 15:
        return operand.value
    raise unsupported(i, f"needs gpr_idx(...) of {', '.join(_PARTS)}")


def bits_of(constant: Constant, kind: str) -> int:
    """Return the bits that a constant has for a user of a kind such as ``f16`` or ``u32``.

    A floating-point constant is one of the inline ones (0.5, 1.0, … or 1/(2 pi)), in the user's width; for integers of
    64 bits too. A 32-bit literal for a double is its upper half.
    """
    size = int(kind[1:])
    value = constant.value
    if isinstance(value, float):
        name = "f16" if size == 16 and kind != "b16" else "f64" if size == 64 else "f32"
        form, integer = _FLOATS[name]
        return int(struct.unpack(integer, struct.pack(form, value))[0])
    if kind == "f64" and not -16 <= value <= 64 and value < 1 << 32:
        return (value & 0xFFFFFFFF) << 32
    return value & ((1 << size) - 1)


def scalar(e: Emitter, operand: Operand) -> str:
    """A 32-bit scalar source: an expression with a number, or one a wave."""
    match operand:
        case Register(file="s", first=first, count=1):
            if first in (EXEC, EXEC + 1):
                return f"halves(B.exec_mask())[{first - EXEC}]"
            if first in APERTURES:
                return str(APERTURES[first] & 0xFFFFFFFF)
            if first == SCC:
                return "choose(B.scc, 1, 0)"
            if first in (251, 252):
                what = "wide(S, 106)" if first == 251 else "B.exec_mask()"
                return f"choose(nonzero({what}), 0, 1)"
            return f"word(S, {first})" if first in e.maskable else f"S[{first}]"
        case Constant():
            return str(bits_of(operand, "u32"))
        case Register(file="s"):
            raise unsupported(e.instruction, "takes one register where the text has several")
        case Symbol():
            return _address(e, operand)
    raise unsupported(e.instruction, "has an operand that is no scalar")


_LITERALS = {"lo": 4, "hi": 12}
"""Where the words that hold an address' parts stand behind the instruction that reads the program counter."""


def _address(e: Emitter, symbol: Symbol) -> str:
    """A word of a symbol's address, or of its distance from the program counter that was read before."""
    if symbol.name not in e.labels:
        raise unsupported(e.instruction, f"uses the address of '{symbol.name}', which the text does not define")
    kind, _, half = symbol.part.partition("@")
    shift = " >> 32" if half == "hi" else ""
    if kind == "abs32" and half:
        return f"(B.launch.image.address({symbol.name!r}) + {symbol.addend}{shift} & M32)"
    if kind not in ("rel32", "gotpcrel32") or half not in _LITERALS:
        raise unsupported(e.instruction, f"uses the address of '{symbol.name}' in a way that is not executed")
    counter = e.counter_of(e.instruction)
    if counter is None:
        raise unsupported(e.instruction, "needs an s_getpc_b64 before it, in the same block")
    found = "entry" if kind == "gotpcrel32" else "address"
    distance = f"B.launch.image.{found}({symbol.name!r}) - B.launch.image.address_of_code({counter})"
    return f"(({distance} + {symbol.addend - _LITERALS[half]}){shift} & M32)"


def scalar64(e: Emitter, operand: Operand) -> str:
    """A 64-bit scalar source."""
    match operand:
        case Register(file="s", first=first):
            if first in APERTURES:
                return str(APERTURES[first])
            return "B.exec_mask()" if first == EXEC else f"wide(S, {first})"
        case Constant():
            value = bits_of(operand, "u64")
            if isinstance(operand.value, int) and operand.value >= 1 << 31 and operand.value < 1 << 32:
                value = operand.value  # a literal of 32 bits
            return str(value)
    raise unsupported(e.instruction, "has an operand that is no pair of scalars")


def source(e: Emitter, index: int, kind: str) -> str:
    """Source `index` (0 for src0) of a vector instruction as an array, or a NumPy number, of a kind such as ``f32``."""
    operand = e.sources[index]
    instruction = e.instruction
    modifiers = instruction.modifiers
    raw = _raw(e, operand, kind, index)
    sdwa = modifiers.get(f"src{index}_sel")
    if sdwa is not None and sdwa != "DWORD":
        shift, low = _SELECTIONS[sdwa]
        raw = f"(({raw} >> {shift}) & {low})" if shift else f"({raw} & {low})"
        if isinstance(operand, Register) and operand.extend:
            raw = f"sign_extend({raw}, {8 if low == 0xFF else 16})"
    high = _selected(modifiers, index) and kind in ("f16", "u16", "i16", "b16") and sdwa is None
    expression = _VIEWS[kind](f"({raw} >> 16)" if high else raw)
    if isinstance(operand, Register):
        if (operand.absolute or operand.negate) and kind[0] not in "fb":
            raise unsupported(instruction, "has a sign on an operand that is no floating-point number")
        if operand.absolute:
            expression = f"abs_{kind}({expression})"
        if operand.negate:
            expression = f"neg_{kind}({expression})"
    return expression


def _selected(modifiers: Any, index: int) -> bool:
    chosen = modifiers.get("op_sel")
    return bool(chosen and index < len(chosen) and chosen[index])


def _raw(e: Emitter, operand: Operand, kind: str, index: int) -> str:
    """The bits, as uint32 or, for 64-bit kinds, uint64."""
    size = int(kind[1:])
    match operand:
        case Register(file="v" | "a"):
            number = e.vector(operand)
            if size == 64:
                return f"pair(U[{number}], U[{number + 1}])"
            if index == 0 and e.dpp is not None:
                return "moved"
            return f"U[{number}]"
        case Register(file="s") if size == 64:
            return f"v64({scalar64(e, operand)})"
        case Register(file="s"):
            return f"v32({scalar(e, operand)})"
        case Constant():
            bits = bits_of(operand, kind)
            return e.constant(np.uint64(bits) if size == 64 else np.uint32(bits))
    raise unsupported(e.instruction, "has an operand that is no register or number")


_VIEWS: dict[str, Callable[[str], str]] = {
    "u32": lambda x: x,
    "b32": lambda x: x,
    "i32": lambda x: f"{x}.view(i4)",
    "f32": lambda x: f"{x}.view(f4)",
    "u16": lambda x: f"{x}.astype(u2)",
    "b16": lambda x: f"{x}.astype(u2)",
    "i16": lambda x: f"{x}.astype(u2).view(i2)",
    "f16": lambda x: f"{x}.astype(u2).view(f2)",
    "u64": lambda x: x,
    "b64": lambda x: x,
    "i64": lambda x: f"{x}.view(i8)",
    "f64": lambda x: f"{x}.view(f8)",
}
