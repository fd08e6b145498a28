"""Numbers and constant expressions of PTX text (PTX ISA, section 4.5)."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from tilekit.emulator.ptx.language.lexer import Token
from tilekit.emulator.ptx.language.syntax import Immediate

_Number = int | float
_Value = tuple[_Number, str]
"""A value while an expression is computed, and its type: ``s64``, ``u64``, ``f64``, or ``f32`` for a bit pattern."""


def _quotient(a: _Number, b: _Number) -> _Number:
    if isinstance(a, float):
        return a / b
    return abs(a) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: _Number, b: _Number) -> _Number:
    return abs(int(a)) % abs(int(b)) * (-1 if a < 0 else 1)


def _shifted(a: _Number, count: _Number) -> int:
    """Shifted to the left, or to the right by a negative count."""
    return int(a) << min(int(count), 64) if count >= 0 else int(a) >> min(-int(count), 64)


_LEVELS: tuple[dict[str, Callable[[Any, Any], _Number]], ...] = (
    {"||": lambda a, b: bool(a) or bool(b)},
    {"&&": lambda a, b: bool(a) and bool(b)},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": _shifted, ">>": lambda a, b: _shifted(a, -b)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _quotient, "%": _remainder},
)
"""Binary operators and what they compute, those that bind weakest first (PTX ISA, operator precedence)."""

_LEVEL = {name: level for level, names in enumerate(_LEVELS) for name in names}
_TRUTH = {name for level in (*_LEVELS[:2], *_LEVELS[5:7]) for name in level}
_OF_INTEGERS = ("|", "^", "&", "<<", ">>", "%")
_GO_ON = {*_LEVEL, "?"}
"""What goes on with an expression behind a value."""
CONSTANT_STARTS = ("+", "-", "!", "~", "(")
"""What a constant expression may begin with, besides a number."""


class _Tokens(Protocol):
    def next(self) -> Token: ...
    def peek(self) -> str: ...
    def accept(self, text: str) -> bool: ...
    def expect(self, text: str) -> Token: ...
    def fail(self, message: str, token: Token | None = None) -> NoReturn: ...


def parse_number(text: str) -> tuple[int, str]:
    """Value and kind of a literal: (integer, ``int``) or (bit pattern, ``f32`` | ``f64``)."""
    lower = text.lower()
    if lower.startswith("0f") and len(text) == 10:
        return int(text[2:], 16), "f32"
    if lower.startswith("0d"):
        return int(text[2:], 16), "f64"
    if lower.startswith("0x"):
        return int(text.rstrip("U"), 16), "int"
    if lower.startswith("0b"):
        return int(text.rstrip("U")[2:], 2), "int"
    if "." in text or "e" in lower:
        return int.from_bytes(struct.pack("<d", float(text)), "little"), "f64"
    digits = text.rstrip("U")
    return int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10), "int"


def constant(tokens: _Tokens) -> Immediate:
    """A constant expression: C's operators over 64-bit integers, or over double precision (PTX ISA 4.5.4, 4.5.5)."""
    value, kind = _expression(tokens)
    if kind == "f64":
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), "f64")
    return Immediate(int(value), "f32" if kind == "f32" else "int")


def constant_expression(tokens: _Tokens) -> int:
    """A constant expression of integers, as used in sizes, alignments and offsets."""
    first = tokens.peek()
    found = constant(tokens)
    if found.kind != "int":
        tokens.fail(f"expected an integer, found {first!r}")
    return found.value


def _expression(tokens: _Tokens) -> _Value:
    """An expression, by precedence climbing with stacks of its own: texts nest as deep as they like."""
    values: list[_Value] = []
    pending: list[Token] = []
    kinds: list[str] = []
    """Of each pending token: ``(``, ``unary``, a type that is cast to, ``binary``, ``?`` or ``:``."""
    while True:
        name = tokens.peek()
        if name in CONSTANT_STARTS:
            token = tokens.next()
            kind = "(" if name == "(" else "unary"
            if name == "(" and tokens.peek() in (".s64", ".u64"):
                kind = tokens.next().text[1:]
                tokens.expect(")")
            pending.append(token)
            kinds.append(kind)
            continue
        values.append(_literal(tokens))
        if not pending and tokens.peek() not in _GO_ON:
            return values[0]
        while True:  # behind a value
            name = tokens.peek()
            level = _LEVEL.get(name, -1)
            _reduce(tokens, values, pending, kinds, max(level, 0))
            if level >= 0:
                pending.append(tokens.next())
                kinds.append("binary")
                break
            _close_conditionals(values, pending, kinds, name == "?")
            top = kinds[-1] if kinds else ""
            if name == "?":
                pending.append(tokens.next())
                kinds.append("?")
                break
            if name == ":" and top == "?":
                tokens.next()
                kinds[-1] = ":"
                break
            if not kinds:
                return values[0]
            tokens.expect({"?": ":", "(": ")"}[top])
            pending.pop()
            kinds.pop()


