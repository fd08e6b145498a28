"""An AMD code object: the ELF image that the assembler and the linker make and a loader takes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from tilekit.emulator.gcn.binary.descriptor import DESCRIPTOR_BYTES, KernelDescriptor
from tilekit.emulator.gcn.binary.errors import CodeObjectFault
from tilekit.emulator.gcn.binary.machine import abi_of_version, is_code_object
from tilekit.emulator.gcn.binary.metadata import read_metadata
from tilekit.emulator.gcn.chips import CHIPS, Chip

__all__ = ["CodeObject", "CodeObjectKernel", "Relocation", "Section", "Symbol"]

_METADATA_NOTE: Final = 32  # NT_AMDGPU_METADATA
_OWNER: Final = "AMDGPU"
_VERSIONS: Final = (4, 5, 6)
_EXECUTABLE: Final = 0x4
_ALLOCATED: Final = 0x2
_MOST_ZEROS: Final = 1 << 28
_LINKERS: Final = frozenset(
    {".dynsym", ".dynstr", ".hash", ".gnu.hash", ".dynamic", ".note", ".rela.dyn", ".relro_padding"}
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the image that is in memory when the kernel runs; `data` has zeros where the file has nothing."""

    name: str
    address: int
    data: bytes
    flags: int
    alignment: int

    @property
    def executable(self) -> bool:
        """Whether it holds code."""
        return bool(self.flags & _EXECUTABLE)

    @property
    def end(self) -> int:
        """Address after its last byte."""
        return self.address + len(self.data)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of the image: where, how long, and its ELF type, binding and visibility without prefixes."""

    name: str
    address: int
    size: int
    kind: str
    binding: str
    visibility: str


@dataclass(frozen=True, slots=True)
class Relocation:
    """An address that the loader writes: where, of which kind, what is added, and to which symbol ('' for none)."""

    address: int
    kind: int
    addend: int
    symbol: str


@dataclass(frozen=True, slots=True)
class CodeObjectKernel:
    """A kernel of a code object.

    Attributes
    ----------
    name : str
        As a launch names it.
    descriptor : KernelDescriptor
        What the hardware sets up.
    descriptor_address, entry : int
        Addresses in the image.
    metadata : dict
        Its part of the metadata note; empty where the note has none.
    """

    name: str
    descriptor: KernelDescriptor
    descriptor_address: int
    entry: int
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What an image holds.

    Attributes
    ----------
    chip : Chip
        For which it was made.
    flags : int
        The header's flags: the chip's number, and what is demanded of xnack and sramecc.
    version : int
        Version of the code object, 4 to 6.
    sections : tuple of Section
        Code and data, without the linker's own tables.
    symbols : tuple of Symbol
        Those defined in the image, in the order of their addresses.
    relocations : tuple of Relocation
        What the loader writes.
    kernels : dict
        By name.
    metadata : dict
        The metadata note; empty where there is none.
    """

    chip: Chip
    flags: int
    version: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]
    kernels: dict[str, CodeObjectKernel]
    metadata: dict[str, Any]

    @classmethod
    def read(cls, image: bytes) -> CodeObject:
        """Read an image.

        Raises
        ------
        CodeObjectFault
            When it is no code object, is cut or damaged, was not linked, or is for a chip or version not known.
        """
        if not is_code_object(image):
            raise CodeObjectFault(_foreign(image))
        try:
            return _read(image)
        except CodeObjectFault:
            raise
        except Exception as error:  # the ELF library meets damage in the middle of anything
            raise CodeObjectFault(
                f"the image of {len(image)} bytes is cut or damaged: {type(error).__name__}: {error}"
            ) from None

    def section_at(self, address: int) -> Section | None:
        """Return the section that an address lies in."""
        return next((s for s in self.sections if s.address <= address < s.end), None)


def _foreign(image: bytes) -> str:
    if not image.startswith(b"\x7fELF"):
        return f"these {len(image)} bytes are no ELF image: they begin with {image[:8].hex(' ') or 'nothing'}"
    machine = int.from_bytes(image[18:20], "little")
    return f"this ELF image is for machine {machine}, not for an AMD GPU (224)"


