"""A whole code object as assembly text: code, data, kernel descriptors and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from tilekit.emulator.gcn.binary.addresses import Code, Names, read_code
from tilekit.emulator.gcn.binary.code_object import CodeObject, CodeObjectKernel, Section, Symbol
from tilekit.emulator.gcn.binary.descriptor import DESCRIPTOR_BYTES
from tilekit.emulator.gcn.binary.instructions.decoder import Instruction
from tilekit.emulator.gcn.binary.machine import target_id
from tilekit.emulator.gcn.binary.metadata import yaml_of

__all__ = ["decode"]

_MADE_BY_LINKER: Final = (".got",)
_WRITABLE: Final = 0x1
_RELATIVE: Final = 13  # R_AMDGPU_RELATIVE64
_RUN: Final = 4  # words alike from which a run of them is written as one
_BYTES_A_LINE: Final = 16
_NO_OPERATION: Final = bytes.fromhex("000080bf")
_POINTER_BYTES: Final = 8


def decode(image: bytes, *, exact: bool = True) -> str:
    """Return a code object as assembly text, from which LLVM's assembler and linker make its code and data again.

    Parameters
    ----------
    image
        An ELF image for gfx942 or gfx950.
    exact
        Whether instructions with bits that mean nothing, which the assembler would not make again, are numbers, with
        the instruction in a comment. Otherwise they are instructions, as the hardware executes them.

    Raises
    ------
    CodeObjectFault
        When the bytes are no code object, or a damaged one.
    """
    found = CodeObject.read(image)
    names = Names(found)
    codes = [read_code(section, names) for section in found.sections if section.executable]
    data = [s for s in found.sections if not s.executable and s.name not in _MADE_BY_LINKER]
    pointers = {r.address: names.of(r.addend) for r in found.relocations if r.kind == _RELATIVE}
    lines = [
        f'.amdgcn_target "{target_id(found.chip.name, found.flags)}"',
        f".amdhsa_code_object_version {found.version}",
    ]
    for code in codes:
        lines += _code_lines(code, names, exact)
    for section in data:
        lines += _data_lines(section, names, pointers)
    lines += _visibilities(found)
    if found.metadata:
        lines += ["", ".amdgpu_metadata", "---", *yaml_of(found.metadata), "...", ".end_amdgpu_metadata"]
    return "\n".join(lines) + "\n"


def _code_lines(code: Code, names: Names, exact: bool) -> Iterator[str]:
    section = code.section
    yield ""
    yield ".text" if section.name == ".text" else f'.section {section.name},"ax",@progbits'
    yield f".p2align {section.alignment.bit_length() - 1}"
    padding = _padding(code, names)
    kernels = {kernel.descriptor_address: kernel for kernel in names.image.kernels.values()}
    runs = groupby(code.instructions, key=lambda found: (found.text, found.data) if not found.text else found.address)
    for _, group in runs:
        run = list(group)
        if run[0].address in kernels:
            yield from _descriptor_lines(kernels[run[0].address])
            continue
        if run[0].address in padding:
            yield from [f".p2align {section.alignment.bit_length() - 1}"] * padding[run[0].address]
            continue
        if len(run) >= _RUN and not any(_named(names, found.address) for found in run[1:]):
            yield from _labels(names, run[0].address)
            yield f"\t.fill {len(run)}, 4, {int.from_bytes(run[0].data, 'little'):#x}"
            continue
        for found in run:
            yield from _labels(names, found.address)
            yield "\t" + _instruction(found, code, exact)
    yield from _labels_of_end(section, names)


def _padding(code: Code, names: Names) -> dict[int, bool]:
    """Return the ``s_nop`` that the assembler puts between functions, by address; true for the first of each gap."""
    functions = [symbol for symbol in names.image.symbols if symbol.kind == "FUNC"]
    starts = {symbol.address for symbol in functions}
    ends = {symbol.address + symbol.size for symbol in functions}
    found: dict[int, bool] = {}
    gap: list[int] = []
    for instruction in code.instructions:
        address = instruction.address
        if address in starts and gap and address % code.section.alignment == 0:
            found |= {place: place == gap[0] for place in gap}
        if address in ends and address not in starts:
            gap = []
        follows = address in ends or bool(gap and address == gap[-1] + len(_NO_OPERATION))
        if follows and instruction.data == _NO_OPERATION and not _named(names, address):
            gap.append(address)
        else:
            gap = []
    return found


def _instruction(found: Instruction, code: Code, exact: bool) -> str:
    if found.address in code.replaced:
        return code.replaced[found.address]
    if found.text and (found.exact or not exact):
        return found.text
    words = [found.data[i : i + 4] for i in range(0, len(found.data), 4)]
    numbers = ", ".join(f"{int.from_bytes(word, 'little'):#x}" for word in words)
    directive = ".long" if len(found.data) % 4 == 0 else ".byte"
    if directive == ".byte":
        numbers = ", ".join(map(str, found.data))
    return f"{directive} {numbers}" + (f"  // {found.text}" if found.text else "")


def _named(names: Names, address: int) -> bool:
    return address in names.labels or any(symbol.address == address for symbol in names.image.symbols)


def _labels(names: Names, address: int) -> Iterator[str]:
    """Return the directives and labels of what begins at an address."""
    for symbol in names.image.symbols:
        if symbol.address == address and not symbol.name.endswith(".kd") and symbol.kind in ("FUNC", "OBJECT"):
            yield from _symbol_lines(symbol)
    if address in names.labels:
        yield f"{names.labels[address]}:"


def _labels_of_end(section: Section, names: Names) -> Iterator[str]:
    """Return what stands after a section's last byte, where no other section begins."""
    if names.image.section_at(section.end) is None:
        yield from _labels(names, section.end)


