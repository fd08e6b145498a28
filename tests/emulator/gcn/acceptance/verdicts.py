"""What LLVM's assembler and the emulator say of an instruction, or of a text: accepted, or refused and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.emulator.gcn.llvm import encodings
from tilekit.emulator import Device, EmulatorError
from tilekit.emulator.core.errors import UnsupportedInstruction

KNOWN = (
    ("emulator", r"src_scc, which can only be read"),
    ("emulator", r"bitop3 must be 0 to 255|takes a list of \d bits"),
    ("emulator", r"cannot be off|must be a number of 16 bits, in|expected a number before|number of 16 bits: s_nop"),
    ("emulator", r"(row|bank)_mask must be|_dpp.*and takes 1 register|takes 1 register.*_dpp|is src_\w+, and must be"),
    ("emulator", r"runs past its end|outside the section of code|there is no label|user_sgpr_count is"),
    ("assembler", r"relocatable expression|resolvable expression|unsupported attribute|smaller than than implied"),
    ("emulator", r"'v_(cndmask_b32|\w+_co_u32)': takes \d operands"),
)
"""Differences that are meant: which side refuses, and how; docs/emulator-gcn.md gives the reasons."""
DEFECT = "raw error: "
_FRAME = """
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.text
k:
  {line}
  s_endpgm
label:
  s_endpgm
.rodata
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 512
  .amdhsa_next_free_sgpr 100
  .amdhsa_accum_offset 256
.end_amdhsa_kernel
"""


@dataclass(frozen=True)
class Verdicts:
    """What both say of one damaged instruction: empty where it is taken."""

    kind: str
    line: str
    by_assembler: str
    by_emulator: str
    unsupported: bool

    @property
    def differs(self) -> bool:
        """Whether one refuses what the other takes, and not on purpose, as where an instruction is not executed."""
        if self.by_emulator.startswith(DEFECT):
            return True
        if bool(self.by_assembler) == bool(self.by_emulator) or (self.unsupported and not self.by_assembler):
            return False
        side, message = ("assembler", self.by_assembler) if self.by_assembler else ("emulator", self.by_emulator)
        return not any(side == which and re.search(pattern, message) for which, pattern in KNOWN)

    def __str__(self) -> str:
        said = f"assembler: {self.by_assembler or 'takes it'}; emulator: {self.by_emulator or 'takes it'}"
        return f"{self.kind}: {self.line}: {said}"


def emulator_refuses(line: str, chip: str) -> tuple[str, bool]:
    """Why the emulator refuses an instruction, and whether it only does not execute it."""
    return text_refused(_FRAME.format(chip=chip, line=line), chip)


def text_refused(text: str, chip: str) -> tuple[str, bool]:
    """Why the emulator refuses a text, and whether it only does not execute it."""
    try:
        Device(chip).load(text)
    except UnsupportedInstruction as error:
        return str(error), True
    except EmulatorError as error:
        return str(error), False
    except Exception as error:  # anything else is a defect, and the sweep goes on
        return f"{DEFECT}{error!r}", False
    return "", False


def compare(found: Sequence[tuple[str, str]], chip: str) -> list[Verdicts]:
    """What both say of damaged instructions, each with its kind of damage."""
    _, refused = encodings([line for _, line in found], chip)
    verdicts = []
    for number, (kind, line) in enumerate(found):
        message, unsupported = emulator_refuses(line, chip)
        verdicts.append(Verdicts(kind, line, refused.get(number, ""), message, unsupported))
    return verdicts
