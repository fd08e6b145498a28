"""Operands and modifiers of instructions, as LLVM's assembler takes them."""

from __future__ import annotations

import re
from typing import Any

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.gcn.language.expressions import Reader
from tilekit.emulator.gcn.language.syntax import NAMED_REGISTERS, Call, Constant, Off, Operand, Register, Symbol

__all__ = ["read_operands"]

_ONE = re.compile(r"(ttmp|[sva])(\d+)$")
_FILES = {"s": 102, "v": 512, "a": 256, "ttmp": 16}
"""Registers of each file; ``v`` may go on into those that accumulators use."""
_TTMP = 108
_CALLS = {"gpr_idx", "hwreg", "sendmsg", "vmcnt", "lgkmcnt", "expcnt", "depctr"}
_TRUNCATING = {f"{name}_sat" for name in ("vmcnt", "lgkmcnt", "expcnt")}
FLAGS = {
    "offen", "idxen", "addr64", "glc", "slc", "dlc", "sc0", "sc1", "nt", "lds", "tfe", "gds", "clamp", "off",
    "lwe", "fi",
}  # fmt: skip
"""Modifiers without a value."""
_DPP_CONTROLS = {"row_mirror", "row_half_mirror"}


def read_operands(reader: Reader, name: str) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    """Read what follows a mnemonic: operands, separated by commas, then modifiers.

    Raises
    ------
    GcnSyntaxError
        At what is neither.
    """
    operands: list[Operand] = []
    modifiers: dict[str, Any] = {}
    if name == "s_waitcnt":
        return _counters(reader), modifiers
    while not reader.done:
        if _is_modifier(reader, bool(operands) or not name.startswith("s_")):
            _read_modifier(reader, modifiers)
            reader.accept(",")
            continue
        if modifiers:
            raise reader.error(f"unknown modifier '{reader.peek().text}'")
        operands.append(_operand(reader))
        reader.accept(",")  # LLVM's assembler does without
    return tuple(operands), modifiers


def _counters(reader: Reader) -> tuple[Operand, ...]:
    """The operands of ``s_waitcnt``: counters, joined by blanks, commas or ampersands, or one number."""
    found: list[Operand] = []
    while not reader.done:
        token = reader.peek()
        if token.kind == "word" and token.text.removesuffix("_sat") in ("vmcnt", "lgkmcnt", "expcnt"):
            reader.take()
            reader.expect("(")
            value = reader.number()
            reader.expect(")")
            most = 63 if token.text.startswith("vmcnt") else 15 if token.text.startswith("lgkm") else 7
            if value > most and token.text in _TRUNCATING:
                value = most
            if not 0 <= value <= most:
                raise reader.error(f"{token.text}({value}) is not allowed; legal: 0 to {most}")
            found.append(Call(token.text.removesuffix("_sat"), (value,)))
        else:
            found.append(Constant(reader.number()))
        if not reader.accept(","):
            reader.accept("&")
    return tuple(found)


def _is_modifier(reader: Reader, after: bool) -> bool:
    token, then = reader.peek(), reader.peek(1)
    if token.kind != "word":
        return False
    if then.text == ":" and then.kind == "sign":
        return True
    return (after and token.text in FLAGS and token.text != "off") or token.text in _DPP_CONTROLS


def _read_modifier(reader: Reader, modifiers: dict[str, Any]) -> None:
    name = reader.take().text
    if name in modifiers:
        reader.at -= 1
        raise reader.error(f"modifier '{name}' is given twice")
    if not reader.accept(":"):
        modifiers[name] = True
        return
    if reader.accept("["):
        values = []
        while not reader.accept("]"):
            values.append(reader.number())
            if not reader.accept(",") and reader.peek().text != "]":
                reader.expect("]")
        modifiers[name] = values
    elif reader.peek().kind == "word" and reader.peek().text not in reader.constants:
        word = reader.take().text
        if reader.accept("("):
            arguments: list[int | str] = []
            while not reader.accept(")"):
                token = reader.peek()
                if token.kind in ("string", "word") and token.text not in reader.constants:
                    arguments.append(reader.take().text.strip('"'))
                else:
                    arguments.append(reader.number())
                if not reader.accept(",") and reader.peek().text != ")":
                    reader.expect(")")
            modifiers[name] = Call(word, tuple(arguments))
        else:
            modifiers[name] = word
    else:
        modifiers[name] = reader.number()


