"""Text of the matrix instructions: the MAI format, and the pair of instructions whose first word brings scales."""

from __future__ import annotations

from typing import Final

from tilekit.emulator.gcn.binary.instructions.codes import VECTOR, UnknownCode, registers, source
from tilekit.emulator.gcn.binary.instructions.fields import Fields
from tilekit.emulator.gcn.binary.instructions.table import Form, Operand

__all__ = ["matrix_operands", "scaled_operands"]

_FORMAT_WIDTHS: Final = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}  # registers of an operand by its format: cbsz for A, blgp for B
_SMALL: Final = 4
_SCALED: Final = 1  # what abid says of an instruction that has scales


def matrix_operands(form: Form, fields: Fields) -> str:
    """Return operands and modifiers of MFMA and SMFMAC."""
    texts = [_operand(form, operand, fields) for operand in form.operands]
    after = ""
    for name in ("cbsz", "abid", "blgp"):
        if name in form.modifiers:
            value = fields.take(name)
            after += f" {name}:{value}" if value else ""
    if "neg_lo" in form.modifiers:
        negated = fields.take("blgp")
        after += f" neg:[{negated & 1},{negated >> 1 & 1},{negated >> 2}]" if negated else ""
    if form.mnemonic.endswith("f8f6f4") and fields["abid"]:
        raise UnknownCode("scales without their word")
    fields.irregular = "mfma" in form.mnemonic and _overlap(form, fields)
    return ", ".join(texts) + after


def _overlap(form: Form, fields: Fields) -> bool:
    """Whether C lies partly in D, which the assembler refuses where D has more than four registers."""
    width = next(operand.width for operand in form.operands if operand.field == "vdst")
    added = fields["src2"] - VECTOR
    apart = abs(added - fields["vdst"])
    return width > _SMALL and added >= 0 and 0 < apart < width


def _operand(form: Form, operand: Operand, fields: Fields) -> str:
    code = fields.take(operand.field)
    if operand.field == "vdst":
        accumulator = bool("a" in operand.kinds and fields.take("acc_cd"))
        return registers("a" if accumulator else "v", code, operand.width)
    place = int(operand.field[-1])
    vector = code >= VECTOR
    if place == 2:
        accumulator = vector and "a" in operand.kinds and bool(fields["acc_cd"])
    else:
        accumulator = bool(fields["acc"] >> place & 1)
        if place == 0 or "acc" in fields:
            fields.take("acc")
    if form.mnemonic.endswith("f8f6f4") and place < 2:
        width = _FORMAT_WIDTHS.get(fields["cbsz" if place == 0 else "blgp"], 0)
        if not width:
            raise UnknownCode("a format that is none")
        return source(code, operand.kinds, width, accumulator=accumulator)
    # A constant in double precision is written in full, however many registers the operand has.
    width = 2 if form.mnemonic.endswith("_f64") and not vector else operand.width
    return source(code, operand.kinds, width, accumulator=accumulator)


def _selected(fields: Fields) -> str:
    """Which byte of each scale: always both lists, as leaving one out has not always meant the same."""
    low, high = fields.take("abid"), fields.take("acc")
    fields.irregular = bool(low >> 2)  # bits that mean nothing, and that some encoders set
    lists = ([bits & 1, bits >> 1 & 1, 0] for bits in (low, high))
    return "".join(
        f" {name}:[{','.join(map(str, bits))}]" for name, bits in zip(("op_sel", "op_sel_hi"), lists, strict=True)
    )


def scaled_operands(form: Form, scales: Fields, fields: Fields) -> str:
    """Return operands and modifiers of a matrix instruction with the word of scales before it."""
    if fields.take("abid") != _SCALED:
        raise UnknownCode("a word of scales before an instruction without")
    texts = []
    for operand in form.operands:
        if operand.field.startswith("scale"):
            code = scales.take(f"src{operand.field[-1]}")
            texts.append(source(code, operand.kinds, operand.width))
        else:
            texts.append(_operand(form, operand, fields))
    after = _selected(scales)
    for name in ("cbsz", "blgp"):
        value = fields.take(name)
        after += f" {name}:{value}" if value else ""
    fields.irregular = _overlap(form, fields)
    return ", ".join(texts) + after