def _reduce(tokens: _Tokens, values: list[_Value], pending: list[Token], kinds: list[str], weakest: int) -> None:
    """Compute what binds at least as strongly as the level `weakest`."""
    while kinds and kinds[-1] not in ("(", "?", ":"):
        if kinds[-1] == "binary" and _LEVEL[pending[-1].text] < weakest:
            return
        kind, token = kinds.pop(), pending.pop()
        if kind == "binary":
            right = values.pop()
            values[-1] = _applied(tokens, token, values[-1], right)
        elif kind == "unary":
            values[-1] = _negated(tokens, token, values[-1])
        else:
            values[-1] = _as(values[-1], kind)


def _close_conditionals(values: list[_Value], pending: list[Token], kinds: list[str], opens: bool) -> None:
    """Compute the ``a ? b : c`` that end here: those further in first, and none before another ``?``."""
    while not opens and kinds and kinds[-1] == ":":
        kinds.pop()
        pending.pop()
        second, first, condition = values.pop(), values.pop(), values.pop()
        values.append(_as(first if condition[0] else second, _common(first[1], second[1])))


def _applied(tokens: _Tokens, token: Token, left: _Value, right: _Value) -> _Value:
    name = token.text
    kinds = left[1], right[1]
    if "f32" in kinds:
        tokens.fail("a number written as 0f… takes no operators", token)
    if "f64" in kinds and name in _OF_INTEGERS:
        tokens.fail(f"{name} takes integers", token)
    shift = name in ("<<", ">>")
    kind = kinds[0] if shift else _common(*kinds)
    first = _as(left, kind)[0]
    second = right[0] if shift else _as(right, kind)[0]
    if name in ("/", "%") and not second:
        tokens.fail(f"{name} by zero", token)
    result = _LEVELS[_LEVEL[name]][name](first, second)
    return (int(result), "s64") if name in _TRUTH else _as((result, kind), kind)


def _negated(tokens: _Tokens, token: Token, value: _Value) -> _Value:
    """The value of a sign, ``!`` or ``~`` and its operand."""
    number, kind = value
    match token.text:
        case "!":
            return int(not number), "s64"
        case "-":
            return (int(number) ^ 1 << 31, kind) if kind == "f32" else _as((-number, kind), kind)
        case "~":
            if kind in ("f32", "f64"):
                tokens.fail("~ takes an integer", token)
            return _as((~int(number), kind), kind)
    return value


def _literal(tokens: _Tokens) -> _Value:
    token = tokens.next()
    if token.text == "WARP_SZ":
        return 32, "s64"
    if token.kind != "number":
        tokens.fail(f"expected a number, found {token.text!r}", token)
    try:
        value, kind = parse_number(token.text)
    except ValueError:
        tokens.fail(f"{token.text} is no number: one that begins with 0 is octal, with digits up to 7", token)
    if kind == "f64":
        number = struct.unpack("<d", value.to_bytes(8, "little"))[0]
        if math.isinf(number) and token.text[1:2] not in ("d", "D"):
            tokens.fail(f"{token.text} is larger than double precision", token)
        return number, kind
    if kind == "f32":
        return value, kind
    if value >> 64:
        tokens.fail(f"{token.text} has more than 64 bits", token)
    return value, "u64" if token.text.endswith("U") or value >> 63 else "s64"


def _common(first: str, second: str) -> str:
    """The type that C's usual conversions give two operands."""
    return "f64" if "f64" in (first, second) else "u64" if "u64" in (first, second) else "s64"


def _as(value: _Value, kind: str) -> _Value:
    """A value in another type, or brought back into the range of its own."""
    if kind == "f64":
        return float(value[0]), kind
    number = value[0]
    whole = int(number) if math.isfinite(number) else 0
    bits = whole & (1 << 64) - 1
    return (bits - (1 << 64) if kind == "s64" and bits >> 63 else bits), kind
