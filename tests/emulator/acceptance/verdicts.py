"""What ptxas and the emulator say of a text: accepted, or refused and why."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tilekit.emulator import Device, EmulatorError
from tilekit.emulator.ptx.chips import CHIPS

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)


def chip_of(text: str) -> str:
    """The chip that a text is assembled for: its target, where the emulator has it."""
    written = _TARGET.search(text)
    return written[1] if written and written[1] in CHIPS else "sm_90a"


def ptxas_refuses(ptxas: str, text: str, folder: Path) -> str | None:
    """Why ptxas refuses a text; empty when it does not, None when it crashes or does not come to an end."""
    source = folder / "text.ptx"
    source.write_text(text, encoding="utf-8")
    command = [ptxas, f"-arch={chip_of(text)}", "-o", str(folder / "text.cubin"), str(source)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace", timeout=10)
    except subprocess.TimeoutExpired:
        return None
    if result.returncode <= 0:
        return None if result.returncode else ""
    said = (result.stdout + result.stderr).replace(str(source), "text").splitlines()
    return next((line for line in said if "error" in line or "fatal" in line), f"exit status {result.returncode}")


def emulator_refuses(text: str) -> str:
    """Why the emulator refuses a text; empty when it compiles every block of it."""
    try:
        module = Device(chip_of(text)).load(text)
        for name in module.kernels:
            program = module.program(name, aligned_warps=True)
            for block in program.flow.blocks:
                program.compile_block(block.index, masked=False)
    except EmulatorError as error:
        return str(error)
    return ""
