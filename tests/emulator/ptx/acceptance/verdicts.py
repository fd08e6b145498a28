"""What ptxas and the emulator say of a text: accepted, or refused and why."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tilekit.emulator import Device, EmulatorError
from tilekit.emulator.ptx.chips import CHIPS

KNOWN = (
    # what ptxas says, or the emulator where ptxas says nothing; docs/emulator.md gives the reasons
    ("ptxas", r"Insufficient registers|uses too many|C7\d\d\d"),
    ("ptxas", r"requires \.target sm_([67]\d|80)"),
    ("ptxas", r"Function call sequence invalid|memory exhausted|Memory allocation failure"),
    ("emulator", r"has more than (31|32|64) bits|barriers 0 to 15, not \d{10,}"),
    ("emulator", r"at most 1,073,741,824 are emulated"),
    ("emulator", r"must have 32 or 64 bits|mov %\w+ to a register first: it is no address"),
    ("emulator", r"found '\.target'"),
    ("emulator", r"\.pred fits no known form"),
    ("emulator", r"a coordinate is an integer"),
    ("emulator", r"of one vector have different widths, in: (@\S+ )?(\w*mma|cp\.async\.bulk)"),
    ("emulator", r"is \.pred, the instruction's type is"),
    ("emulator", r"textures, samplers and surfaces|several devices|belongs to sm_120a|s2f6"),
    ("emulator", r"the module is for sm_"),
    ("emulator", r"\.sync fits no known form, in: .*\.sync ?\.sync"),
    ("emulator", r"\.(finite|infinite|col) fits no known form"),
    ("emulator", r"\.aligned \(missing\)|unexpected character|declares [\d,]{13,} bytes"),
)
"""Differences that are meant."""
DEFECT = "raw error: "
"""What stands before an error that is none of the emulator's."""
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
    except Exception as error:  # anything else is a defect, and the sweep goes on
        return f"{DEFECT}{error!r}"
    return ""


@dataclass(frozen=True)
class Verdicts:
    """What both say of one damaged text: empty where it is taken."""

    kind: str
    by_ptxas: str
    by_emulator: str

    @property
    def differs(self) -> bool:
        """Whether one refuses what the other takes, and not on purpose."""
        if self.by_emulator.startswith(DEFECT):
            return True
        if bool(self.by_ptxas) == bool(self.by_emulator):
            return False
        side, message = ("ptxas", self.by_ptxas) if self.by_ptxas else ("emulator", self.by_emulator)
        return not any(side == which and re.search(pattern, message) for which, pattern in KNOWN)

    def __str__(self) -> str:
        return f"{self.kind}: ptxas: {self.by_ptxas or 'takes it'}; emulator: {self.by_emulator or 'takes it'}"


def compare(ptxas: str, kind: str, text: str, folder: Path) -> Verdicts | None:
    """What both say of a text with some kind of damage; None where ptxas crashes or hangs."""
    by_ptxas = ptxas_refuses(ptxas, text, folder)
    return None if by_ptxas is None else Verdicts(kind, by_ptxas, emulator_refuses(text))
