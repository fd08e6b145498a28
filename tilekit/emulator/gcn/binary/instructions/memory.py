"""Text of the memory formats: DS, FLAT with GLOBAL and SCRATCH, MUBUF and MTBUF."""

from __future__ import annotations

from typing import Final

from tilekit.emulator.gcn.binary.instructions.codes import UnknownCode, registers, scalar
from tilekit.emulator.gcn.binary.instructions.fields import Fields
from tilekit.emulator.gcn.binary.instructions.table import Form

__all__ = ["buffer_operands", "flat_operands", "lds_operands"]

_NO_ADDRESS: Final = 0x7F
_EXEC: Final = 0x7E


def lds_operands(form: Form, fields: Fields) -> str:
    """Return operands and modifiers of DS."""
    letter = "a" if fields.take("acc") else "v"
    texts = []
    global_share = "gds!" in form.modifiers
    for operand in form.operands:
        if operand.field == "addr":
            address = fields.take("addr")
            fields.irregular = global_share and bool(address % 2)
            texts.append(registers("v", address, 1))
        else:
            texts.append(registers(letter, fields.take(operand.field), operand.width))
    if letter == "a" and len(texts) == sum(operand.field == "addr" for operand in form.operands):
        raise UnknownCode("accumulators that are none")
    after = ""
    if form.modifiers.keys() & {"offset", "gds!"}:
        offset = fields.take("offset0") | fields.take("offset1") << 8
        after = f" offset:{offset}" if offset else ""
    elif "offset01" in form.modifiers:
        for name in ("offset0", "offset1"):
            offset = fields.take(name)
            after += f" {name}:{offset}" if offset else ""
    if global_share:
        if not fields.take("gds"):
            raise UnknownCode("an instruction of GDS without its bit")
        after += " gds"
    return ", ".join(texts) + after


def flat_operands(form: Form, fields: Fields, segment: str) -> str:
    """Return operands and modifiers of FLAT, GLOBAL or SCRATCH."""
    letter = "a" if fields.take("acc") else "v"
    texts = []
    data = False
    for operand in form.operands:
        if operand.field == "address":
            texts += _flat_address(fields, segment)
        elif not operand.returned or fields["sc0"]:
            data = True
            texts.append(registers(letter, fields.take(operand.field), operand.width))
    if segment != "FLAT":  # the address's second part stands after the data
        second = next(i for i, text in enumerate(texts) if text.startswith("+"))
        texts.append(texts.pop(second)[1:])
    if letter == "a" and not data:
        raise UnknownCode("accumulators that are none")
    # LLVM has no such form, or makes other bytes of it.
    if letter == "a" and fields["sc0"]:
        fields.irregular = "no_acc_returned" in form.modifiers or bool("no_acc_sc1" in form.modifiers and fields["sc1"])
    offset = fields.take("offset")
    if segment == "FLAT":
        if offset >= 0x1000:
            raise UnknownCode("a negative offset of a flat address")
    else:
        offset -= (offset & 0x1000) << 1
    fields.take("seg")
    after = f" offset:{offset}" if offset else ""
    return ", ".join(texts) + after + fields.flag("sc0") + fields.flag("nt") + fields.flag("sc1")


def _flat_address(fields: Fields, segment: str) -> list[str]:
    """Return the parts of an address; the one that stands after the data begins with a plus sign."""
    if segment == "FLAT":
        return [registers("v", fields.take("addr"), 2)]
    base = fields.take("saddr")
    if base == _EXEC:
        raise UnknownCode("exec as an address")
    added = "+off" if base == _NO_ADDRESS else "+" + scalar(base, 2 if segment == "GLOBAL" else 1)
    if segment == "SCRATCH":
        if not fields.take("lds"):
            return ["off", added]
        return [registers("v", fields.take("addr"), 1), added]
    return [registers("v", fields.take("addr"), 2 if base == _NO_ADDRESS else 1), added]


def buffer_operands(form: Form, fields: Fields, *, lds: bool) -> str:
    """Return operands and modifiers of MUBUF or MTBUF."""
    if not form.operands:
        return (fields.flag("sc0") + fields.flag("nt") + fields.flag("sc1")).lstrip()
    letter = "a" if fields.take("acc") else "v"
    if letter == "a" and lds:
        raise UnknownCode("accumulators that are none")
    texts = []
    for operand in form.operands:
        if operand.field == "address":
            texts += _buffer_address(fields)
        else:
            texts.append(registers(letter, fields.take(operand.field), operand.width))
    after = ""
    if "dfmt" in fields:
        after = f" format:{fields.take('dfmt') | fields.take('nfmt') << 4}"
    after += fields.flag("idxen") + fields.flag("offen")
    offset = fields.take("offset")
    after += f" offset:{offset}" if offset else ""
    after += fields.flag("sc0") + fields.flag("nt") + fields.flag("sc1")
    if lds:
        after += fields.flag("lds")
    return ", ".join(texts) + after


def _buffer_address(fields: Fields) -> list[str]:
    parts = fields["idxen"] + fields["offen"]
    address = registers("v", fields.take("vaddr"), parts) if parts else "off"
    resource = scalar(4 * fields.take("srsrc"), 4)
    return [address, resource, scalar(fields.take("soffset"), 1, kinds="sif")]
