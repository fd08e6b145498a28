"""Which registers an instruction reads and writes, as bits; see :data:`.outstanding.SCALARS`."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.gcn.language.syntax import M0, Instruction, Operand, Register
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["Effects", "effects", "is_memory", "is_mfma", "queue_of", "targets_of"]

_NO_TARGET = (
    "s_cmp",
    "s_bitcmp",
    "s_waitcnt",
    "s_cbranch",
    "s_branch",
    "s_barrier",
    "s_endpgm",
    "s_nop",
    "s_set",
    "s_sleep",
    "s_sendmsg",
    "s_trap",
    "v_nop",
    "buffer_inv",
    "buffer_wb",
    "global_load_lds",
)
_READ_TARGET = (
    "v_fmac",
    "v_dot2c",
    "v_dot4c",
    "v_dot8c",
    "v_mac_f16",
    "v_pk_fmac",
    "v_ashr_pk",
    "v_cvt_scalef32_f16_",
    "v_smfmac",
    "s_addk",
    "s_mulk",
    "s_cmovk",
    "s_bitset",
    "v_writelane",
    "v_fma_mixlo",
    "v_fma_mixhi",
    "v_cvt_pk_fp8",
    "v_cvt_pk_bf8",
    "v_cvt_scalef32_pk_fp8",
    "v_cvt_scalef32_pk_bf8",
    "v_cvt_scalef32_pk_fp4",
    "s_cmov_",
)
_TWO_TARGETS = (
    "v_add_co",
    "v_sub_co",
    "v_subrev_co",
    "v_addc_co",
    "v_subb_co",
    "v_subbrev_co",
    "v_mad_u64",
    "v_mad_i64",
    "v_div_scale",
    "v_swap",
    "v_permlane16_swap",
    "v_permlane32_swap",
)
_SCALAR_MEMORY = ("s_load", "s_buffer", "s_store", "s_atomic")


@dataclass(frozen=True, slots=True)
class Effects:
    """Bits of the registers that an instruction reads and writes; `load` are those that a load writes later."""

    reads: int
    writes: int
    load: int


def is_mfma(i: Instruction) -> bool:
    """Whether an instruction goes to the matrix core."""
    return i.name.startswith(("v_mfma", "v_smfmac"))


def is_memory(i: Instruction) -> bool:
    """Whether an instruction accesses memory through vector registers."""
    return i.name.startswith(("ds_", "buffer_", "global_", "flat_", "scratch_"))


def queue_of(i: Instruction) -> int | None:
    """The wait counter's queue that an instruction's operation joins: 0 vmcnt, 1 lgkmcnt."""
    if i.name.startswith(("ds_", *_SCALAR_MEMORY)):
        return 1
    if i.name.startswith(("buffer_", "global_", "flat_", "scratch_")) and i.name != "buffer_inv":
        return 0
    return None


def targets_of(i: Instruction) -> int:
    """How many destinations an instruction begins with."""
    return 2 if i.name.startswith(_TWO_TARGETS) else 1


def effects(i: Instruction, accumulators: int) -> Effects:
    """Return what an instruction reads and writes; `accumulators` is the row of register a0."""
    bits = [_bits(operand, accumulators) for operand in i.operands]
    name = i.name
    stores = "_store_" in name or name.startswith("ds_write") or name.startswith(_NO_TARGET) or i.flag("lds")
    atomic = "_atomic_" in name or (
        name.startswith("ds_") and not name.startswith(("ds_read", "ds_write", "ds_bperm", "ds_perm", "ds_swiz"))
    )
    if name in ("s_set_gpr_idx_on", "s_set_gpr_idx_idx"):
        return Effects(_all(bits), 1 << (SCALARS + M0), 0)
    if stores or not bits:
        return Effects(_all(bits), 0, 0)
    if atomic:
        if name.startswith(("buffer", "s_")):
            return Effects(_all(bits), 0, bits[0] if i.flag("sc0") or i.flag("glc") else 0)
        returns = i.flag("sc0") or "_rtn" in name
        return Effects(_all(bits[1:] if returns else bits), 0, bits[0] if returns else 0)
    if queue_of(i) is not None:
        return Effects(_all(bits[1:]), 0, bits[0])
    targets = targets_of(i)
    reads = bits[targets:]
    if name.startswith(("v_swap", "v_permlane")) or name.startswith(_READ_TARGET):
        reads = bits
    if name.startswith("v_cmp") and len(bits) == 2:
        return Effects(_all(bits), 3 << (SCALARS + 106), 0)
    return Effects(_all(reads), _all(bits[:targets]), 0)


def _all(bits: list[int]) -> int:
    total = 0
    for part in bits:
        total |= part
    return total


def _bits(operand: Operand, accumulators: int) -> int:
    if not isinstance(operand, Register):
        return 0
    first = operand.first + {"s": SCALARS, "v": 0, "a": accumulators}[operand.file]
    return ((1 << operand.count) - 1) << first
