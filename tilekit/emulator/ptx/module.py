"""A loaded module: parsed, every instruction matched with the table, its variables in global memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core import room
from tilekit.emulator.core.errors import LaunchError, PtxSyntaxError, UnsupportedInstruction, Where, nearest, shown
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.chips import Chip
from tilekit.emulator.ptx.compiler.call_graph import CallGraph
from tilekit.emulator.ptx.compiler.inlining import inline_calls
from tilekit.emulator.ptx.compiler.program import Program, place_parameters
from tilekit.emulator.ptx.language.availability import Dialect, dialect, target
from tilekit.emulator.ptx.language.forms import Decoded, decode
from tilekit.emulator.ptx.language.module_rules import check_module
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.language.syntax import Function, Instruction, PtxModule
from tilekit.emulator.ptx.ops import table  # noqa: F401 (registers the instruction forms)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.device import Device
    from tilekit.emulator.ptx.kernel import Kernel

LARGEST = 1 << 30
"""Bytes of a variable: the emulator has every one of them in memory."""


@dataclass(slots=True)
class _DecodedText:
    """What a text is on a chip, whatever device it is loaded on."""

    parsed: PtxModule
    code: dict[str, list[Decoded]]
    programs: dict[tuple[str, bool, int, bool, tuple[int, ...]], Program]
    """Analysed kernels by name, kind of block shape, warps that run together, how they make accesses, and addresses of
    variables."""


@lru_cache(32)
def _decode_text(text: str, chip: Chip) -> _DecodedText:
    """Parse a text and match every instruction of its kernels with the table."""
    parsed = parse_module(text)
    written_in = dialect(parsed.version, parsed.target, parsed.header_line)
    check_module(parsed, written_in)
    if not target(chip.name).runs(written_in.target):
        raise LaunchError(
            f"the module is for {parsed.target}, the device is {chip.name}",
            hint=f"write a .target that {chip.name} runs, or give Device(...) one that runs {parsed.target}",
        )
    code: dict[str, list[Decoded]] = {}
    for name, entry in parsed.functions.items():
        if entry.is_entry and entry.has_body:
            function = parsed.functions[name] = inline_calls(entry, parsed)
            code[name] = [_decoded(ins, n, written_in) for n, ins in enumerate(function.instructions)]
            _check_cta_groups(code[name])
            place_parameters(function)
    return _DecodedText(parsed, code, {})


def _decoded(instruction: Instruction, index: int, written_in: Dialect) -> Decoded:
    """An instruction, matched with the table; a fault says who asked for it."""
    try:
        return decode(instruction, index, written_in)
    except UnsupportedInstruction as error:
        raise error.at(Where(instruction=instruction)) from None


def _check_cta_groups(code: list[Decoded]) -> None:
    """Every tcgen05 instruction of a kernel works on one CTA, or every one on a pair."""
    grouped = [decoded for decoded in code if decoded.form.opcode == "tcgen05" and decoded.has("group")]
    for decoded in grouped:
        if decoded["group"] != grouped[0]["group"]:
            first, other = grouped[0].instruction, decoded.instruction
            raise PtxSyntaxError(
                f"{other.name} in a kernel that uses .{grouped[0]['group']} in line {first.line}",
                line=other.line,
                column=other.column,
                hint="all tcgen05 instructions of a kernel must have the same .cta_group",
            )


class Module(room.Module):
    """PTX text on a device; ``module["name"]`` is a kernel.

    Raises
    ------
    PtxSyntaxError, UnsupportedInstruction
        When the text is loaded, naming line and column.
    """

    def __init__(self, device: Device, text: str) -> None:
        self.device: Device = device
        self.chip: Chip = device.chip
        self.text = text
        decoded = _decode_text(text, self.chip)
        self._parsed = decoded.parsed
        self._code = decoded.code
        self._shared_programs = decoded.programs
        self._variables: dict[str, Allocation] = {}
        self._allocate_variables()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the module's entries."""
        return tuple(self._code)

    def __getitem__(self, name: str) -> Kernel:
        from tilekit.emulator.ptx.kernel import Kernel

        if not isinstance(name, str) or name not in self._code:
            close = nearest(name, self._code) if isinstance(name, str) else ""
            raise LaunchError(
                f"the module has no kernel {shown(name)}; it has {', '.join(self._code) or 'none'}",
                hint=f"did you mean {close!r}?" if close else "",
            )
        return Kernel(self, name)

    def function(self, name: str) -> Function:
        """The parsed entry."""
        return self._parsed.functions[name]

    def symbols(self, name: str) -> SymbolMap:
        """Roles and shared-memory names of a kernel, from its annotations."""
        notes = dict(self.function(name).annotations)
        first, last = min(notes, default=1), max(notes, default=0)
        lines = (f"//@{notes[line]}" if line in notes else "" for line in range(first, last + 1))
        return SymbolMap.parse("\n".join(lines), first)

    def program(self, name: str, *, aligned_warps: bool, warps: int = 1, each_access: bool = True) -> Program:
        """The kernel analysed for a kind of block shape, or for lockstep, kept for later launches of the same text."""
        addresses = {name: allocation.start for name, allocation in self._variables.items()}
        key = (name, aligned_warps, warps, each_access, tuple(addresses.values()))
        if key not in self._shared_programs:
            self._shared_programs[key] = Program(
                self.function(name),
                self._code[name],
                self.chip,
                addresses,
                aligned_warps=aligned_warps,
                warps=warps,
                each_access=each_access,
            )
        return self._shared_programs[key]

    # -- variables ---------------------------------------------------------------------------------------------------

    def address_of(self, name: str) -> int:
        """Generic address of a module variable."""
        return self._variables[name].start

    def variable(self, name: str) -> Allocation:
        """Memory of a ``.global`` or ``.const`` variable, to read or to set before a launch."""
        return self._variables[name]

    def _allocate_variables(self) -> None:
        inner = [v for f in self._parsed.functions.values() for v in f.variables]
        places = [v for v in (*self._parsed.variables.values(), *inner) if v.space in ("global", "const")]
        for variable in places:
            if variable.size > LARGEST:
                raise LaunchError(
                    f"variable {variable.name} takes {variable.size:,} bytes: at most {LARGEST:,} are emulated"
                )
            allocation = self.device.memory.allocate(
                max(variable.size, 1), variable.name, align=max(variable.align, 16)
            )
            allocation.space = variable.space
            allocation.writable = variable.space == "global"
            image = np.frombuffer(variable.image, np.uint8)
            allocation.data[: len(image)] = image
            self._variables[variable.name] = allocation
        functions = CallGraph(self._parsed)
        for variable in places:
            for pointer in variable.pointers:
                name = pointer.symbol
                is_function = name in self._parsed.functions
                value = (functions.address(name) if is_function else self.address_of(name)) + pointer.addend
                part = (value >> pointer.shift) & (1 << 8 * pointer.size) - 1
                view = self._variables[variable.name].data[pointer.offset : pointer.offset + pointer.size]
                view[:] = np.frombuffer(part.to_bytes(pointer.size, "little"), np.uint8)
