"""Tokens of PTX text, with their position, and the comments that carry meaning.

Comments are dropped, except those that begin with ``//@``: a trailing one is the provenance of the instruction on its
line, one that stands alone is an annotation of the kernel it stands in (roles, the shared-memory map).
Source: PTX ISA, section 4 (Syntax).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tilekit.emulator.core.errors import PtxSyntaxError

_TOKEN = re.compile(
    r"""
    [ \t\r\f]*
    (?:
      (?P<newline>\n)
    | (?P<note>//@[^\n\0]*)
    | (?P<comment>//[^\n\0]*|/\*.*?\*/)
    | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    | (?P<word>[A-Za-z_$%][A-Za-z0-9_$]*)
    | (?P<dotted>\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[{}()\[\],;:|!@<>=+\-*/~&^?])
    | \Z
    )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One token: its kind (``word``, ``dotted``, ``number``, ``string``, ``mark``, ``end``), text and place."""

    kind: str
    text: str
    line: int
    column: int
    start: int
    end: int


@dataclass(slots=True)
class TokenStream:
    """The tokens of a module, and its ``//@`` notes."""

    text: str
    tokens: list[Token]
    provenance: dict[int, str]
    """Line number to the note that trails an instruction on that line."""
    annotations: list[tuple[int, str]]
    """(line, text without ``//@``) of each note that stands on a line of its own."""


def tokenize(text: str) -> TokenStream:
    """Split PTX text into tokens.

    Raises
    ------
    PtxSyntaxError
        At the first character that begins no token.
    """
    tokens: list[Token] = []
    provenance: dict[int, str] = {}
    annotations: list[tuple[int, str]] = []
    line, line_start, position, size = 1, 0, 0, len(text)
    last_token_line = 0
    match_at = _TOKEN.match
    while position < size:
        match = match_at(text, position)
        if match is None:
            position = size - len(text[position:].lstrip(" \t\r\f"))
            if text[position] == "\0" and not text[position:].strip("\0\n "):
                break  # compilers hand over C strings with their terminator
            column = position - line_start + 1
            raise PtxSyntaxError(f"unexpected character {text[position]!r}", line=line, column=column)
        kind = match.lastgroup
        if kind is None:
            break  # what was left is space
        position, end = match.span(kind)
        if kind == "newline":
            line += 1
            line_start = end
        elif kind == "comment":
            newlines = text.count("\n", position, end)
            if newlines:
                line += newlines
                line_start = text.rfind("\n", position, end) + 1
        elif kind == "note":
            body = text[position + 3 : end].strip()
            if last_token_line == line:
                provenance[line] = body
            else:
                annotations.append((line, body))
        else:
            tokens.append(Token(kind, text[position:end], line, position - line_start + 1, position, end))
            last_token_line = line
        position = end
    tokens.append(Token("end", "", line, 1, size, size))
    return TokenStream(text, tokens, provenance, annotations)
