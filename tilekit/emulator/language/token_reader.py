"""Reading tokens one after another, with errors that say where."""

from __future__ import annotations

from typing import NoReturn

from ..errors import PtxSyntaxError
from .constants import constant, constant_expression
from .lexer import Token, TokenStream
from .syntax import Immediate


class TokenReader:
    """A position in the tokens of a module."""

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream
        self.tokens = stream.tokens
        self.at = 0

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise for the given token, or the next one."""
        token = token or self.tokens[self.at]
        raise PtxSyntaxError(message, line=token.line, column=token.column)

    def next(self) -> Token:
        """Take the next token."""
        token = self.tokens[self.at]
        if token.kind == "end":
            self.fail("the text ends inside a statement")
        self.at += 1
        return token

    def peek(self) -> str:
        """Text of the next token."""
        return self.tokens[self.at].text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.tokens[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Take the next token, which must be this one."""
        token = self.tokens[self.at]
        if token.text != text:
            self.fail(f"expected {text!r}, found {token.text or 'the end of the text'!r}")
        self.at += 1
        return token

    def word(self, what: str) -> Token:
        """Take a name."""
        token = self.next()
        if token.kind != "word":
            self.fail(f"expected {what}, found {token.text!r}", token)
        return token

    def integer(self) -> int:
        """Take a constant expression of integers."""
        return constant_expression(self)

    def skip_line(self) -> None:
        """Drop what is left of the line."""
        line = self.tokens[self.at].line
        while self.tokens[self.at].line == line and self.tokens[self.at].kind != "end":
            self.at += 1

    def skip_braces(self) -> None:
        """Drop a block in braces."""
        self.expect("{")
        depth = 1
        while depth:
            text = self.next().text
            depth += (text == "{") - (text == "}")

    def skip_parentheses(self) -> None:
        """Drop a list in parentheses."""
        self.expect("(")
        depth = 1
        while depth:
            text = self.next().text
            depth += (text == "(") - (text == ")")

    def constant(self) -> Immediate:
        """Take a constant expression, of integers or floating-point numbers."""
        return constant(self)
