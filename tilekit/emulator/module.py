"""A loaded module: parsed, every instruction matched with the table, its variables in global memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np

from .chips import Chip
from .errors import LaunchError, PtxSyntaxError, nearest
from .forms import Decoded, decode
from .inlining import inline_calls
from .memory import Allocation
from .parser import parse_module
from .program import Program, place_parameters
from .symbols import SymbolMap
from .syntax import Function

if TYPE_CHECKING:
    from .device import Device
    from .kernel import Kernel

_OPERATIONS = (
    *("atomic", "barrier", "bulk", "control", "cp_async", "float", "integer", "matrix", "memory", "move", "warp"),
    *("tensormap", "wgmma", "tcgen05", "clc", "narrow", "remote"),
)
for _name in _OPERATIONS:
    importlib.import_module(f".ops_{_name}", __package__)


class Module:
    """PTX text on a device; ``module["name"]`` is a kernel.

    Raises
    ------
    PtxSyntaxError, UnsupportedInstruction
        When the text is loaded, naming line and column.
    """

    def __init__(self, device: Device, text: str) -> None:
        self.device = device
        self.chip: Chip = device.chip
        self.text = text
        self._parsed = parse_module(text)
        if not self._parsed.target:
            raise PtxSyntaxError("the module has no .target directive", line=1, column=1)
        self._variables: dict[str, Allocation] = {}
        self._allocate_variables()
        self._code: dict[str, list[Decoded]] = {}
        self._programs: dict[tuple[str, bool], Program] = {}
        for name, parsed in self._parsed.functions.items():
            if parsed.is_entry and parsed.has_body:
                function = self._parsed.functions[name] = inline_calls(parsed, self._parsed)
                self._code[function.name] = [
                    decode(ins, n, self.chip.number) for n, ins in enumerate(function.instructions)
                ]
                place_parameters(function)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the module's entries."""
        return tuple(self._code)

    def __getitem__(self, name: str) -> Kernel:
        from .kernel import Kernel

        if name not in self._code:
            close = nearest(name, self._code)
            raise LaunchError(
                f"the module has no kernel {name!r}; it has {', '.join(self._code) or 'none'}",
                hint=f"did you mean {close!r}?" if close else "",
            )
        return Kernel(self, name)

    def __iter__(self) -> object:
        return iter(self._code)

    def function(self, name: str) -> Function:
        """The parsed entry."""
        return self._parsed.functions[name]

    def symbols(self, name: str) -> SymbolMap:
        """Roles and shared-memory names of a kernel, from its annotations."""
        notes = dict(self.function(name).annotations)
        first, last = min(notes, default=1), max(notes, default=0)
        lines = (f"//@{notes[line]}" if line in notes else "" for line in range(first, last + 1))
        return SymbolMap.parse("\n".join(lines), first)

    def program(self, name: str, *, aligned_warps: bool) -> Program:
        """The kernel analysed for a kind of block shape, kept for later launches."""
        key = (name, aligned_warps)
        if key not in self._programs:
            self._programs[key] = Program(self.function(name), self._code[name], self, aligned_warps=aligned_warps)
        return self._programs[key]

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
            allocation = self.device.memory.allocate(
                max(variable.size, 1), variable.name, align=max(variable.align, 16)
            )
            allocation.writable = variable.space == "global"
            image = np.frombuffer(variable.image, np.uint8)
            allocation.data[: len(image)] = image
            self._variables[variable.name] = allocation
        for variable in places:
            for offset, name, addend in variable.pointers:
                if name not in self._variables:
                    raise PtxSyntaxError(f"{variable.name} refers to {name}, which has no address", line=1, column=1)
                value = self.address_of(name) + addend
                view = self._variables[variable.name].data[offset : offset + 8]
                view[:] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
