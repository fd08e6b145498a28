"""Numbers and constant expressions of PTX text (PTX ISA, section 4.5)."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from .lexer import Token
from .syntax import Immediate

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
    value, kind = _conditional(tokens)
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


def _conditional(tokens: _Tokens) -> _Value:
    value = _binary(tokens, _unary(tokens), 0)
    if not tokens.accept("?"):
        return value
    first = _conditional(tokens)
    tokens.expect(":")
    second = _conditional(tokens)
    return _as(first if value[0] else second, _common(first[1], second[1]))


def _binary(tokens: _Tokens, left: _Value, weakest: int) -> _Value:
    """`left` and the operations behind it that bind at least as strongly as the level `weakest`."""
    while (level := _LEVEL.get(tokens.peek(), -1)) >= weakest:
        token = tokens.next()
        right = _binary(tokens, _unary(tokens), level + 1)
        left = _applied(tokens, token, left, right)
    return left


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


def _unary(tokens: _Tokens) -> _Value:
    name = tokens.peek()
    if name == "(":
        tokens.next()
        if tokens.peek() in (".s64", ".u64"):
            kind = tokens.next().text[1:]
            tokens.expect(")")
            return _as(_unary(tokens), kind)
        value = _conditional(tokens)
        tokens.expect(")")
        return value
    if name not in CONSTANT_STARTS:
        return _literal(tokens)
    token = tokens.next()
    number, kind = _unary(tokens)
    if name == "!":
        return int(not number), "s64"
    if name == "-":
        return (int(number) ^ 1 << 31, kind) if kind == "f32" else _as((-number, kind), kind)
    if name == "~":
        if kind in ("f32", "f64"):
            tokens.fail("~ takes an integer", token)
        return _as((~int(number), kind), kind)
    return number, kind


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
        return struct.unpack("<d", value.to_bytes(8, "little"))[0], kind
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
    bits = int(value[0]) & (1 << 64) - 1
    return (bits - (1 << 64) if kind == "s64" and bits >> 63 else bits), kind
