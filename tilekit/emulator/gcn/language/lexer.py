"""From a line of assembly text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from tilekit.emulator.gcn.errors import GcnSyntaxError

__all__ = ["Token", "strip_comments", "tokens"]

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]+)
  | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<number>0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)
  | (?P<word>[A-Za-z_.$][A-Za-z0-9_.$@]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<sign><<|>>|==|!=|<=|>=|&&|\|\||[-+*/%&|^~!()\[\],:=<>@#])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token: its kind (``number``, ``float``, ``word``, ``string``, ``sign``), text, and column from 1."""

    kind: str
    text: str
    column: int


def tokens(text: str, line: int, column: int = 1) -> list[Token]:
    """Return the tokens of a line without its comments; `column` is that of its first character.

    Raises
    ------
    GcnSyntaxError
        At a character that begins no token.
    """
    found = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise GcnSyntaxError(f"unexpected character {text[place]!r}", line=line, column=column + place)
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match.group(), column + place))
        place = match.end()
    return found


def strip_comments(lines: list[str]) -> list[tuple[str, str]]:
    """Return each line without its comments, and the text of its ``//`` or ``;`` comment.

    Raises
    ------
    GcnSyntaxError
        Where a ``/*`` is never closed.
    """
    result = []
    inside = 0
    for number, line in enumerate(lines, 1):
        if not inside and "/" not in line and ";" not in line:
            result.append((line.rstrip(), ""))
            continue
        kept, note, place, quoted = [], "", 0, False
        while place < len(line):
            two = line[place : place + 2]
            if inside:
                if two == "*/":
                    inside, place = 0, place + 1
                    kept.append(" ")
                kept.append(" ")
            elif quoted:
                kept.append(line[place])
                if line[place] == "\\":
                    kept.append(line[place + 1 : place + 2])
                    place += 1
                quoted = line[place : place + 1] != '"'
            elif two == "/*":
                inside, place = number, place + 1
                kept.append("  ")
            elif two == "//" or line[place] == ";":
                note = line[place:]
                break
            else:
                quoted = line[place] == '"'
                kept.append(line[place])
            place += 1
        result.append(("".join(kept).rstrip(), note))
    if inside:
        raise GcnSyntaxError("a comment that is never closed", line=inside, column=1, hint="add */")
    return result