def _symbol_lines(symbol: Symbol) -> Iterator[str]:
    yield ""
    if symbol.binding != "LOCAL":
        yield f".{'globl' if symbol.binding == 'GLOBAL' else symbol.binding.lower()} {symbol.name}"
    yield f".type {symbol.name},@{'function' if symbol.kind == 'FUNC' else 'object'}"
    yield f".size {symbol.name}, {symbol.size}"
    yield f"{symbol.name}:"


def _visibilities(found: CodeObject) -> Iterator[str]:
    """Say who sees each symbol: last, as a descriptor would take on its kernel's when it is made."""
    for symbol in found.symbols:
        if symbol.visibility != "DEFAULT" and symbol.kind in ("FUNC", "OBJECT"):
            yield f".{symbol.visibility.lower()} {symbol.name}"


def _data_lines(section: Section, names: Names, pointers: dict[int, str]) -> Iterator[str]:
    kernels = {kernel.descriptor_address: kernel for kernel in names.image.kernels.values()}
    yield ""
    kind = "nobits" if section.name.startswith(".bss") else "progbits"
    yield f'.section {section.name},"{"aw" if section.flags & _WRITABLE else "a"}",@{kind}'
    yield f".p2align {section.alignment.bit_length() - 1}"
    marks = sorted({*kernels, *pointers, *names.labels, *(symbol.address for symbol in names.image.symbols)})
    address = section.address
    while address < section.end:
        if address in kernels:
            yield from _descriptor_lines(kernels[address])
            address += DESCRIPTOR_BYTES
            continue
        yield from _labels(names, address)
        if address in pointers:
            yield f"\t.quad {pointers[address]}"
            address += _POINTER_BYTES
            continue
        stop = min(next((mark for mark in marks if mark > address), section.end), section.end)
        yield from _byte_lines(section.data[address - section.address : stop - section.address])
        address = stop
    yield from _labels_of_end(section, names)


def _byte_lines(data: bytes) -> Iterator[str]:
    if not any(data):
        yield f"\t.zero {len(data)}"
        return
    for start in range(0, len(data), _BYTES_A_LINE):
        yield "\t.byte " + ", ".join(map(str, data[start : start + _BYTES_A_LINE]))


def _descriptor_lines(kernel: CodeObjectKernel) -> Iterator[str]:
    if kernel.descriptor.unknown_bits():
        yield f"// the descriptor of {kernel.name} has bits that no directive sets"
    yield ""
    yield f".amdhsa_kernel {kernel.name}"
    for directive in kernel.descriptor.directives():
        yield f"\t{directive}"
    yield ".end_amdhsa_kernel"
