"""From AMDGCN assembly text, as LLVM prints and accepts it, to instructions and kernels."""

from __future__ import annotations

import re
from typing import Any

from tilekit.emulator.gcn.errors import GcnSyntaxError
from tilekit.emulator.gcn.language.data import DataSection, is_loaded, read_data
from tilekit.emulator.gcn.language.descriptor import REQUIRED, value_reason
from tilekit.emulator.gcn.language.expressions import Reader
from tilekit.emulator.gcn.language.lexer import Token, strip_comments, tokens
from tilekit.emulator.gcn.language.metadata import read_metadata
from tilekit.emulator.gcn.language.operands import read_operands
from tilekit.emulator.gcn.language.syntax import Argument, Instruction, KernelText, ModuleText

__all__ = ["parse", "parse_all"]

_ENCODING = re.compile(r"_(e32|e64_dpp|e64|sdwa|dpp)$")
_IGNORED = {
    ".text",
    ".globl",
    ".global",
    ".weak",
    ".hidden",
    ".protected",
    ".internal",
    ".local",
    ".p2align",
    ".p2alignl",
    ".balign",
    ".align",
    ".type",
    ".size",
    ".ident",
    ".file",
    ".loc",
    ".addrsig",
    ".addrsig_sym",
    ".fill",
    ".pushsection",
    ".popsection",
    ".previous",
    ".amdgcn.next_free_vgpr",
    ".amdgcn.next_free_sgpr",
    ".org",
    ".skip",
    ".zero",
    ".space",
    ".hsa_code_object_version",
    ".amdgpu_lds",
    ".amdgpu_info",
}
"""Directives that change nothing of what instructions do."""
_UNWINDING = {
    ".cfi_adjust_cfa_offset",
    ".cfi_def_cfa",
    ".cfi_def_cfa_offset",
    ".cfi_def_cfa_register",
    ".cfi_endproc",
    ".cfi_escape",
    ".cfi_label",
    ".cfi_llvm_def_aspace_cfa",
    ".cfi_llvm_register_pair",
    ".cfi_llvm_vector_offset",
    ".cfi_llvm_vector_register_mask",
    ".cfi_llvm_vector_registers",
    ".cfi_lsda",
    ".cfi_offset",
    ".cfi_personality",
    ".cfi_register",
    ".cfi_rel_offset",
    ".cfi_remember_state",
    ".cfi_restore",
    ".cfi_restore_state",
    ".cfi_return_column",
    ".cfi_same_value",
    ".cfi_sections",
    ".cfi_signal_frame",
    ".cfi_startproc",
    ".cfi_undefined",
    ".cfi_val_offset",
    ".cfi_window_save",
}
"""LLVM's directives that say how a debugger finds the callers' registers."""
_DATA = {
    ".byte",
    ".short",
    ".long",
    ".quad",
    ".ascii",
    ".asciz",
    ".string",
    ".hword",
    ".word",
    ".2byte",
    ".4byte",
    ".8byte",
    ".octa",
    ".int",
}
_TARGET = re.compile(r"gfx[0-9a-f]+")


def parse(text: str) -> ModuleText:
    """Read a module.

    Raises
    ------
    GcnSyntaxError
        At the first thing that is not AMDGCN assembly, with its line and column.
    """
    return _Parser(text).module


def parse_all(text: str) -> tuple[ModuleText, list[GcnSyntaxError]]:
    """Read a module as far as it can be, going on behind each line that cannot; return it, and what was wrong."""
    errors: list[GcnSyntaxError] = []
    return _Parser(text, errors).module, errors


