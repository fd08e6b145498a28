"""Text of the scalar formats: SOP1, SOP2, SOPC, SOPK, SOPP and SMEM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilekit.emulator.gcn.binary.instructions.codes import Literal, UnknownCode, scalar
from tilekit.emulator.gcn.binary.instructions.fields import Fields
from tilekit.emulator.gcn.binary.instructions.table import Form, Operand

__all__ = ["scalar_operands"]

_HARDWARE_REGISTERS: Final = {
    1: "HW_REG_MODE",
    2: "HW_REG_STATUS",
    3: "HW_REG_TRAPSTS",
    4: "HW_REG_HW_ID",
    5: "HW_REG_GPR_ALLOC",
    6: "HW_REG_LDS_ALLOC",
    7: "HW_REG_IB_STS",
    15: "HW_REG_SH_MEM_BASES",
    20: "HW_REG_XCC_ID",
}
_INDEXED: Final = ("SRC0", "SRC1", "SRC2", "DST")
_WAIT_BITS: Final = 0xCF7F  # of vmcnt, expcnt and lgkmcnt
_LGKM_MOST: Final = 15
_VM_MOST: Final = 63
_EXP_MOST: Final = 7
_M0: Final = 124


def scalar_operands(form: Form, fields: Fields, literal: Literal, label: Callable[[int], str]) -> str:
    """Return operands and modifiers; `label` names the place that is some words after the instruction's end."""
    texts = []
    for operand in form.operands:
        match operand.field:
            case "K":
                texts.append(literal.plain())
            case "label":
                offset = fields.take("simm")
                texts.append(label(offset - ((offset & 0x8000) << 1)))
            case "imm" if "simm" in fields:
                texts.append(f"{fields.take('simm'):#x}")
            case "imm":
                texts.append(str(fields.take("sdata")))
            case "end":
                texts += [str(fields["simm"])] * (fields.take("simm") != 0)
            case "hwreg":
                texts.append(_hardware_register(fields.take("simm")))
            case "sendmsg":
                texts.append(str(fields.take("simm")))
            case "waitcnt":
                texts.append(_wait_counts(fields.take("simm")))
            case "gpr_idx":
                texts.append(_indexed(fields.take("simm" if "simm" in fields else "ssrc1")))
            case "offset":
                texts.append(_memory_offset(fields, unsigned=_of_buffer(form)))
                loaded = any(operand.field == "sdata" for operand in form.operands)
                return ", ".join(texts) + (fields.flag("glc") if loaded else "")
            case _:
                texts.append(_operand(operand, fields, literal))
    return ", ".join(texts)


def _operand(operand: Operand, fields: Fields, literal: Literal) -> str:
    code = fields.take(operand.field)
    if operand.field == "sbase":
        return scalar(2 * code, operand.width)
    if operand.field == "sdata" and code >= _M0:
        raise UnknownCode("m0 or exec as data")
    return scalar(code, operand.width, kinds=operand.kinds, of=literal)


def _memory_offset(fields: Fields, *, unsigned: bool) -> str:
    """An immediate, a register, or both."""
    immediate, added = fields.take("imm"), fields.take("soe")
    if not immediate and added:
        raise UnknownCode("an offset in a register, in the field that goes with an immediate")
    if not immediate:
        return scalar(fields.take("offset"), 1)
    offset = fields.take("offset")
    offset -= (offset & 0x100000) << 1
    if unsigned and offset < 0:
        raise UnknownCode("a negative offset into a buffer")
    if added:
        return f"{scalar(fields.take('soff'), 1)} offset:{offset:#x}"
    return f"{offset:#x}"


def _of_buffer(form: Form) -> bool:
    """Whether the base is a descriptor, which takes four registers."""
    return any(operand.field == "sbase" and operand.width == 4 for operand in form.operands)


def _hardware_register(code: int) -> str:
    number, offset, size = code & 63, code >> 6 & 31, (code >> 11) + 1
    return f"hwreg({_HARDWARE_REGISTERS.get(number, number)}, {offset}, {size})"


def _indexed(code: int) -> str:
    if code > 15:
        raise UnknownCode(f"gpr_idx {code}")
    return f"gpr_idx({','.join(name for bit, name in enumerate(_INDEXED) if code >> bit & 1)})"


def _wait_counts(code: int) -> str:
    if code & ~_WAIT_BITS:
        return f"{code:#x}"
    vector, export, scalars = code & 15 | code >> 10 & 0x30, code >> 4 & 7, code >> 8 & 15
    waits = [
        f"{name}({count})"
        for name, count, most in (
            ("vmcnt", vector, _VM_MOST),
            ("expcnt", export, _EXP_MOST),
            ("lgkmcnt", scalars, _LGKM_MOST),
        )
        if count != most
    ]
    return " ".join(waits) or f"{code:#x}"
