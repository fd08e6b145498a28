"""What AMDGCN text is made of once it has been read: registers, constants, instructions, kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from tilekit.emulator.gcn.language.data import DataSection

__all__ = [
    "EXEC",
    "M0",
    "NAMED_REGISTERS",
    "SCC",
    "VCC",
    "Argument",
    "Call",
    "Constant",
    "Instruction",
    "KernelText",
    "ModuleText",
    "Off",
    "Operand",
    "Register",
    "Symbol",
]

VCC, M0, EXEC = 106, 124, 126
"""Numbers that instructions encode for special scalar registers; 64-bit ones are pairs."""
SCC = 253

NAMED_REGISTERS: dict[str, tuple[int, int]] = {
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1),
    "m0": (M0, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
    "src_vccz": (251, 1), "src_execz": (252, 1), "src_scc": (SCC, 1), "vccz": (251, 1), "execz": (252, 1),
    "scc": (SCC, 1), "src_shared_base": (235, 1), "src_shared_limit": (236, 1), "src_private_base": (237, 1),
    "src_private_limit": (238, 1),
}  # fmt: skip
"""Scalar registers with names: number and how many 32-bit registers they are."""


@dataclass(frozen=True, slots=True)
class Register:
    """One register or a range of them.

    Attributes
    ----------
    file
        ``s``, ``v`` or ``a``.
    first, count
        Number of the first, and how many.
    negate, absolute, extend
        Source modifiers ``-``, ``|x|`` and ``sext(x)``.
    """

    file: Literal["s", "v", "a"]
    first: int
    count: int = 1
    negate: bool = False
    absolute: bool = False
    extend: bool = False

    def __str__(self) -> str:
        for name, where in NAMED_REGISTERS.items():
            if self.file == "s" and where == (self.first, self.count):
                return name
        last = self.first + self.count - 1
        return f"{self.file}{self.first}" if self.count == 1 else f"{self.file}[{self.first}:{last}]"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number in the text: an integer, or one written as floating point, whose bits depend on who uses it."""

    value: int | float

    @property
    def floating(self) -> bool:
        """Whether it is written as floating point."""
        return isinstance(self.value, float)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A label or another symbol, with what is added to it and the part of it that is meant (``rel32@lo``)."""

    name: str
    addend: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Off:
    """The operand ``off``: no register there."""


@dataclass(frozen=True, slots=True)
class Call:
    """Something with arguments in parentheses: ``vmcnt(0)``, ``hwreg(HW_REG_MODE, 4, 2)``."""

    name: str
    arguments: tuple[int | str, ...]


Operand: TypeAlias = Register | Constant | Symbol | Off | Call


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction.

    Attributes
    ----------
    name
        Mnemonic without its encoding.
    encoding
        ``e32``, ``e64``, ``sdwa``, ``dpp`` where the text says so, else empty.
    operands
        In the order of the text.
    modifiers
        By name: True, a number, a list of numbers, or a word.
    line, column, text, provenance
        Where it stands, how it is written, and what its ``//@`` comment says of it.
    """

    name: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, Any]
    line: int
    column: int
    text: str
    provenance: str = ""

    def flag(self, name: str) -> bool:
        """Whether a modifier without a value is given."""
        return bool(self.modifiers.get(name, False))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel, as its metadata says: bytes from the start, size, and what it is."""

    offset: int
    size: int
    kind: str
    name: str = ""


@dataclass(slots=True)
class KernelText:
    """A kernel's descriptor and metadata.

    Attributes
    ----------
    name
        Symbol of its first instruction.
    fields
        ``.amdhsa_`` directives, by name without the prefix.
    arguments
        From the metadata, hidden ones included; None where there is no metadata.
    threads
        Most threads of a workgroup, from the metadata; None where there is none.
    line
        Where its descriptor begins.
    """

    name: str
    fields: dict[str, int]
    line: int
    arguments: list[Argument] | None = None
    threads: int | None = None


@dataclass(slots=True)
class ModuleText:
    """One assembly text: instructions, labels (index of the instruction that follows), kernels, data.

    Attributes
    ----------
    places
        Labels of data: number of the section and offset in it.
    target
        Chip named by ``.amdgcn_target``; empty without one.
    constants
        Symbols that ``.set`` gives a number.
    """

    target: str = ""
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, KernelText] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sections: list[DataSection] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
