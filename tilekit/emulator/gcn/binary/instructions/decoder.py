"""Bytes of machine code to instructions, each with its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tilekit.emulator.gcn.binary.instructions.codes import LITERAL_CODE, Literal, UnknownCode
from tilekit.emulator.gcn.binary.instructions.fields import Fields
from tilekit.emulator.gcn.binary.instructions.formats import DPP, FORMATS, Format, extension_of, format_of
from tilekit.emulator.gcn.binary.instructions.matrix import matrix_operands, scaled_operands
from tilekit.emulator.gcn.binary.instructions.memory import buffer_operands, flat_operands, lds_operands
from tilekit.emulator.gcn.binary.instructions.scalar import scalar_operands
from tilekit.emulator.gcn.binary.instructions.table import Form, forms
from tilekit.emulator.gcn.binary.instructions.vector import (
    dpp_operands,
    packed_operands,
    sdwa_operands,
    vector_operands,
)

__all__ = ["Instruction", "instructions"]

_WORD: Final = 4
_SEGMENTS: Final = ("FLAT", "SCRATCH", "GLOBAL")
_SCALES: Final = "v_mfma_ld_scale_b32"
_PAIR: Final = 16


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a section of code.

    Attributes
    ----------
    address
        Of its first byte.
    data
        Its bytes, literal included.
    text
        As the assembler takes it; empty where the bytes are none of the chip's instructions.
    exact
        Whether the assembler makes the same bytes of the text: not where a bit is set that means nothing.
    """

    address: int
    data: bytes
    text: str
    exact: bool


def instructions(
    code: bytes, chip: str, *, address: int = 0, label: Callable[[int], str] = str
) -> Iterator[Instruction]:
    """Decode a section of code.

    Parameters
    ----------
    code
        Its bytes.
    chip
        ``gfx942`` or ``gfx950``.
    address
        Of the first byte.
    label
        Gives the name of an address that a branch goes to.
    """
    table = forms(chip)
    start = 0
    while start < len(code):
        found = _instruction(code, start, table, address + start, label)
        yield found
        start += len(found.data)


def _instruction(
    code: bytes, start: int, table: dict[tuple[str, int], Form], address: int, label: Callable[[int], str]
) -> Instruction:
    word = code[start : start + _WORD]
    form = format_of(int.from_bytes(word, "little")) if len(word) == _WORD else None
    if form is None or start + form.size > len(code):
        return Instruction(address, word, "", exact=False)
    reader = _Reader(code[start : start + _PAIR + _WORD], form, table, address, label)
    try:
        text = reader.text()
    except UnknownCode:
        return Instruction(address, word if form.size == _WORD else code[start : start + form.size], "", exact=False)
    return Instruction(address, code[start : start + reader.size], text, exact=not reader.lost())


