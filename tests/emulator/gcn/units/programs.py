"""Small AMDGCN programs for tests: a body between a descriptor and ``s_endpgm``, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilekit.emulator import Device, LaunchReport


def program(
    body: str, chip: str, *, vectors: int = 256, accumulators: int = 256, lds: int = 0, scratch: int = 0
) -> str:
    """A kernel ``k`` whose only argument's address is in s[2:3] when the body begins."""
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.text
.globl k
.p2align 8
.type k,@function
k:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
{lines}
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr {vectors + accumulators}
  .amdhsa_next_free_sgpr 100
  .amdhsa_accum_offset {vectors}
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
"""


def run(
    body: str,
    memory: np.ndarray[Any, Any],
    chip: str = "gfx950",
    *,
    block: int | Sequence[int] = 64,
    grid: int = 1,
    lds: int = 0,
    scratch: int = 0,
    seed: int = 0,
    schedule: Any = "adversarial",
    check: Any = "full",
) -> LaunchReport:
    """Run a body on an array, which it may change."""
    device = Device(chip, seed=seed, schedule=schedule, check=check)
    text = program(body, chip, lds=lds, scratch=scratch)
    report: LaunchReport = device.load(text)["k"].launch(grid, block, [memory])
    return report