def _read(image: bytes) -> CodeObject:
    elf = ELFFile(io.BytesIO(image))
    flags = int(elf["e_flags"])
    chip = next((chip for chip in CHIPS.values() if chip.machine == flags & 0xFF), None)
    if chip is None:
        raise CodeObjectFault(
            f"the image is for a chip whose number is {flags & 0xFF:#x}",
            hint="known are " + ", ".join(f"{name} ({chip.machine:#x})" for name, chip in CHIPS.items()),
        )
    version = abi_of_version(int(elf["e_ident"]["EI_ABIVERSION"]))
    if version not in _VERSIONS:
        raise CodeObjectFault(f"the image is a code object of version {version}", hint="known are versions 4 to 6")
    if elf["e_type"] != "ET_DYN":
        raise CodeObjectFault("the image is not linked", hint="link it with `ld.lld -shared`")
    metadata = _metadata(elf)
    sections = tuple(_sections(elf, image))
    symbols = tuple(s for s in _symbols(elf) if any(home.address <= s.address <= home.end for home in sections))
    kernels = {}
    described = {str(entry.get(".symbol")): entry for entry in _kernel_entries(metadata)}
    for symbol in symbols:
        if symbol.name.endswith(".kd") and symbol.kind == "OBJECT":
            name = symbol.name.removesuffix(".kd")
            kernels[name] = _kernel(name, symbol, sections, described.get(symbol.name, {}))
    return CodeObject(chip, flags, version, sections, symbols, _relocations(elf), kernels, metadata)


def _kernel_entries(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    entries = metadata.get("amdhsa.kernels", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CodeObjectFault("the metadata's amdhsa.kernels is no list of maps")
    return entries


def _metadata(elf: ELFFile) -> dict[str, Any]:
    parts: list[Any] = [*elf.iter_segments("PT_NOTE"), *(s for s in elf.iter_sections() if isinstance(s, NoteSection))]
    for part in parts:
        for note in part.iter_notes():
            if note["n_name"] == _OWNER and note["n_type"] in (_METADATA_NOTE, "NT_AMDGPU_METADATA"):
                data = note["n_descdata"]
                return read_metadata(data if isinstance(data, bytes) else str(data).encode("latin-1"))
    return {}


def _sections(elf: ELFFile, image: bytes) -> list[Section]:
    found = []
    for section in elf.iter_sections():
        flags = int(section["sh_flags"])
        if not flags & _ALLOCATED or section.name in _LINKERS:
            continue
        size = int(section["sh_size"])
        if section["sh_type"] == "SHT_NOBITS":
            if size > _MOST_ZEROS:
                raise CodeObjectFault(
                    f"section {section.name} says that it has {size} bytes of zeros",
                    hint=f"at most {_MOST_ZEROS} are read",
                )
            data = bytes(size)
        else:
            start = int(section["sh_offset"])
            data = image[start : start + size]
            if len(data) != size:
                raise CodeObjectFault(
                    f"the image is cut: section {section.name} ends at byte {start + size}, the image at {len(image)}"
                )
        found.append(Section(section.name, int(section["sh_addr"]), data, flags, max(int(section["sh_addralign"]), 1)))
    if not any(section.executable for section in found):
        raise CodeObjectFault("the image holds no code")
    return found


def _symbols(elf: ELFFile) -> tuple[Symbol, ...]:
    """The full table where there is one, else the loader's."""
    table: Any = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        table = next((s for s in elf.iter_segments() if isinstance(s, DynamicSegment)), None)
    if table is None:
        raise CodeObjectFault("the image has no table of symbols")
    found = set()
    for symbol in table.iter_symbols():
        if (
            not symbol.name
            or symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS")
            or symbol["st_info"]["type"] == "STT_SECTION"
        ):
            continue
        found.add(
            Symbol(
                symbol.name,
                int(symbol["st_value"]),
                int(symbol["st_size"]),
                str(symbol["st_info"]["type"]).removeprefix("STT_"),
                str(symbol["st_info"]["bind"]).removeprefix("STB_"),
                str(symbol["st_other"]["visibility"]).removeprefix("STV_"),
            )
        )
    return tuple(sorted(found, key=lambda symbol: (symbol.address, symbol.name)))


def _relocations(elf: ELFFile) -> tuple[Relocation, ...]:
    found = []
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection) and int(section["sh_flags"]) & _ALLOCATED:
            symbols: Any = elf.get_section(section["sh_link"])
            for entry in section.iter_relocations():
                name = symbols.get_symbol(entry["r_info_sym"]).name if entry["r_info_sym"] else ""
                found.append(Relocation(entry["r_offset"], entry["r_info_type"], entry["r_addend"], name))
    return tuple(found)


def _kernel(name: str, symbol: Symbol, sections: tuple[Section, ...], metadata: dict[str, Any]) -> CodeObjectKernel:
    home = next(
        (s for s in sections if s.address <= symbol.address and symbol.address + DESCRIPTOR_BYTES <= s.end), None
    )
    if home is None:
        raise CodeObjectFault(f"the descriptor of kernel {name} lies at {symbol.address:#x}, outside of every section")
    start = symbol.address - home.address
    descriptor = KernelDescriptor(home.data[start : start + DESCRIPTOR_BYTES])
    entry = symbol.address + descriptor.entry_offset
    if not any(s.executable and s.address <= entry < s.end for s in sections):
        raise CodeObjectFault(f"the descriptor of kernel {name} points to code at {entry:#x}, where there is none")
    return CodeObjectKernel(name, descriptor, symbol.address, entry, metadata)