class _Reader:
    """One instruction on its way to text."""

    def __init__(
        self,
        data: bytes,
        form: Format,
        table: dict[tuple[str, int], Form],
        address: int,
        label: Callable[[int], str],
    ) -> None:
        self.data = data
        self.table = table
        self.address = address
        self.label = label
        self.size = form.size
        if form.name == "VOP3P":
            opcode = form.read(int.from_bytes(data[:8], "little"))["op"]
            form = FORMATS["MAI"] if ("MAI", opcode) in table else form
        self.form = form
        self.parts = [Fields(form, int.from_bytes(data[: form.size], "little"))]
        self.literal = Literal(None)

    def lost(self) -> bool:
        """Whether a bit was set that the text does not have."""
        return any(part.lost() for part in self.parts)

    def text(self) -> str:
        """Return the instruction's text; `size` and `parts` then hold all of it."""
        fields = self.parts[0]
        opcode = fields.take("op")
        name = self.form.name
        match name:
            case "SOP1" | "SOPC" | "SOPP" | "SOPK" | "SOP2" | "SMEM":
                form = self._find(name, opcode)
                self._read_literal(form, fields)
                return _joined(form.mnemonic, scalar_operands(form, fields, self.literal, self._target))
            case "VOP1" | "VOP2" | "VOPC":
                return self._short_vector(name, opcode, fields)
            case "VOP3":
                form = self._find(name, opcode)
                return _joined(_suffixed(form), vector_operands(form, fields, self.literal))
            case "VOP3P":
                form = self._find(name, opcode)
                if form.mnemonic == _SCALES and (pair := self._scaled()):
                    return pair
                return _joined(form.mnemonic, packed_operands(form, fields))
            case "MAI":
                form = self._find(name, opcode)
                return _joined(form.mnemonic, matrix_operands(form, fields))
            case "DS":
                form = self._find(name, opcode)
                return _joined(form.mnemonic, lds_operands(form, fields))
            case "FLAT":
                if fields["seg"] >= len(_SEGMENTS):
                    raise UnknownCode("segment")
                segment = _SEGMENTS[fields["seg"]]
                form = self._find(segment, opcode)
                return _joined(form.mnemonic, flat_operands(form, fields, segment))
            case _:
                lds = name == "MUBUF" and bool(fields["lds"])
                form = self._find("MUBUF_LDS" if lds else name, opcode)
                return _joined(form.mnemonic, buffer_operands(form, fields, lds=lds))

    def _find(self, name: str, opcode: int) -> Form:
        try:
            return self.table[name, opcode]
        except KeyError:
            raise UnknownCode(f"{name} {opcode:#x}") from None

    def _target(self, words: int) -> str:
        return self.label(self.address + _WORD + _WORD * words)

    def _read_literal(self, form: Form, fields: Fields) -> None:
        """Take the 32 bits that follow, where an operand stands for them."""
        wanted = any(operand.field == "K" for operand in form.operands) or any(
            name in fields and fields[name] == LITERAL_CODE for name in ("ssrc0", "ssrc1", "src0")
        )
        if wanted:
            end = self.size + _WORD
            if end > len(self.data):
                raise UnknownCode("the literal is cut off")
            self.literal = Literal(int.from_bytes(self.data[self.size : end], "little"))
            self.size = end

    def _short_vector(self, name: str, opcode: int, fields: Fields) -> str:
        extension = extension_of(self.form, fields["src0"])
        if extension is None:
            form = self._find(name, opcode)
            self._read_literal(form, fields)
            return _joined(_suffixed(form), vector_operands(form, fields, self.literal))
        end = self.size + extension.size
        if end > len(self.data):
            raise UnknownCode("the second word is cut off")
        more = Fields(extension, int.from_bytes(self.data[self.size : end], "little"))
        self.size = end
        self.parts.append(more)
        form = self._find(name + extension.name, opcode)
        if extension is DPP:
            return _joined(form.mnemonic + "_dpp", dpp_operands(form, fields, more))
        return _joined(form.mnemonic + "_sdwa", sdwa_operands(form, fields, more))

    def _scaled(self) -> str:
        """Return the matrix instruction that the word of scales at hand belongs to; empty where none follows."""
        first, second = self.data[: self.size], self.data[self.size : _PAIR]
        matrix = Fields(FORMATS["MAI"], int.from_bytes(second, "little"))
        form = self.table.get(("MAIS", matrix.take("op")))
        word = int.from_bytes(second[:_WORD], "little")
        if len(first + second) < _PAIR or form is None or format_of(word) is not self.form or not matrix["abid"]:
            return ""
        scales = Fields(FORMATS["MAI"], int.from_bytes(first, "little"))
        scales.take("op")
        self.size = _PAIR
        self.parts = [scales, matrix]
        return _joined(form.mnemonic, scaled_operands(form, scales, matrix))


def _suffixed(form: Form) -> str:
    """The mnemonic with the encoding's name, where another encoding has the same one."""
    return form.mnemonic + next((f"_{name}" for name in ("e32", "e64") if name in form.modifiers), "")


def _joined(mnemonic: str, operands: str) -> str:
    return f"{mnemonic} {operands}" if operands else mnemonic
