"""What is wrong with an AMDGCN text without running it: `lint`."""

from __future__ import annotations

from tilekit.emulator.core.errors import LaunchError, TextError, UnsupportedInstruction, nearest
from tilekit.emulator.core.remarks import Remark
from tilekit.emulator.gcn.checks.forms import check_form
from tilekit.emulator.gcn.chips import CHIPS
from tilekit.emulator.gcn.compiler.program import Program
from tilekit.emulator.gcn.language.parser import parse_all

__all__ = ["RULES", "lint"]

RULES = {
    "syntax": "the text cannot be parsed, an instruction does not take its operands, or a branch goes nowhere",
    "unsupported": "an instruction that the chip does not have, or the emulator does not execute",
    "hazard": "fewer wait states between two instructions than the chip asks for",
    "kernel": "the text describes no kernel, so that nothing in it is checked",
    "lds": "more LDS than a workgroup may have",
}
"""Every rule, and what breaks it."""


def lint(text: str, target: str | None = None) -> list[Remark]:
    """Check a text.

    Parameters
    ----------
    text
        AMDGCN assembly.
    target
        Chip; None for the one that ``.amdgcn_target`` names.

    Raises
    ------
    LaunchError
        If the chip is not known.
    """
    module, errors = parse_all(text)
    remarks = [Remark("syntax", "", error.line or 0, error.message, error.hint) for error in errors]
    name = target or module.target
    if name not in CHIPS:
        if remarks:
            return remarks  # the line that names the chip may be one of them
        raise LaunchError.argument("target", name, ", ".join(CHIPS), nearest(name, CHIPS) or "gfx950")
    chip = CHIPS[name]
    for instruction in module.instructions:
        try:
            check_form(instruction, chip.name)
        except UnsupportedInstruction as error:
            remarks.append(Remark("unsupported", "", error.line or 0, error.message, error.hint))
        except TextError as error:
            remarks.append(Remark("syntax", "", error.line or 0, error.message, error.hint))
    if remarks:
        return sorted(remarks, key=lambda remark: remark.line)
    if not module.kernels:
        remarks.append(Remark("kernel", "", 0, "the text describes no kernel", "describe it with .amdhsa_kernel"))
    for entry, kernel in module.kernels.items():
        size = kernel.fields.get("group_segment_fixed_size", 0)
        if size > chip.lds_bytes:
            message = f"{size} bytes of LDS, and a workgroup on {name} has at most {chip.lds_bytes}"
            remarks.append(Remark("lds", entry, kernel.line, message))
        try:
            program = Program(module, entry, chip, kernel.fields.get("accum_offset", 256))
            program.check()
        except UnsupportedInstruction as error:
            remarks.append(Remark("unsupported", entry, error.line or 0, error.message, error.hint))
            continue
        except (TextError, LaunchError) as error:
            remarks.append(Remark("syntax", entry, error.line or kernel.line, error.message, error.hint))
            continue
        for hazard in program.hazards:
            missing = hazard.needed - hazard.found
            hint = f"put s_nop {missing - 1} before it, or other instructions"
            remarks.append(Remark("hazard", entry, hazard.consumer.line, str(hazard).partition(": ")[2], hint))
    return sorted(remarks, key=lambda remark: remark.line)
