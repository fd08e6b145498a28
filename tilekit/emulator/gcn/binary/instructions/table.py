"""What each opcode is: its mnemonic, operands and modifiers, as LLVM's assembler takes them.

``table.txt`` has a line for each opcode of each format: ``FORMAT NUMBER mnemonic operands | modifiers @chip``, the chip
only where the other one lacks it. An operand ``src0.va2`` is the field, the kinds of register or constant that it may
hold (v, a, s: registers; i: an integer constant, f: one in floating point; l: a literal; r: any of v, s, i, f, l), and
how many registers it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["Form", "Operand", "forms"]

_ANY = "vsifl"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: a field with the kinds it may hold and its width in registers, or a word that stands for itself.

    Attributes
    ----------
    field
        Of the format; or the word, with no kinds: ``vcc``, ``K`` (the literal that follows), ``label``, ``address`` ...
    kinds
        Letters of the module's docstring.
    width
        Registers; 0 where another field decides.
    returned
        Whether it is there only where the instruction returns what memory held before.
    """

    field: str
    kinds: str = ""
    width: int = 0
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """An opcode of one format.

    Attributes
    ----------
    mnemonic
        Without the suffix that names the encoding.
    operands
        In the order of the text.
    modifiers
        What may follow them; where it applies to some sources only (``neg:01``), their numbers.
    """

    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, str]


@cache
def forms(chip: str) -> dict[tuple[str, int], Form]:
    """Return the forms that a chip has, by format and opcode."""
    found = {}
    text = resources.files(__package__).joinpath("table.txt").read_text("utf-8")
    for line in text.splitlines():
        body, _, only = line.partition(" @")
        if not only or only == chip:
            head, _, modifiers = body.partition(" | ")
            name, opcode, mnemonic, *operands = head.split()
            found[name, int(opcode, 16)] = Form(
                mnemonic, tuple(map(_operand, operands)), dict(map(_modifier, modifiers.split()))
            )
    return found


def _operand(text: str) -> Operand:
    field, dot, kind = text.removesuffix("?").partition(".")
    if not dot:
        return Operand(field)
    kinds = kind.rstrip("0123456789")
    width = kind[len(kinds) :]
    return Operand(field, _ANY if kinds == "r" else kinds, int(width or 0), text.endswith("?"))


def _modifier(text: str) -> tuple[str, str]:
    name, _, sources = text.replace("=", ":").partition(":")
    return name, sources
