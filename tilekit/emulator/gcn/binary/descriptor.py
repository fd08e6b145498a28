"""The kernel descriptor: 64 bytes from which the hardware sets up a kernel's waves, and the directives that make them.

Fields and their names are those of LLVM's User Guide for AMDGPU (Kernel Descriptor; Code Object V3 and Above).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilekit.emulator.gcn.binary.errors import CodeObjectFault

__all__ = ["DESCRIPTOR_BYTES", "KernelDescriptor"]

DESCRIPTOR_BYTES: Final = 64

_VGPR_GRANULE: Final = 8
_SGPR_GRANULE: Final = 8
_SGPR_EXTRA: Final = 6  # what the assembler adds for VCC and flat scratch on chips with architected flat scratch
_ADDRESSABLE_SGPRS: Final = 102
_ACCUM_GRANULE: Final = 4
_VGPRS_OF_SIMD: Final = 512
_MOST_WAVES: Final = 8

# Directive without its prefix, byte of the field's word, lowest bit in that word, width.
_FIELDS: Final = {
    "group_segment_fixed_size": (0, 0, 32),
    "private_segment_fixed_size": (4, 0, 32),
    "kernarg_size": (8, 0, 32),
    "accum_offset": (44, 0, 6),
    "tg_split": (44, 16, 1),
    "next_free_vgpr": (48, 0, 6),
    "next_free_sgpr": (48, 6, 4),
    "float_round_mode_32": (48, 12, 2),
    "float_round_mode_16_64": (48, 14, 2),
    "float_denorm_mode_32": (48, 16, 2),
    "float_denorm_mode_16_64": (48, 18, 2),
    "dx10_clamp": (48, 21, 1),
    "ieee_mode": (48, 23, 1),
    "fp16_overflow": (48, 26, 1),
    "enable_private_segment": (52, 0, 1),
    "user_sgpr_count": (52, 1, 5),
    "system_sgpr_workgroup_id_x": (52, 7, 1),
    "system_sgpr_workgroup_id_y": (52, 8, 1),
    "system_sgpr_workgroup_id_z": (52, 9, 1),
    "system_sgpr_workgroup_info": (52, 10, 1),
    "system_vgpr_workitem_id": (52, 11, 2),
    "exception_fp_ieee_invalid_op": (52, 24, 1),
    "exception_fp_denorm_src": (52, 25, 1),
    "exception_fp_ieee_div_zero": (52, 26, 1),
    "exception_fp_ieee_overflow": (52, 27, 1),
    "exception_fp_ieee_underflow": (52, 28, 1),
    "exception_fp_ieee_inexact": (52, 29, 1),
    "exception_int_div_zero": (52, 30, 1),
    "user_sgpr_dispatch_ptr": (56, 1, 1),
    "user_sgpr_queue_ptr": (56, 2, 1),
    "user_sgpr_kernarg_segment_ptr": (56, 3, 1),
    "user_sgpr_dispatch_id": (56, 4, 1),
    "user_sgpr_private_segment_size": (56, 6, 1),
    "uses_dynamic_stack": (56, 11, 1),
    "user_sgpr_kernarg_preload_length": (56, 16, 7),
    "user_sgpr_kernarg_preload_offset": (56, 23, 9),
}
_ENTRY: Final = slice(16, 24)


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """A kernel's descriptor; every other field by `field`, under the name of its directive.

    Attributes
    ----------
    data : bytes
        The 64 bytes.
    """

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != DESCRIPTOR_BYTES:
            raise CodeObjectFault(f"a kernel descriptor has {DESCRIPTOR_BYTES} bytes, this one {len(self.data)}")

    def field(self, directive: str) -> int:
        """Return a field's bits: ``kernarg_size``, ``float_denorm_mode_32`` ...; register counts are granules."""
        at, low, width = _FIELDS[directive]
        word = int.from_bytes(self.data[at : at + 4], "little")
        return word >> low & (1 << width) - 1

    @property
    def entry_offset(self) -> int:
        """Where the code begins, counted from the descriptor's own address."""
        return int.from_bytes(self.data[_ENTRY], "little", signed=True)

    @property
    def registers(self) -> int:
        """Vector registers a lane, of both kinds."""
        return (self.field("next_free_vgpr") + 1) * _VGPR_GRANULE

    @property
    def accum_offset(self) -> int:
        """The register of the unified file that is called a0."""
        return (self.field("accum_offset") + 1) * _ACCUM_GRANULE

    @property
    def vgprs(self) -> int:
        """Registers of the allocation that are called v."""
        return min(self.accum_offset, self.registers)

    @property
    def agprs(self) -> int:
        """Registers of the allocation that are called a."""
        return self.registers - self.vgprs

    @property
    def sgprs(self) -> int:
        """Scalar registers a wave, VCC and the trap handler's not counted apart."""
        return (self.field("next_free_sgpr") + 1) * _SGPR_GRANULE

    @property
    def lds_bytes(self) -> int:
        """LDS of a workgroup that is known before the launch."""
        return self.field("group_segment_fixed_size")

    @property
    def waves_per_simd(self) -> int:
        """Waves that a SIMD's vector registers hold at once."""
        return min(_MOST_WAVES, _VGPRS_OF_SIMD // self.registers)

    def unknown_bits(self) -> bool:
        """Whether a bit is set that no directive sets, so that `directives` would lose it."""
        rest = bytearray(self.data)
        rest[_ENTRY] = bytes(8)
        value = int.from_bytes(rest, "little")
        for at, low, width in _FIELDS.values():
            value &= ~(((1 << width) - 1) << (8 * at + low))
        return value != 0

    def directives(self) -> list[str]:
        """Return the lines between ``.amdhsa_kernel`` and ``.end_amdhsa_kernel`` that make this descriptor."""
        values = {name: self.field(name) for name in _FIELDS}
        values["next_free_vgpr"] = self.registers
        values["next_free_sgpr"] = min(self.sgprs - _SGPR_EXTRA, _ADDRESSABLE_SGPRS)
        values["accum_offset"] = self.accum_offset
        return [f".amdhsa_{name} {value}" for name, value in values.items()]
