"""Small kernels in AMDGCN assembly that the runtime's tests assemble."""

from __future__ import annotations


def module(
    body: str,
    *,
    chip: str = "gfx950",
    name: str = "small",
    lds: int = 0,
    scratch: int = 0,
    kernarg: int = 16,
    vgprs: int = 8,
    accum: int = 8,
    sgprs: int = 16,
    threads: int = 64,
    arguments: str = "",
    metadata: bool = True,
) -> str:
    """Return a module of one kernel: its code, its descriptor, and the metadata that agrees with it."""
    note = f"""\
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 16
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 64
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .agpr_count: {max(0, vgprs - accum)}
    .max_flat_workgroup_size: {threads}
{arguments}.end_amdgpu_metadata
"""
    return f"""\
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
{body}  s_endpgm
.L{name}_end:
.size {name}, .L{name}_end-{name}
.section .rodata,"a"
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_kernarg_size {kernarg}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr {sgprs}
  .amdhsa_accum_offset {accum}
.end_amdhsa_kernel
{note if metadata else ""}"""


STORE = """\
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dword s6, s[0:1], 0x8
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  v_mov_b32_e32 v2, s6
  global_store_dword v1, v2, s[4:5] //@ store Storer.store tile_io/store.py:12
"""
"""A wave writes one value, the second argument, to every element of the first."""
