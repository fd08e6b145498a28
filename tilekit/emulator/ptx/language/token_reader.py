"""Reading tokens one after another, with errors that say where."""

from __future__ import annotations

from typing import NoReturn

from tilekit.emulator.core.errors import PtxSyntaxError
from tilekit.emulator.ptx.language.constants import constant, constant_expression, parse_number
from tilekit.emulator.ptx.language.lexer import Token, TokenStream
from tilekit.emulator.ptx.language.syntax import Immediate

LINKAGE = (".visible", ".extern", ".weak", ".common")
_MODULE_STATEMENTS = {*LINKAGE, ".entry", ".func", ".global", ".const", ".shared", ".alias", ".file", ".section"}
_NO_NAMES = ("_", "$", "%", "WARP_SZ")


class TokenReader:
    """A position in the tokens of a module."""

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream
        self.tokens = stream.tokens
        self.at = 0
        self.inside_function = False

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise for the given token, or the next one."""
        raise self.error(message, token)

    def error(self, message: str, token: Token | None = None) -> PtxSyntaxError:
        """What is wrong, at the given token or the next one."""
        token = token or self.tokens[self.at]
        return PtxSyntaxError(message, line=token.line, column=token.column)

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

    def name(self, what: str) -> Token:
        """Take a name that is being declared."""
        token = self.word(what)
        if token.text in _NO_NAMES:
            self.fail(f"{token.text} is no name: expected {what}", token)
        return token

    def integer(self) -> int:
        """Take a constant expression of integers."""
        return constant_expression(self)

    def literal(self, what: str, bits: int = 64) -> int:
        """Take an integer that stands by itself: no sign, no operators."""
        token = self.next()
        kind = ""
        if token.kind == "number":
            try:
                value, kind = parse_number(token.text)
            except ValueError:
                self.fail(f"{token.text} is no number: one that begins with 0 is octal, with digits up to 7", token)
        if kind != "int":
            self.fail(f"expected {what}, a whole number without sign or operators, found {token.text!r}", token)
        if value >> bits:
            self.fail(f"{token.text} has more than {bits} bits", token)
        return value

    def pragma(self) -> None:
        """Take ``.pragma "nounroll", …;``."""
        self.expect(".pragma")
        while True:
            token = self.next()
            if token.kind != "string":
                self.fail(f'expected a pragma such as "nounroll", found {token.text!r}', token)
            if not self.accept(","):
                break
        self.expect(";")

    def file(self) -> None:
        """Take ``.file 1 "name", 3, 4``."""
        self.expect(".file")
        self.literal("the number of a file")
        token = self.next()
        if token.kind != "string":
            self.fail(f"expected a file's name in quotes, found {token.text!r}", token)
        while self.accept(","):
            self.literal("a time stamp or a size")

    def starts_module_statement(self) -> bool:
        """Whether the next token begins another function or variable."""
        return self.peek() in _MODULE_STATEMENTS

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
