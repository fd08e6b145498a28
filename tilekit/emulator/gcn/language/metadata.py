"""The metadata of a module: the part of YAML that compilers write between ``.amdgpu_metadata`` and its end."""

from __future__ import annotations

import re
from typing import Any

from tilekit.emulator.gcn.errors import GcnSyntaxError

__all__ = ["read_metadata"]

_TOKEN = re.compile(r"""\s*(\[|\]|\{|\}|,|:(?=\s)|'[^']*'|"[^"]*"|(?:[^\s,:\[\]{}]|:(?!\s)|\s(?=[^\s,:\[\]{}]))+)""")


def read_metadata(lines: list[str], first_line: int) -> Any:
    """Return the value of a document of nested maps and lists, indented by blanks or in braces and brackets.

    Raises
    ------
    GcnSyntaxError
        Where a line is neither ``key: value`` nor an item of a list, or braces or brackets do not close.
    """
    rows = []
    for number, line in enumerate(lines, first_line):
        stripped = line.strip()
        if stripped and stripped not in ("---", "...") and not stripped.startswith("#"):
            rows.append((len(line) - len(line.lstrip()), stripped, number))
    value, rest = _value(rows, 0) if rows else ({}, 0)
    if rest < len(rows):
        raise GcnSyntaxError("metadata: this line fits nowhere", line=rows[rest][2], column=rows[rest][0] + 1)
    return value


Rows = list[tuple[int, str, int]]


def _value(rows: Rows, at: int) -> tuple[Any, int]:
    """The value whose first line is row `at`, and the row behind it."""
    indent = rows[at][0]
    if rows[at][1].startswith("-"):
        items = []
        while at < len(rows) and rows[at][0] == indent and rows[at][1].startswith("-"):
            _, text, number = rows[at]
            rest = text[1:].lstrip()
            if not rest:
                item, at = _value(rows, at + 1)
            elif _is_entry(rest):
                rows[at] = (indent + len(text) - len(rest), rest, number)
                item, at = _value(rows, at)
            else:
                item, at = _inline(rest, number), at + 1
            items.append(item)
        return items, at
    found: dict[str, Any] = {}
    while at < len(rows) and rows[at][0] == indent and not rows[at][1].startswith("- "):
        _, text, number = rows[at]
        key, separator, rest = text.partition(":")
        if not separator:
            raise GcnSyntaxError("metadata: expected 'key: value'", line=number, column=indent + 1)
        rest = rest.strip()
        at += 1
        if rest:
            found[_scalar(key.strip())] = _inline(rest, number)
        elif at < len(rows) and (rows[at][0] > indent or (rows[at][0] == indent and rows[at][1].startswith("-"))):
            found[_scalar(key.strip())], at = _value(rows, at)
        else:
            found[_scalar(key.strip())] = None
    return found, at


def _is_entry(text: str) -> bool:
    key, separator, rest = text.partition(":")
    return bool(separator) and (not rest or rest[0] == " ") and not key.startswith(("'", '"', "[", "{"))


def _inline(text: str, line: int) -> Any:
    """A value on one line: a scalar, or maps and lists in braces and brackets."""
    if text[0] not in "[{":
        return _scalar(text)
    tokens = _TOKEN.findall(text)
    value, rest = _bracketed(tokens, 0)
    if rest != len(tokens):
        raise GcnSyntaxError(f"metadata: '{text[0]}' does not close at the end of the line", line=line, column=1)
    return value


def _bracketed(tokens: list[str], at: int) -> tuple[Any, int]:
    """The value that begins at a token, and the token behind; behind all of them where something is missing."""
    if tokens[at] not in ("[", "{"):
        return _scalar(tokens[at].strip()), at + 1
    closing = "]" if tokens[at] == "[" else "}"
    items: list[Any] = []
    entries: dict[Any, Any] = {}
    at += 1
    while at < len(tokens) and tokens[at] != closing:
        if tokens[at] == ",":
            at += 1
            continue
        value, at = _bracketed(tokens, at)
        if closing == "}":
            if at + 1 >= len(tokens) or tokens[at] != ":":
                return None, len(tokens) + 1
            entries[value], at = _bracketed(tokens, at + 1)
        items.append(value)
    return (entries if closing == "}" else items), at + 1


def _scalar(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return text
