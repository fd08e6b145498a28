"""A loaded module: AMDGCN text, and its kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tilekit.emulator.core import room
from tilekit.emulator.core.errors import LaunchError, nearest, shown
from tilekit.emulator.gcn.checks.forms import check_form
from tilekit.emulator.gcn.chips import Chip
from tilekit.emulator.gcn.compiler.program import Program
from tilekit.emulator.gcn.image import Image
from tilekit.emulator.gcn.kernel import Kernel
from tilekit.emulator.gcn.language.parser import parse
from tilekit.emulator.gcn.language.syntax import ModuleText

if TYPE_CHECKING:
    from tilekit.emulator.gcn.device import Device

__all__ = ["Module"]


@lru_cache(32)
def _read(text: str, chip: Chip) -> tuple[ModuleText, dict[str, Program]]:
    """A text, and its programs for a chip: all of their instructions have been looked at."""
    module = parse(text)
    if module.target and module.target != chip.name:
        raise LaunchError(f"the module is for {module.target}, the device is {chip.name}",
                          hint=f"assemble it for {chip.name}, or use Device({module.target!r})")  # fmt: skip
    for instruction in module.instructions:
        check_form(instruction, chip.name)
    programs = {}
    for name, kernel in module.kernels.items():
        program = programs[name] = Program(module, name, chip, kernel.fields.get("accum_offset", 256))
        program.check()
    return module, programs


class Module(room.Module):
    """AMDGCN text on a device; ``module["name"]`` is a kernel."""

    def __init__(self, device: Device, text: str) -> None:
        self.device: Device = device
        self.text, self._programs = _read(text, device.chip)
        self.image = Image(device.memory, self.text)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the module's kernels."""
        return tuple(self._programs)

    def program(self, name: str) -> Program:
        """The code of a kernel."""
        return self._programs[name]

    def __getitem__(self, name: str) -> Kernel:
        if not isinstance(name, str) or name not in self._programs:
            close = nearest(name, self._programs) if isinstance(name, str) else ""
            raise LaunchError(
                f"the module has no kernel {shown(name)}; it has {', '.join(self._programs) or 'none'}",
                hint=f"did you mean {close!r}?" if close else "",
            )
        return Kernel(self, name)
