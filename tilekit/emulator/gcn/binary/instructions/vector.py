"""Text of the vector formats: VOP1, VOP2 and VOPC with SDWA and DPP, VOP3 and VOP3P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilekit.emulator.gcn.binary.instructions.codes import (
    LITERAL_CODE,
    VECTOR,
    Literal,
    UnknownCode,
    registers,
    scalar,
    scalar_register,
    source,
)
from tilekit.emulator.gcn.binary.instructions.fields import Fields
from tilekit.emulator.gcn.binary.instructions.table import Form, Operand

__all__ = ["dpp_operands", "packed_operands", "sdwa_operands", "vector_operands"]

_SCALE: Final = {1: " mul:2", 2: " mul:4", 3: " div:2"}
_SELECTED: Final = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_REST: Final = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
_DWORD: Final = 6
_INVERSE_TWO_PI: Final = "0.15915494"
_M0: Final = 124
_VCC: Final = 106
_CONSTANT: Final = "-0123456789"  # what a constant begins with
_OF_DESTINATION: Final = 3
_ROW_SHIFTS: Final = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror"}
_LANES: Final = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}
_BROADCAST: Final = 0x150


def vector_operands(form: Form, fields: Fields, literal: Literal) -> str:
    """Return operands and modifiers of VOP1, VOP2, VOPC and VOP3."""
    texts = []
    for operand in form.operands:
        if operand.field == "K":
            fields.reads_scalar(LITERAL_CODE, 1)
            texts.append(literal.plain())
        elif not operand.kinds:
            texts.append(operand.field)
        elif operand.field == "sdst7":
            texts.append(scalar(_second_destination(fields), operand.width))
        elif operand.field == "vdst":
            code = fields.take("vdst")
            if operand.kinds == "s" and code == _M0:
                fields.irregular = True  # the assembler has it written by scalar instructions alone
            texts.append(_destination(operand, code))
        elif operand.field == "vsrc1":
            texts.append(registers("v", fields.take("vsrc1"), operand.width))
        else:
            of = None if fields.form.name == "VOP3" else literal
            code = fields.take(operand.field)
            # m0 has a way of its own to the choice of a lane.
            if code == _M0 and form.mnemonic == "v_writelane_b32" and operand.field == "src1":
                text = source(code, operand.kinds, operand.width)
            else:
                text = _source(code, operand, fields, of)
            texts.append(_signed(text, form, fields, operand.field[-1]) if fields.form.name == "VOP3" else text)
    _implied(form, fields)
    if literal.taken and "literal16" in form.modifiers and (literal.value or 0) >> 16:
        fields.irregular = True  # bits that an operand of 16 has not
    if fields.form.name != "VOP3":
        return ", ".join(texts)
    return ", ".join(texts) + _vop3_modifiers(form, fields)


def _source(code: int, operand: Operand, fields: Fields, of: Literal | None = None) -> str:
    """An operand of nine bits; what it reads over the bus for scalars is noted."""
    if scalar_register(code):
        fields.reads_scalar(code, 1 if code == LITERAL_CODE else operand.width)
    return source(code, operand.kinds, operand.width, accumulator=operand.kinds == "a", of=of)


def _implied(form: Form, fields: Fields) -> None:
    """Note that vcc is read where it is the last operand, or is not written."""
    if (form.operands and form.operands[-1].field == "vcc") or form.mnemonic.startswith("v_div_fmas"):
        fields.reads_scalar(_VCC, 2)


def _destination(operand: Operand, code: int) -> str:
    """A register of either file: the instruction says which."""
    if operand.kinds == "s":
        return scalar(code, operand.width)
    return registers(operand.kinds[0], code, operand.width)


def _second_destination(fields: Fields) -> int:
    """The scalar destination that stands where other instructions have abs and op_sel."""
    return fields.take("abs") | fields.take("op_sel") << 3


def _signed(text: str, form: Form, fields: Fields, number: str) -> str:
    """An operand of VOP3 with its sign modifiers."""
    place = int(number)
    if number in form.modifiers.get("abs", "") and not _has_second_destination(form) and fields["abs"] >> place & 1:
        text = f"|{text}|"
    if number in form.modifiers.get("neg", "") and fields["neg"] >> place & 1:
        text = f"neg({text})" if text[0] in _CONSTANT else f"-{text}"
    return text


def _has_second_destination(form: Form) -> bool:
    return any(operand.field == "sdst7" for operand in form.operands)


def _vop3_modifiers(form: Form, fields: Fields) -> str:
    after = ""
    modifiers = form.modifiers
    for name in ("neg", "abs"):
        allowed = sum(1 << int(number) for number in modifiers.get(name, ""))
        if (
            fields[name] & ~allowed
            and not (name == "abs" and _has_second_destination(form))
            and "bitop3" not in modifiers
        ):
            raise UnknownCode(name)
        if modifiers.get(name):
            fields.take(name)
    if "bitop3" in modifiers:
        table = fields.take("omod") << 6 | fields.take("abs") << 3 | fields.take("neg")
        after += f" bitop3:{table:#x}"
    if "fi_bound" in modifiers:
        select = fields.take("op_sel")
        if select & ~3:
            raise UnknownCode("op_sel")
        after += " bound_ctrl:1" * (select >> 1) + " fi:1" * (select & 1)
    elif "op_sel" in modifiers:
        select = fields.take("op_sel")
        places = (*range(int(modifiers["op_sel"]) - 1), _OF_DESTINATION)  # the destination's stands last
        if select & ~sum(1 << place for place in places):
            raise UnknownCode("op_sel")
        if select:
            after += f" op_sel:{_list([select >> place & 1 for place in places])}"
    if "clamp" in modifiers:
        after += fields.flag("clamp")
    if "omod" in modifiers and "bitop3" not in modifiers:
        after += _SCALE.get(fields.take("omod"), "")
    return after


def _list(bits: Sequence[int]) -> str:
    return f"[{','.join(map(str, bits))}]"


def packed_operands(form: Form, fields: Fields) -> str:
    """Return operands and modifiers of VOP3P."""
    modifiers = form.modifiers
    texts = []
    count = sum(operand.field.startswith("src") for operand in form.operands)
    for operand in form.operands:
        code = fields.take(operand.field)
        if operand.field == "vdst":
            texts.append(registers(operand.kinds[0], code, operand.width))
            continue
        text = _source(code, operand, fields)
        place = int(operand.field[-1])
        if "abs" in modifiers and fields["neg_hi"] >> place & 1:  # the mixed ones keep abs where others negate halves
            text = f"|{text}|"
        if "neg" in modifiers and fields["neg"] >> place & 1:
            text = f"neg({text})" if text[0] in _CONSTANT else f"-{text}"
        texts.append(text)
    if "abs" in modifiers:
        fields.take("neg_hi")
        fields.take("neg")
    high = fields.take("op_sel_hi") | fields.take("op_sel_hi2") << 2
    after = ""
    if "op_sel" in modifiers:
        select = fields.take("op_sel")
        after += _some(" op_sel:", select, count, plain=0)
    if "op_sel_hi" in modifiers and not modifiers["op_sel_hi"]:
        if count == 2 and "op_sel_hi2" in modifiers:
            high ^= 4  # a source that is not there has its bit set
        after += _some(" op_sel_hi:", high, count, plain=0 if "abs" in modifiers else (1 << count) - 1)
    elif high != int(modifiers.get("op_sel_hi", 0) or 0) | int(modifiers.get("op_sel_hi2", 0) or 0) << 2:
        raise UnknownCode("op_sel_hi")
    if "neg_lo" in modifiers:
        after += _some(" neg_lo:", fields.take("neg"), count, plain=0)
        after += _some(" neg_hi:", fields.take("neg_hi"), count, plain=0)
    if "clamp" in modifiers:
        after += fields.flag("clamp")
    return ", ".join(texts) + after


def _some(name: str, bits: int, count: int, *, plain: int) -> str:
    """A list with a bit a source, where it is not the plain one."""
    if bits >> count:
        raise UnknownCode(name)
    return "" if bits == plain else f"{name}{_list([bits >> place & 1 for place in range(count)])}"


def sdwa_operands(form: Form, fields: Fields, more: Fields) -> str:
    """Return operands and modifiers of an instruction whose second word chooses bytes and words."""
    fields.take("src0")
    modifiers = form.modifiers
    texts: list[str] = []
    for operand in form.operands:
        if operand.field == "vcc" and "sdst" in more and not texts:
            texts.append(_compared(more))
        elif not operand.kinds:
            texts.append(operand.field)
        elif operand.field == "vdst":
            texts.append(registers("v", fields.take("vdst"), operand.width))
        else:
            texts.append(_sdwa_source(operand, form, fields, more))
    _implied(form, fields)
    after = ""
    if "clamp" in modifiers:
        after += more.flag("clamp")
    if "omod" in modifiers:
        after += _SCALE.get(more.take("omod"), "")
    if "dst_sel" in modifiers:
        select, rest = more.take("dst_sel"), more.take("dst_unused")
        if select > _DWORD or rest >= len(_REST):
            raise UnknownCode("dst_sel")
        after += f" dst_sel:{_SELECTED[select]} dst_unused:{_REST[rest]}"
    elif form.operands and "dst_sel" in more and more.take("dst_sel") != _DWORD:
        raise UnknownCode("dst_sel")
    for number in ("0", "1"):
        if number in modifiers.get("sel", ""):
            select = more.take(f"src{number}_sel")
            if select > _DWORD:
                raise UnknownCode("sel")
            after += f" src{number}_sel:{_SELECTED[select]}"
    return ", ".join(texts) + after


def _compared(more: Fields) -> str:
    code = more.take("sdst")
    if not more.take("sd"):
        if code:
            raise UnknownCode("a destination that is not used")
        return "vcc"
    text = scalar(code, 2)
    if text == "vcc":
        raise UnknownCode("vcc, which has no number here")
    return text


def _sdwa_source(operand: Operand, form: Form, fields: Fields, more: Fields) -> str:
    number = operand.field[-1]
    code = more.take("src0") if number == "0" else fields.take("vsrc1")
    text = _source(code if more.take(f"s{number}") else VECTOR + code, operand, fields)
    if number in form.modifiers.get("abs", "") and more.take(f"src{number}_abs"):
        text = f"|{text}|"
    if number in form.modifiers.get("neg", "") and more.take(f"src{number}_neg"):
        text = f"neg({text})" if text[0] in _CONSTANT else f"-{text}"
    if number in form.modifiers.get("sext", ""):
        # The assembler extends no constant, and takes the inverse of two pi for some widths of integers only.
        fields.irregular |= text.startswith(_INVERSE_TWO_PI)
        if more.take(f"src{number}_sext"):
            fields.irregular |= text[0] in _CONSTANT
            text = f"sext({text})"
    return text


def dpp_operands(form: Form, fields: Fields, more: Fields) -> str:
    """Return operands and modifiers of an instruction whose second word moves data between lanes."""
    fields.take("src0")
    texts = []
    for operand in form.operands:
        if not operand.kinds:
            texts.append(operand.field)
            continue
        if operand.field == "vdst":
            texts.append(registers("v", fields.take("vdst"), operand.width))
            continue
        number = operand.field[-1]
        code = more.take("src0") if number == "0" else fields.take("vsrc1")
        text = registers("v", code, operand.width)
        if number in form.modifiers.get("abs", "") and more.take(f"src{number}_abs"):
            text = f"|{text}|"
        if number in form.modifiers.get("neg", "") and more.take(f"src{number}_neg"):
            text = f"-{text}"
        texts.append(text)
    lanes = _lanes(more.take("ctrl"), wide="newbcast" in form.modifiers)
    masks = f" row_mask:{more.take('row_mask'):#x} bank_mask:{more.take('bank_mask'):#x}"
    bound = " bound_ctrl:1" if more.take("bound") else ""
    return f"{', '.join(texts)} {lanes}{masks}{bound}".lstrip()


def _lanes(control: int, *, wide: bool) -> str:
    if control & ~15 == _BROADCAST:
        return f"row_newbcast:{control & 15}"
    if not wide:
        if control < 0x100:
            return f"quad_perm:{_list([control >> 2 * lane & 3 for lane in range(4)])}"
        if control & 15 and control & ~15 in _ROW_SHIFTS:
            return f"{_ROW_SHIFTS[control & ~15]}:{control & 15}"
        if control in _LANES:
            return _LANES[control]
    raise UnknownCode(f"dpp control {control:#x}")
