"""The metadata of a module: the part of YAML that compilers write between ``.amdgpu_metadata`` and its end."""

from __future__ import annotations

from typing import Any

from tilekit.emulator.gcn.errors import GcnSyntaxError

__all__ = ["read_metadata"]


def read_metadata(lines: list[str], first_line: int) -> Any:
    """Return the value of a document of nested maps and lists, indented by blanks.

    Raises
    ------
    GcnSyntaxError
        Where a line is neither ``key: value`` nor an item of a list.
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
                item, at = _scalar(rest), at + 1
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
            found[_scalar(key.strip())] = _scalar(rest)
        elif at < len(rows) and (rows[at][0] > indent or (rows[at][0] == indent and rows[at][1].startswith("-"))):
            found[_scalar(key.strip())], at = _value(rows, at)
        else:
            found[_scalar(key.strip())] = None
    return found, at


def _is_entry(text: str) -> bool:
    key, separator, rest = text.partition(":")
    return bool(separator) and (not rest or rest[0] == " ") and not key.startswith(("'", '"', "["))


def _scalar(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return text
