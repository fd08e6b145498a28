"""Numbers and constant expressions of PTX text (PTX ISA, section 4.5)."""

from __future__ import annotations

import struct
from typing import Protocol

from .lexer import Token


class _Tokens(Protocol):
    def next(self) -> Token: ...
    def peek(self) -> str: ...
    def accept(self, text: str) -> bool: ...
    def expect(self, text: str) -> Token: ...
    def fail(self, message: str, token: Token | None = None) -> None: ...


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


def constant_expression(tokens: _Tokens) -> int:
    """``+ - *`` over integers and parentheses, as used in sizes and alignments."""
    value = _product(tokens)
    while tokens.peek() in ("+", "-"):
        if tokens.next().text == "+":
            value += _product(tokens)
        else:
            value -= _product(tokens)
    return value


def _product(tokens: _Tokens) -> int:
    value = _atom(tokens)
    while tokens.accept("*"):
        value *= _atom(tokens)
    return value


def _atom(tokens: _Tokens) -> int:
    if tokens.accept("("):
        value = constant_expression(tokens)
        tokens.expect(")")
        return value
    if tokens.accept("-"):
        return -_atom(tokens)
    token = tokens.next()
    if token.kind == "number":
        value, kind = parse_number(token.text)
        if kind == "int":
            return value
    tokens.fail(f"expected an integer, found {token.text!r}", token)
    return 0
