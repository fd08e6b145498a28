"""A finished kernel as a module, and its launch on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilekit.assembly.gcn.finish import Finished
from tilekit.emulator import Device, LaunchReport


def module(finished: Finished, chip: str, *, lds: int = 0, lines: Sequence[str] | None = None) -> str:
    """The text of a kernel ``k`` with its descriptor and metadata; its arguments are two addresses."""
    counts = finished.counts
    body = "\n".join(lines if lines is not None else [text for text, _ in finished.lines])
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_next_free_vgpr {counts.next_free_vgpr}
  .amdhsa_next_free_sgpr {counts.next_free_sgpr}
  .amdhsa_accum_offset {counts.accum_offset}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--{chip}
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: {counts.next_free_sgpr}
    .vgpr_count: {counts.next_free_vgpr}
    .agpr_count: {counts.agprs}
    .max_flat_workgroup_size: 1024
    .args:
      - .address_space: global
        .offset: 0
        .size: 8
        .value_kind: global_buffer
      - .address_space: global
        .offset: 8
        .size: 8
        .value_kind: global_buffer
...
.end_amdgpu_metadata
"""


def launch(
    text: str, chip: str, arguments: Sequence[Any], *, waves: int = 1, seed: int = 0, schedule: Any = "adversarial"
) -> LaunchReport:
    """Run it in one workgroup with every check."""
    device = Device(chip, seed=seed, schedule=schedule, check="full")
    report: LaunchReport = device.load(text)["k"].launch(1, 64 * waves, list(arguments))
    return report
