"""What the machine code of an image refers to by address: branches' targets, and data reached from the program counter.

An address that is counted from the program counter is a literal of ``s_add_u32`` and one of ``s_addc_u32``, after
``s_getpc_b64``; in text it is a symbol, or the code would only be right where the image was linked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilekit.emulator.gcn.binary.code_object import CodeObject, Section
from tilekit.emulator.gcn.binary.descriptor import DESCRIPTOR_BYTES
from tilekit.emulator.gcn.binary.instructions.decoder import Instruction, instructions

__all__ = ["Code", "Names", "read_code"]

_GET_PC: Final = re.compile(r"s_getpc_b64 s\[(\d+):(\d+)\]")
_ADD: Final = re.compile(r"(s_addc?_u32) s(\d+), s(\d+), (?:lit\()?(0x[0-9a-f]+)\)?")
_WRITES: Final = re.compile(r"s_(?!cmp|bitcmp|cbranch|branch|waitcnt|nop|barrier)\w+ s\[?(\d+)(?::(\d+))?\]?")
_HALVES: Final = {"s_add_u32": "lo", "s_addc_u32": "hi"}
_WORD: Final = 4
_ABSOLUTE: Final = 3  # R_AMDGPU_ABS64


@dataclass(slots=True)
class Names:
    """Names of addresses: symbols, and labels made up where something without a symbol is referred to."""

    image: CodeObject
    labels: dict[int, str] = field(default_factory=dict)

    def of(self, address: int) -> str:
        """Return an address's name, making a label where it has none."""
        for symbol in self.image.symbols:
            if symbol.address == address and symbol.kind != "NOTYPE":
                return symbol.name
        return self.labels.setdefault(address, f".L_{address:x}")

    def entry_of_got(self, address: int) -> str | None:
        """Return the symbol whose address the loader writes there, or None."""
        home = self.image.section_at(address)
        if home is None or home.name != ".got":
            return None
        return next(
            (r.symbol for r in self.image.relocations if r.address == address and r.kind == _ABSOLUTE and r.symbol),
            None,
        )


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of a section, and what stands in their texts instead of what the decoder wrote.

    A kernel descriptor that lies among them is one without a text.
    """

    section: Section
    instructions: tuple[Instruction, ...]
    replaced: dict[int, str]


def read_code(section: Section, names: Names) -> Code:
    """Decode a section of code, and name what it refers to."""
    chip = names.image.chip.name

    def target(address: int) -> str:
        inside = section.address <= address <= section.end
        return names.of(address) if inside else str((address - section.address) // _WORD)

    found: list[Instruction] = []
    start = section.address
    kernels = sorted(kernel.descriptor_address for kernel in names.image.kernels.values())
    for descriptor in [address for address in kernels if section.address <= address < section.end]:
        found += instructions(_part(section, start, descriptor), chip, address=start, label=target)
        start = descriptor + DESCRIPTOR_BYTES
        found.append(Instruction(descriptor, _part(section, descriptor, start), "", exact=False))
    found += instructions(_part(section, start, section.end), chip, address=start, label=target)
    return Code(section, tuple(found), _counted_from_pc(found, names))


def _part(section: Section, start: int, end: int) -> bytes:
    return section.data[start - section.address : end - section.address]


def _counted_from_pc(found: Sequence[Instruction], names: Names) -> dict[int, str]:
    replaced = {}
    bases: dict[int, int] = {}  # by register, the address from which it counts
    low: dict[int, int] = {}  # by register, what its lower half has come to
    for instruction in found:
        start = _GET_PC.fullmatch(instruction.text)
        if start:
            register = int(start[1])
            bases[register] = bases[register + 1] = instruction.address + _WORD
            continue
        add = _ADD.fullmatch(instruction.text)
        if add and add[2] == add[3] and int(add[2]) in bases:
            register = int(add[2])
            base = bases.pop(register)
            if add[1] == "s_add_u32":
                low[register + 1] = base + _signed(int(add[4], 16))
            address = low.get(register) if add[1] == "s_addc_u32" else low[register + 1]
            if address is not None and names.image.section_at(address) is not None:
                expression = _expression(names, address, _HALVES[add[1]], instruction.address + _WORD - base)
                replaced[instruction.address] = f"{add[1]} s{register}, s{register}, {expression}"
            continue
        written = _WRITES.match(instruction.text)
        if written:
            for register in range(int(written[1]), int(written[2] or written[1]) + 1):
                bases.pop(register, None)
    return replaced


def _expression(names: Names, address: int, half: str, distance: int) -> str:
    symbol = names.entry_of_got(address)
    if symbol is not None:
        return f"{symbol}@gotpcrel32@{half}+{distance}"
    return f"{names.of(address)}@rel32@{half}+{distance}"


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