class _Parser:
    def __init__(self, text: str, errors: list[GcnSyntaxError] | None = None) -> None:
        self.module = ModuleText()
        self.lines = text.split("\n")
        self.notes = strip_comments(self.lines)
        self.kernel: KernelText | None = None
        self.code = True
        self.section: DataSection | None = None
        self.sections: list[tuple[bool, DataSection | None]] = []
        number = 0
        while number < len(self.lines):
            kept, note = self.notes[number]
            if "//@" in note and not kept.strip():
                self.module.notes.append(note[note.index("//@") :])
            if kept.strip() in (".amdgpu_metadata", ".amd_amdgpu_hsa_metadata"):
                begin = number
                try:
                    number = self.metadata(number)
                except GcnSyntaxError as error:
                    if errors is None:
                        raise
                    errors.append(error)
                    number = begin + 1
                continue
            if kept.strip():
                try:
                    self.statement(kept, number + 1, note)
                except GcnSyntaxError as error:
                    if errors is None:
                        raise
                    errors.append(error)
                    if kept.split()[0] == ".end_amdhsa_kernel":
                        self.kernel = None
            number += 1
        if self.kernel is not None:
            unfinished = GcnSyntaxError(
                f".amdhsa_kernel {self.kernel.name} has no end",
                line=self.kernel.line,
                column=1,
                hint="add .end_amdhsa_kernel",
            )
            if errors is None:
                raise unfinished
            errors.append(unfinished)

    def metadata(self, start: int) -> int:
        """Read the metadata from one line to its end; returns the line behind."""
        ending = "." + "end_" + self.lines[start].strip()[1:]
        for number in range(start + 1, len(self.lines)):
            if self.lines[number].strip() == ending:
                found = read_metadata(self.lines[start + 1 : number], start + 2)
                try:
                    self.describe(found, start + 1)
                except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                    raise GcnSyntaxError(
                        f"metadata: it does not describe kernels as it should: {type(error).__name__}: {error}",
                        line=start + 1, column=1,
                    ) from None  # fmt: skip
                return number + 1
        raise GcnSyntaxError("metadata without an end", line=start + 1, column=1, hint=f"add {ending}")

    def describe(self, found: Any, line: int) -> None:
        kernels = found.get("amdhsa.kernels", []) if isinstance(found, dict) else []
        for entry in kernels or []:
            name = entry.get(".symbol", "").removesuffix(".kd") or entry.get(".name", "")
            kernel = self.module.kernels.get(name)
            if kernel is None:
                kernel = self.module.kernels[name] = KernelText(name, {}, line)
            kernel.threads = entry.get(".max_flat_workgroup_size")
            if ".args" in entry:
                kernel.arguments = [
                    Argument(
                        int(a[".offset"]), int(a[".size"]), a.get(".value_kind", "by_value"), str(a.get(".name", ""))
                    )
                    for a in entry[".args"] or []
                ]

    def statement(self, kept: str, line: int, note: str) -> None:
        """Read one line: labels, then a directive or an instruction."""
        found = tokens(kept, line)
        while len(found) > 1 and found[0].kind == "word" and found[1].text == ":":
            self.label(found[0], line)
            found = found[2:]
        if not found:
            return
        reader = Reader(found, line, len(kept) + 1, self.module.constants)
        first = reader.take()
        if self.kernel is not None and not _is_field(first.text):
            reader.at = 0
            raise reader.error(f"'{first.text}' within .amdhsa_kernel {self.kernel.name}, which takes its fields only")
        if first.kind != "word":
            reader.at = 0
            raise reader.error(f"expected an instruction, a label or a directive before '{first.text}'")
        if reader.peek().text == "=" and reader.peek().kind == "sign":
            reader.take()
            self.assign(first.text, reader)
        elif first.text.startswith("."):
            self.directive(first.text, reader)
        elif self.code:
            self.instruction(first, reader, kept, note)
        else:
            raise GcnSyntaxError(
                f"instruction '{first.text}' outside the section of code",
                line=line,
                column=first.column,
                hint="begin it with .text",
            )

    def label(self, token: Token, line: int) -> None:
        if token.text in self.module.labels:
            raise GcnSyntaxError(f"label '{token.text}' is defined twice", line=line, column=token.column)
        self.module.labels[token.text] = len(self.module.instructions) if self.code else -1
        if self.section is not None:
            place = self.module.sections.index(self.section), len(self.section.image)
            self.module.places[token.text] = place

    def assign(self, name: str, reader: Reader) -> None:
        """Give a symbol its value; one that depends on what is not known, such as resource totals, has none."""
        if any(t.kind == "word" and t.text not in self.module.constants for t in reader.tokens[reader.at :]):
            return
        self.module.constants[name] = reader.number()

    def directive(self, name: str, reader: Reader) -> None:
        if name in (".set", ".equ"):
            symbol = reader.take()
            if symbol.kind != "word":
                raise reader.error(f"{name} needs a name")
            reader.expect(",")
            self.assign(symbol.text, reader)
        elif name == ".amdgcn_target":
            match = _TARGET.search(reader.peek().text)
            if reader.peek().kind != "string" or match is None:
                raise reader.error('.amdgcn_target needs the name of a target, such as "amdgcn-amd-amdhsa--gfx950"')
            self.module.target = match.group()
        elif name == ".amdhsa_code_object_version":
            if reader.number() not in (4, 5, 6):
                reader.at = 1
                raise reader.error("code objects have version 4, 5 or 6")
        elif name == ".amdhsa_kernel":
            self.open_kernel(reader)
        elif name == ".end_amdhsa_kernel":
            if self.kernel is None:
                reader.at -= 1
                raise reader.error(".end_amdhsa_kernel without .amdhsa_kernel")
            missing = next((field for field in REQUIRED if field not in self.kernel.fields), "")
            if missing:
                reader.at -= 1
                raise reader.error(f".amdhsa_kernel {self.kernel.name} has no .amdhsa_{missing}")
            first, registers = (self.kernel.fields[name] for name in ("accum_offset", "next_free_vgpr"))
            if registers and first > -(-registers // 4) * 4:
                reader.at -= 1
                raise reader.error(f".amdhsa_accum_offset {first} lies behind the {registers} vector registers")
            self.kernel = None
        elif name.startswith(".amdhsa_") and name not in _IGNORED:
            if self.kernel is None:
                reader.at -= 1
                raise reader.error(f"{name} outside .amdhsa_kernel")
            self.field(name.removeprefix(".amdhsa_"), reader)
        elif name == ".section":
            self.enter(reader.peek().text)
        elif name == ".pushsection":
            self.sections.append((self.code, self.section))
            self.enter(reader.peek().text)
        elif name == ".popsection":
            self.code, self.section = self.sections.pop() if self.sections else (True, None)
        elif name in (".text", ".data", ".rodata", ".bss"):
            self.enter(name)
        elif name in (".comm", ".lcomm"):
            self.common(reader)
        elif self.section is not None and read_data(name, reader, self.section):
            pass
        elif name in _DATA:
            if self.code:
                reader.at -= 1
                raise reader.error(
                    f"data ({name}) among the instructions is not read", hint="write instructions by their mnemonics"
                )
        elif name not in _IGNORED and name not in _UNWINDING:
            reader.at -= 1
            raise reader.error(f"unknown directive '{name}'")

    def common(self, reader: Reader) -> None:
        """Place a variable that only its size is given of."""
        symbol = reader.take()
        if symbol.kind != "word":
            raise reader.error("this needs a name")
        reader.expect(",")
        size = reader.number()
        before = self.code, self.section
        self.enter(".bss")
        assert self.section is not None
        self.section.image += bytes(-len(self.section.image) % 64)
        self.label(symbol, reader.line)
        self.section.image += bytes(size)
        self.code, self.section = before

    def enter(self, name: str) -> None:
        """Go on in a section: of code, of data that a launch has in memory, or of neither."""
        self.code = name.startswith(".text")
        self.section = None
        if is_loaded(name):
            known = (section for section in self.module.sections if section.name == name)
            self.section = next(known, None)
            if self.section is None:
                self.section = DataSection(name)
                self.module.sections.append(self.section)

    def field(self, name: str, reader: Reader) -> None:
        """A field of the open descriptor; resource totals that the assembler works out count as not given."""
        assert self.kernel is not None
        start = reader.at - 1
        known = all(t.kind != "word" or t.text in reader.constants for t in reader.tokens[reader.at :])
        value = reader.number() if known else 0
        reason = value_reason(name, value if known else 4 * (name == "accum_offset"), self.kernel.fields)
        if reason:
            self.kernel.fields.setdefault(name, 4 * (name == "accum_offset"))  # it is given, if not legal
            reader.at = start
            raise reader.error(f".amdhsa_{name} {reason}")
        self.kernel.fields[name] = value

    def open_kernel(self, reader: Reader) -> None:
        if self.kernel is not None:
            raise reader.error(f".amdhsa_kernel {self.kernel.name} is still open", hint="add .end_amdhsa_kernel")
        token = reader.take()
        if token.kind != "word":
            raise reader.error(".amdhsa_kernel needs the name of a kernel")
        known = self.module.kernels.get(token.text)
        if known is not None and known.fields:
            raise GcnSyntaxError(f"kernel '{token.text}' is described twice", line=reader.line, column=token.column)
        self.kernel = known or KernelText(token.text, {}, reader.line)
        self.kernel.line = reader.line
        self.module.kernels[token.text] = self.kernel

    def instruction(self, first: Token, reader: Reader, kept: str, note: str) -> None:
        name = first.text
        match = _ENCODING.search(name)
        encoding = match[1] if match else ""
        if match:
            name = name[: match.start()]
        operands, modifiers = read_operands(reader, name)
        origin = note[note.index("//@") + 3 :].strip() if "//@" in note else ""
        self.module.instructions.append(
            Instruction(name, encoding, operands, modifiers, reader.line, first.column, kept.strip(), origin)
        )


def _is_field(name: str) -> bool:
    """Whether a directive may stand within a descriptor."""
    return name == ".end_amdhsa_kernel" or (name.startswith(".amdhsa_") and name != ".amdhsa_code_object_version")