def _operand(reader: Reader) -> Operand:
    token = reader.peek()
    if token.kind == "sign" and token.text == "-":
        then = reader.peek(1)
        if then.kind == "word" or then.text == "|":
            reader.take()
            return _with(reader, _operand(reader), negate=True)
        if then.kind == "float":
            reader.take()
            return Constant(-float(reader.take().text))
    if token.kind == "sign" and token.text == "|":
        reader.take()
        inner = _operand(reader)
        reader.expect("|")
        return _with(reader, inner, absolute=True)
    if token.kind == "sign" and token.text == "[":
        return _list(reader)
    if token.kind == "float":
        reader.take()
        return Constant(float(token.text))
    if token.kind == "word":
        found = _word(reader)
        if found is not None:
            return found
    return Constant(reader.number())


def _word(reader: Reader) -> Operand | None:
    token, then = reader.peek(), reader.peek(1)
    text = token.text
    if text in NAMED_REGISTERS:
        reader.take()
        return Register("s", *NAMED_REGISTERS[text])
    if text == "off":
        reader.take()
        return Off()
    if text in _FILES and then.text == "[":
        reader.take()
        return _range(reader, text)
    match = _ONE.match(text)
    if match:
        reader.take()
        return _register(reader, match[1], int(match[2]), 1, reader.at - 1)
    if text in ("neg", "abs", "sext", "lit") and then.text == "(":
        reader.take()
        reader.take()
        inner = _operand(reader)
        reader.expect(")")
        if text == "lit":
            return inner
        return _with(reader, inner, **{{"neg": "negate", "abs": "absolute", "sext": "extend"}[text]: True})
    if text in _CALLS and then.text == "(":
        return _call(reader)
    if text in reader.constants:
        return None
    reader.take()
    name, _, part = text.partition("@")
    addend = 0
    while reader.peek().text in ("+", "-"):
        sign = reader.take().text
        addend += reader.number(5) if sign == "+" else -reader.number(5)
    return Symbol(name, addend, part)


def _call(reader: Reader) -> Call:
    name = reader.take().text
    reader.expect("(")
    arguments: list[int | str] = []
    while not reader.accept(")"):
        token = reader.peek()
        if token.kind == "word" and token.text not in reader.constants:
            arguments.append(reader.take().text)
        else:
            arguments.append(reader.number())
        if not reader.accept(",") and reader.peek().text != ")":
            reader.expect(")")
    return Call(name, tuple(arguments))


def _range(reader: Reader, file: str) -> Register:
    start = reader.at - 1
    reader.expect("[")
    first = reader.number()
    last = reader.number() if reader.accept(":") else first
    reader.expect("]")
    if last < first:
        reader.at = start
        raise reader.error(f"{file}[{first}:{last}]: the last register comes before the first")
    return _register(reader, file, first, last - first + 1, start)


def _register(reader: Reader, file: str, first: int, count: int, start: int) -> Register:
    if first < 0 or first + count > _FILES[file]:
        reader.at = start
        raise reader.error(f"{file}{first + count - 1} does not exist; legal: {file}0 to {file}{_FILES[file] - 1}")
    if file == "ttmp":
        return Register("s", _TTMP + first, count)
    return Register(file, first, count)  # type: ignore[arg-type]


def _list(reader: Reader) -> Register:
    """Registers one by one in brackets, which must follow each other."""
    reader.expect("[")
    parts = []
    while not reader.accept("]"):
        part = _operand(reader)
        if not isinstance(part, Register):
            raise reader.error("a list of registers has something else in it")
        parts.append(part)
        if not reader.accept(",") and reader.peek().text != "]":
            reader.expect("]")
    if not parts:
        raise reader.error("an empty list of registers")
    first = parts[0]
    for place, part in enumerate(parts):
        if part.file != first.file or part.first != first.first + place or part.count != 1:
            raise reader.error("the registers of a list must follow each other")
    return Register(first.file, first.first, len(parts))


def _with(reader: Reader, operand: Operand, **changes: bool) -> Operand:
    if isinstance(operand, Constant):
        if operand.value == 0 and "extend" not in changes:
            return Constant(-0.0 if changes.get("negate") else 0.0)
        if not operand.floating:
            reader.at -= 1
            raise UnsupportedInstruction(
                "a sign around a whole number, whose bits it would change, is not executed", line=reader.line,
                column=reader.column, form="",
            )  # fmt: skip
        value = operand.value
        if changes.get("absolute"):
            value = abs(value)
        return Constant(-value if changes.get("negate") else value)
    if isinstance(operand, Register):
        fields = {"negate": operand.negate, "absolute": operand.absolute, "extend": operand.extend} | changes
        return Register(operand.file, operand.first, operand.count, **fields)
    return operand
