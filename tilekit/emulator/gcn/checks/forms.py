"""Whether an instruction has a form: its mnemonic with these operands and modifiers, as LLVM's assembler takes it.

The forms are those that machine code is decoded by (:mod:`tilekit.emulator.gcn.binary.instructions.table`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.gcn.binary.instructions.table import Form, Operand, forms
from tilekit.emulator.gcn.checks.form_memory import MEMORY, memory_reason
from tilekit.emulator.gcn.checks.form_operands import bus_reason, operand_reason, size_of
from tilekit.emulator.gcn.errors import GcnSyntaxError
from tilekit.emulator.gcn.language.syntax import VCC, Call, Constant, Instruction, Register, Symbol

__all__ = ["check_form"]

_ENCODED = {
    "e64": ("VOP3", "VOP3P", "MAI", "MAIS"),
    "sdwa": ("VOP1SDWA", "VOP2SDWA", "VOPCSDWAC"),
    "dpp": ("VOP1DPP", "VOP2DPP"),
}
_NOT_SHORT = ("VOP3", "VOP3P", "MAI", "MAIS")
_OLD_MATRIX = re.compile(r"(v_s?mf\w+?_\d+x\d+x\d+)(bf16|xf32|f16|f32|f64|i8)(_1k)?$")
_SCALES = ("mul", "div")
_SELECTED = {*(f"BYTE_{n}" for n in range(4)), "WORD_0", "WORD_1", "DWORD"}
_UNUSED = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"}
_CONTROLS = {
    "row_shl": (1, 15), "row_shr": (1, 15), "row_ror": (1, 15), "wave_shl": (1, 1), "wave_shr": (1, 1),
    "wave_rol": (1, 1), "wave_ror": (1, 1), "row_newbcast": (0, 15),
}  # fmt: skip
_MIRRORS = ("row_mirror", "row_half_mirror")
_WIDTHS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}
"""Registers of a factor by its format: ``cbsz`` for the first, ``blgp`` for the second."""


@cache
def _named(chip: str) -> dict[str, list[tuple[str, Form]]]:
    found: dict[str, list[tuple[str, Form]]] = {}
    for (name, _), form in forms(chip).items():
        found.setdefault(form.mnemonic, []).append((name, form))
    return found


def check_form(i: Instruction, chip: str) -> None:
    """Refuse an instruction that has no form on a chip.

    Raises
    ------
    UnsupportedInstruction
        Where the chip has no instruction of that name.
    GcnSyntaxError
        Where it takes other operands or modifiers; says what is wrong with those.
    """
    name = i.name
    found = _named(chip).get(name) or _named(chip).get(_OLD_MATRIX.sub(_spelled, name))
    if found is None:
        raise UnsupportedInstruction(
            f"instruction '{name}' is not known to {chip}", line=i.line, column=i.column, form=name, known=_named(chip)
        )
    reasons = []
    for format_, form in found:
        if i.encoding and not _encoded(i.encoding, format_):
            continue
        reason = _reason(i, format_, form)
        if not reason:
            return
        reasons.append(reason)
    what = max(reasons, key=_closeness) if reasons else f"it has no encoding '{i.encoding}'"
    raise GcnSyntaxError(f"'{name}': {what}: {i.text}", line=i.line, column=i.column)


def _encoded(encoding: str, format_: str) -> bool:
    """Whether a format may be named by a suffix; e32 is taken behind whatever is not a longer form of the like."""
    if encoding == "e32":
        return format_ not in _NOT_SHORT and not format_.endswith(("SDWA", "SDWAC", "DPP"))
    return format_ in _ENCODED.get(encoding, ())


def _spelled(match: re.Match[str]) -> str:
    return f"{match[1]}_{match[2]}"


def _closeness(reason: str) -> int:
    """How far a form fitted: the number of operands comes first, then each operand, then modifiers."""
    if reason.startswith("takes"):
        return 0
    found = re.match(r"operand (\d+)", reason)
    return int(found[1]) if found else 99


def _reason(i: Instruction, format_: str, form: Form) -> str:
    """Why an instruction is not of a form; empty where it is."""
    if format_ in MEMORY:
        return memory_reason(i, format_, form)
    if format_ == "SMEM":
        return _scalar_memory(i, form)
    expected = [operand for operand in form.operands if operand.field != "end"]
    if form.mnemonic == "s_waitcnt":
        return ""  # counters were looked at when they were read
    if format_ == "VOPC" and len(i.operands) == len(expected) - 1:
        expected = expected[1:]  # vcc need not be written
    optional = len(form.operands) - len(expected) if format_ == "SOPP" else 0
    if not len(expected) <= len(i.operands) <= len(expected) + optional:
        return f"takes {len(expected)} operands, and the text has {len(i.operands)}"
    for place, operand in enumerate(expected):
        reason = _operand(i, place, operand, format_, form)
        if reason:
            return f"operand {place + 1} {reason}"
    return bus_reason(i, format_, form, expected) or _modifiers(i, format_, form)


# -- operands --------------------------------------------------------------------------------------------------------


def _operand(i: Instruction, place: int, operand: Operand, format_: str, form: Form) -> str:
    given = i.operands[place]
    if operand.kinds:
        if format_ in ("MAI", "MAIS"):
            return _factor(i, place, operand, form)
        source = operand.field[-1] if operand.field[:-1] in ("src", "vsrc") else ""
        signs = {name: source in form.modifiers.get(name, "") and source != "" for name in ("neg", "abs", "sext")}
        kinds = operand.kinds
        if format_ in ("VOP3", "VOP3P", "VOP1SDWA", "VOP2SDWA", "VOPCSDWAC"):
            kinds = kinds.replace("l", "")
        if format_ == "VOP3P" and "abs" not in form.modifiers:
            signs["neg"] = False
        written = operand.field in ("vdst", "sdst", "sdst7")
        return operand_reason(
            given, kinds, operand.width, size_of(form.mnemonic, operand), signs, written=written,
            floating="_f64" in form.mnemonic or operand.width < 2,
        )  # fmt: skip
    return _word(given, operand.field, place, format_)


def _word(given: Any, field: str, place: int, format_: str) -> str:
    """An operand that the table has a word for."""
    if field == "vcc":
        pair = isinstance(given, Register) and given.file == "s" and given.count == 2 and given.first % 2 == 0
        if format_ == "VOPCSDWAC" and place == 0 and pair:
            return ""
        return "" if pair and given.first == VCC else "must be vcc"
    if field == "K":
        return "" if isinstance(given, Constant | Symbol) else "must be a literal"
    if field == "label":
        return "" if isinstance(given, Symbol | Constant) else "must be a label"
    if field == "imm":
        fits = isinstance(given, Constant) and isinstance(given.value, int) and -32768 <= given.value <= 65535
        return "" if fits else "must be a number of 16 bits"
    if field == "hwreg":
        return "" if isinstance(given, Call | Constant) else "must be a hardware register"
    if field in ("sendmsg", "gpr_idx"):
        return "" if isinstance(given, Call | Constant) else f"must be {field}(…)"
    return ""


def _factor(i: Instruction, place: int, operand: Operand, form: Form) -> str:
    """An operand of a matrix instruction."""
    given, width = i.operands[place], operand.width
    if form.mnemonic.endswith("f8f6f4") and operand.field in ("src0", "src1"):
        width = _WIDTHS.get(i.modifiers.get("cbsz" if operand.field == "src0" else "blgp", 0), 0)
    size = 64 if form.mnemonic.endswith("_f64") else 32
    reason = operand_reason(given, operand.kinds, width, size, {}, written=operand.field == "vdst")
    target = i.operands[0]
    if reason or operand.field != "src2" or not isinstance(given, Register) or not isinstance(target, Register):
        return reason
    if "a" in operand.kinds and given.file != target.file:
        return f"must be in the file of the result, {target.file}"
    apart = abs(given.first - target.first)
    if (
        form.mnemonic.startswith("v_mfma")
        and target.count > 4
        and given.file == target.file
        and 0 < apart < target.count
    ):
        return "lies partly in the result"
    return ""


def _scalar_memory(i: Instruction, form: Form) -> str:
    """SMEM: data, base, and an offset that is a number, a register, or both."""
    expected = [operand for operand in form.operands if operand.field != "offset"]
    offset = len(expected) != len(form.operands)
    if len(i.operands) not in (len(expected), len(form.operands)):
        return f"takes {len(form.operands)} operands, and the text has {len(i.operands)}"
    offset = offset and len(i.operands) > len(expected)
    for place, operand in enumerate(expected):
        if operand.field == "imm":
            continue
        reason = operand_reason(i.operands[place], "s", operand.width, 32, {}, written=operand.field == "sdata")
        if reason:
            return f"operand {place + 1} {reason}"
    buffer = any(operand.field == "sbase" and operand.width == 4 for operand in form.operands)
    least, most = (0, (1 << 20) - 1) if buffer else (-(1 << 20), (1 << 20) - 1)
    if offset:
        given = i.operands[-1]
        if isinstance(given, Constant):
            if not isinstance(given.value, int) or not least <= given.value <= most:
                return f"operand {len(i.operands)} must be {least} to {most}"
        else:
            reason = operand_reason(given, "s", 1, 32, {})
            if reason:
                return f"operand {len(i.operands)} {reason}"
    allowed = {"glc"} if any(operand.field == "sdata" for operand in form.operands) else set()
    if offset and isinstance(i.operands[-1], Register):
        allowed.add("offset")
        if not least <= i.modifiers.get("offset", 0) <= most:
            return f"offset must be {least} to {most}"
    return _unknown(i, allowed)


# -- modifiers -------------------------------------------------------------------------------------------------------


def _unknown(i: Instruction, allowed: set[str]) -> str:
    wrong = next((name for name in i.modifiers if name not in allowed), "")
    return f"does not take '{wrong}'" if wrong else ""


def _modifiers(i: Instruction, format_: str, form: Form) -> str:
    modifiers = i.modifiers
    possible = ("clamp", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "cbsz", "abid", "blgp", "bitop3")
    allowed: set[str] = {name for name in possible if name in form.modifiers}
    if "omod" in form.modifiers and "bitop3" not in form.modifiers:
        allowed.update(_SCALES)
    if format_ == "MAI" and "neg_lo" in form.modifiers:
        allowed = allowed - {"neg_lo"} | {"neg"}
    if format_.endswith(("SDWA", "SDWAC")):
        allowed |= {f"src{n}_sel" for n in form.modifiers.get("sel", "")}
        allowed |= {"dst_sel", "dst_unused"} & ({"dst_sel", "dst_unused"} if "dst_sel" in form.modifiers else set())
    if format_.endswith("DPP"):
        allowed |= {*_CONTROLS, *_MIRRORS, "quad_perm", "row_bcast", "row_mask", "bank_mask", "bound_ctrl"}
    if "fi_bound" in form.modifiers:
        allowed |= {"fi", "bound_ctrl"}
    return _unknown(i, allowed) or next(_wrong_values(modifiers, format_, form), "")


def _wrong_values(modifiers: Any, format_: str, form: Form) -> Iterator[str]:
    sources = sum(operand.field.startswith(("src", "scale")) for operand in form.operands)
    for name, value in modifiers.items():
        if name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg"):
            count = int(form.modifiers.get(name) or 0) if format_ == "VOP3" else 3 if format_ == "MAIS" else sources
            fits = isinstance(value, list) and all(bit in (0, 1) for bit in value)
            # What a shorter list leaves out is 0; none of the like may look as if its last were the destination's.
            fits = fits and (len(value) == count or (0 < len(value) < count and not value[-1]))
            if not fits:
                yield f"{name} takes a list of {count} bits"
        elif name in ("cbsz", "blgp") and not _between(value, 0, 7):
            yield f"{name} must be 0 to 7"
        elif name == "abid" and not _between(value, 0, 15):
            yield "abid must be 0 to 15"
        elif name == "bitop3" and not _between(value, 0, 255):
            yield "bitop3 must be 0 to 255"
        elif (name == "mul" and value not in (2, 4)) or (name == "div" and value != 2):
            yield "the scale must be mul:2, mul:4 or div:2"
        elif name.endswith("_sel") and name[0] in "ds" and value not in _SELECTED:
            yield f"{name} must be BYTE_0 to BYTE_3, WORD_0, WORD_1 or DWORD"
        elif name == "dst_unused" and value not in _UNUSED:
            yield "dst_unused must be UNUSED_PAD, UNUSED_SEXT or UNUSED_PRESERVE"
        elif name in ("bound_ctrl", "fi") and value not in (0, 1, True):
            yield f"{name} must be 0 or 1"
    if format_.endswith("DPP"):
        yield from _lanes(modifiers, form)


def _lanes(modifiers: Any, form: Form) -> Iterator[str]:
    """How DPP moves lanes."""
    controls = [name for name in (*_CONTROLS, *_MIRRORS, "quad_perm", "row_bcast") if name in modifiers]
    if len(controls) != 1:
        yield "needs one way of moving lanes"
    for name in controls:
        value = modifiers[name]
        if name in _CONTROLS and not _between(value, *_CONTROLS[name]):
            yield f"{name} must be {_CONTROLS[name][0]} to {_CONTROLS[name][1]}"
        if name == "row_bcast" and value not in (15, 31):
            yield "row_bcast must be 15 or 31"
        if name == "quad_perm" and not _quads(value):
            yield "quad_perm takes four lanes, 0 to 3"
        if "newbcast" in form.modifiers and name != "row_newbcast":
            yield "doubles are moved by row_newbcast only"
    for name in ("row_mask", "bank_mask"):
        if name in modifiers and not _between(modifiers[name], 0, 15):
            yield f"{name} must be 0 to 15"


def _quads(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 4 and all(_between(lane, 0, 3) for lane in value)


def _between(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and value is not True and least <= value <= most
