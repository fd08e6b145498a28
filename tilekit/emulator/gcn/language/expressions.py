"""Expressions of the assembler: whole numbers, symbols with a value, and the usual operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilekit.emulator.gcn.errors import GcnSyntaxError
from tilekit.emulator.gcn.language.lexer import Token

__all__ = ["Reader"]

_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b},
    {
        "==": lambda a, b: -int(a == b),
        "!=": lambda a, b: -int(a != b),
        "<": lambda a, b: -int(a < b),
        ">": lambda a, b: -int(a > b),
        "<=": lambda a, b: -int(a <= b),
        ">=": lambda a, b: -int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: int(a / b) if abs(a) < 1 << 52 else a // b,
        "%": lambda a, b: a - b * int(a / b),
        "<<": lambda a, b: a << b,
        ">>": lambda a, b: (a & 0xFFFFFFFFFFFFFFFF) >> b,
    },
)
"""Binary operators from the loosest to the tightest, as LLVM's assembler ranks them."""


class Reader:
    """The tokens of one statement, read from the left.

    Parameters
    ----------
    tokens
        Of the statement.
    line, end
        Its line, and the column behind it.
    constants
        Symbols that have a value.
    """

    def __init__(self, tokens: list[Token], line: int, end: int, constants: Mapping[str, int]) -> None:
        self.tokens = tokens
        self.line = line
        self.end = end
        self.constants = constants
        self.at = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.tokens)

    @property
    def column(self) -> int:
        """Column of the next token."""
        return self.end if self.done else self.tokens[self.at].column

    def peek(self, ahead: int = 0) -> Token:
        """Return a token to come; one of kind `end` past the last."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else Token("end", "", self.end)

    def take(self) -> Token:
        """Return the next token and go on."""
        token = self.peek()
        self.at += 1
        return token

    def accept(self, sign: str) -> bool:
        """Go past a sign if it comes next."""
        token = self.peek()
        if token.kind in ("sign", "word") and token.text == sign:
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        """Go past a sign.

        Raises
        ------
        GcnSyntaxError
            If something else comes next.
        """
        if not self.accept(sign):
            given = self.peek().text
            raise self.error(f"expected '{sign}' " + (f"before '{given}'" if given else "at the end of the line"))

    def error(self, message: str, hint: str = "") -> GcnSyntaxError:
        """Return an error at the next token."""
        return GcnSyntaxError(message, line=self.line, column=self.column, hint=hint)

    def number(self, level: int = 0) -> int:
        """Read an expression with a value.

        Raises
        ------
        GcnSyntaxError
            If there is none, or a symbol in it has no value.
        """
        if level == len(_LEVELS):
            return self._unary()
        value = self.number(level + 1)
        while self.peek().kind == "sign" and (operator := _LEVELS[level].get(self.peek().text)):
            sign = self.take().text
            right = self.number(level + 1)
            if sign in ("/", "%") and right == 0:
                raise self.error("division by zero")
            if sign in ("<<", ">>") and not 0 <= right < 64:
                raise self.error(f"a shift by {right}")
            value = operator(value, right)
        return value

    def _unary(self) -> int:
        token = self.peek()
        if token.kind == "number":
            self.take()
            octal = token.text[0] == "0" and token.text.isdigit()
            if octal and not set(token.text) <= set("01234567"):
                self.at -= 1
                raise self.error(f"'{token.text}' begins with 0, as octal numbers do, and is none")
            return int(token.text, 8 if octal else 0)
        if token.kind == "word" and token.text in self.constants:
            self.take()
            return self.constants[token.text]
        for sign, apply in (("-", lambda v: -v), ("+", lambda v: v), ("~", lambda v: ~v), ("!", lambda v: int(not v))):
            if self.accept(sign):
                return apply(self._unary())
        if self.accept("("):
            value = self.number()
            self.expect(")")
            return value
        raise self.error(f"expected a number before '{token.text}'" if token.text else "expected a number")
