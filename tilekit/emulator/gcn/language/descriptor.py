"""The directives of a kernel descriptor: which there are, their ranges, and which of them a kernel must have."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REQUIRED", "value_reason"]

_WIDE = (1 << 32) - 1
_FLAG = (0, 1)
_TWO_BITS = (0, 3)
_RANGES = {
    "group_segment_fixed_size": (0, _WIDE), "private_segment_fixed_size": (0, _WIDE), "kernarg_size": (0, _WIDE),
    "accum_offset": (4, 256), "tg_split": _FLAG, "next_free_vgpr": (0, 512), "next_free_sgpr": (0, 102),
    "reserve_vcc": _FLAG, "reserve_xnack_mask": _FLAG, "reserve_flat_scratch": _FLAG,
    "float_round_mode_32": _TWO_BITS, "float_round_mode_16_64": _TWO_BITS, "float_denorm_mode_32": _TWO_BITS,
    "float_denorm_mode_16_64": _TWO_BITS, "dx10_clamp": _FLAG, "ieee_mode": _FLAG, "fp16_overflow": _FLAG,
    "enable_private_segment": _FLAG, "user_sgpr_count": (0, 16), "system_sgpr_workgroup_id_x": _FLAG,
    "system_sgpr_workgroup_id_y": _FLAG, "system_sgpr_workgroup_id_z": _FLAG, "system_sgpr_workgroup_info": _FLAG,
    "system_vgpr_workitem_id": _TWO_BITS, "user_sgpr_dispatch_ptr": _FLAG, "user_sgpr_queue_ptr": _FLAG,
    "user_sgpr_kernarg_segment_ptr": _FLAG, "user_sgpr_dispatch_id": _FLAG, "user_sgpr_private_segment_size": _FLAG,
    "user_sgpr_kernarg_preload_length": (0, 127), "user_sgpr_kernarg_preload_offset": (0, 511),
    "uses_dynamic_stack": _FLAG,
    **{f"exception_{name}": _FLAG for name in (
        "fp_ieee_invalid_op", "fp_denorm_src", "fp_ieee_div_zero", "fp_ieee_overflow", "fp_ieee_underflow",
        "fp_ieee_inexact", "int_div_zero",
    )},
}  # fmt: skip
"""Directives without ``.amdhsa_`` (LLVM, User Guide for AMDGPU), least and greatest value."""
REQUIRED = ("next_free_vgpr", "next_free_sgpr", "accum_offset")
"""What no kernel for these chips may leave out."""


def value_reason(name: str, value: int, fields: Mapping[str, int]) -> str:
    """Why a directive cannot be given this value; empty where it can."""
    if name not in _RANGES:
        return "is no field of a kernel descriptor of these chips"
    if name in fields:
        return "is given twice"
    least, most = _RANGES[name]
    if not least <= value <= most:
        return f"is {value}; legal: {least} to {most:,}"
    return "must be a multiple of 4" if name == "accum_offset" and value % 4 else ""
