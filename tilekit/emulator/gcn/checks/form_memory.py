"""Operands and modifiers of memory instructions: LDS, flat addresses with global memory and scratch, buffers."""

from __future__ import annotations

from tilekit.emulator.gcn.binary.instructions.table import Form
from tilekit.emulator.gcn.checks.form_operands import inline, register_reason
from tilekit.emulator.gcn.language.syntax import Constant, Instruction, Off, Operand, Register

__all__ = ["MEMORY", "memory_reason"]

MEMORY = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MUBUF_LDS", "MTBUF")
"""Formats."""
_COHERENCE = ("sc0", "nt", "sc1")
_LAST = {"FLAT": (0, 4095), "GLOBAL": (-4096, 4095), "SCRATCH": (-4096, 4095), "DS": (0, 65535)}


def memory_reason(i: Instruction, format_: str, form: Form) -> str:
    """Why an instruction is not of a form; empty where it is."""
    buffer = format_ in ("MUBUF", "MUBUF_LDS", "MTBUF")
    if buffer and i.flag("lds") != (format_ == "MUBUF_LDS"):
        return "takes other operands with 'lds', or without"
    returned = any(operand.returned for operand in form.operands)
    expected = [operand for operand in form.operands if not operand.returned or i.flag("sc0")]
    parts = {"FLAT": 1, "GLOBAL": 2, "SCRATCH": 2, "DS": 1}.get(format_, 3)
    count = sum(parts if operand.field == "address" else 1 for operand in expected)
    if len(i.operands) != count:
        more = " (a destination goes with sc0)" if returned else ""
        return f"takes {count} operands{more}, and the text has {len(i.operands)}"
    given = list(i.operands)
    last = given.pop() if format_ in ("GLOBAL", "SCRATCH") and any(o.field == "address" for o in expected) else None
    files = set()
    place = 0
    for operand in expected:
        number = place + 1
        if operand.field == "address" and buffer:
            reason, at = _buffer(i, given[place : place + 3])
            number += at
            place += 3
        elif operand.field == "address":
            reason = _address(given[place], last, format_)
            place += 1
        elif operand.field == "addr":
            reason = _vector(given[place], "v", 1)
            place += 1
        else:
            reason = _vector(given[place], "va", operand.width)
            files.add(getattr(given[place], "file", ""))
            place += 1
        if reason:
            return f"operand {number} {reason}"
    if len(files) > 1:
        return "has data in both vector registers and accumulators"
    return _modifiers(i, format_, form)


def _vector(given: Operand, kinds: str, width: int) -> str:
    if not isinstance(given, Register) or given.negate or given.absolute or given.extend:
        return "must be a vector register"
    return register_reason(given, kinds, width)


def _address(given: Operand, base: Operand | None, format_: str) -> str:
    if format_ == "FLAT":
        return _vector(given, "v", 2)
    if isinstance(base, Register):
        wrong = register_reason(base, "s", 2 if format_ == "GLOBAL" else 1, written=True)
        if wrong or base.first in (126, 127) or base.negate or base.absolute:
            return wrong or "has exec as its base"
    elif not isinstance(base, Off):
        return "has a base that is no scalar register, nor 'off'"
    if format_ == "SCRATCH":
        return "" if isinstance(given, Off) else _vector(given, "v", 1)
    return _vector(given, "v", 2 if isinstance(base, Off) else 1)


def _buffer(i: Instruction, given: list[Operand]) -> tuple[str, int]:
    """What is wrong with the three parts of a buffer's address, and with which."""
    width = i.flag("offen") + i.flag("idxen")
    vector, resource, scalar = given
    if width:
        reason = _vector(vector, "v", width)
    else:
        reason = "" if isinstance(vector, Off) else "must be 'off' without offen and idxen"
    if reason:
        return reason, 0
    if not isinstance(resource, Register) or resource.negate or resource.absolute:
        return "must be four scalar registers", 1
    reason = register_reason(resource, "s", 4)
    if reason:
        return reason, 1
    if isinstance(scalar, Register):
        signed = scalar.negate or scalar.absolute or scalar.extend
        return ("cannot have a sign" if signed else register_reason(scalar, "sif", 1)), 2
    return ("" if isinstance(scalar, Constant) and inline(scalar, 32) else "must be a scalar register or inline"), 2


def _modifiers(i: Instruction, format_: str, form: Form) -> str:
    if format_ == "DS":
        allowed = {"offset"} if {"offset", "gds!"} & form.modifiers.keys() else set()
        allowed |= {"offset0", "offset1"} if "offset01" in form.modifiers else set()
        if "gds!" in form.modifiers:
            if not i.flag("gds"):
                return "needs 'gds'"
            allowed.add("gds")
    elif not form.operands:
        allowed = set(_COHERENCE)
    else:
        allowed = {"offset", *_COHERENCE}
        if format_ in ("MUBUF", "MUBUF_LDS", "MTBUF"):
            allowed |= {"offen", "idxen"}
        if format_ == "MUBUF_LDS":
            allowed.add("lds")
        if format_ == "MTBUF":
            allowed.add("format")
    for name, value in i.modifiers.items():
        if name not in allowed:
            return f"does not take '{name}'"
        least, most = (0, 255) if name in ("offset0", "offset1") else _LAST.get(format_, (0, 4095))
        if name.startswith("offset") and not (isinstance(value, int) and value is not True and least <= value <= most):
            return f"{name} must be {least} to {most}"
    return ""
