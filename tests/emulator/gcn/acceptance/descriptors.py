"""Whole texts whose descriptor, metadata or frame is damaged, and what the assembler says of them."""

from __future__ import annotations

import random
import re
import subprocess

from tilekit.runtime.amd_toolchain import find_amd_tools

_ERROR = re.compile(r"^<stdin>:\d+:\d+: error: (.*)$", re.M)
_TEXT = """.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.amdhsa_code_object_version 5
.text
.globl k
.p2align 8
.type k,@function
k:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  s_cbranch_scc0 .Lend
  global_load_dword v2, v1, s[2:3]
.Lend:
  s_endpgm
.section .rodata,"a"
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size 512
  .amdhsa_private_segment_fixed_size 16
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_vgpr_workitem_id 0
  .amdhsa_next_free_vgpr 16
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 8
  .amdhsa_reserve_vcc 1
  .amdhsa_float_round_mode_32 0
  .amdhsa_float_denorm_mode_32 3
  .amdhsa_dx10_clamp 1
  .amdhsa_ieee_mode 1
.end_amdhsa_kernel
"""
_VALUES = (
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "17",
    "64",
    "255",
    "256",
    "257",
    "512",
    "513",
    "-1",
    "0x10",
    "08",
    "x",
    "",
)


def damaged_text(chip: str, rng: random.Random) -> tuple[str, str]:
    """The kind of damage, and the text."""
    lines = _TEXT.format(chip=chip).splitlines()
    place = rng.randrange(1, len(lines))
    kind = rng.choice(("dropped", "twice", "misspelt", "value", "moved"))
    if kind == "dropped":
        del lines[place]
    elif kind == "twice":
        lines.insert(place, lines[place])
    elif kind == "misspelt":
        letter = rng.randrange(len(lines[place]) or 1)
        lines[place] = lines[place][:letter] + rng.choice(["", "x", "_"]) + lines[place][letter + 1 :]
    elif kind == "moved":
        lines.insert(rng.randrange(1, len(lines)), lines.pop(place))
    else:
        place = rng.choice([n for n, line in enumerate(lines) if ".amdhsa_" in line and "kernel k" not in line])
        lines[place] = f"{lines[place].rsplit(' ', 1)[0]} {rng.choice(_VALUES)}"
    return kind, "\n".join(lines) + "\n"


def assembler_refuses(text: str, chip: str) -> str:
    """Why the assembler refuses a text; empty when it does not."""
    command = [*find_amd_tools().assembler, "-triple", "amdgcn-amd-amdhsa", "-target-cpu", chip]
    command += ["-filetype", "obj", "-", "-o", "/dev/null"]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return ""
    found = _ERROR.search(answer.stderr)
    return found[1] if found else answer.stderr.strip()[:200] or f"status {answer.returncode}"
