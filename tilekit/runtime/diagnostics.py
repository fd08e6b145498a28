"""Messages of an assembler, shown with the line they are about and the Python that emitted it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Diagnostic", "with_source_lines"]

_PROVENANCE = re.compile(r"//@ (?P<role>\S+) (?P<component>\S+) (?P<place>\S+:\d+)\s*$")
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message; ``line`` counts from 1 in the text, None where the assembler names no line."""

    severity: str
    line: int | None
    message: str


def with_source_lines(text: str, messages: Sequence[Diagnostic]) -> str:
    """Return messages as indented text, each with the line it is about and the Python that emitted it."""
    source = text.splitlines()
    shown = []
    for message in messages[:_SHOWN]:
        if message.line is None or not 1 <= message.line <= len(source):
            shown.append(f"  {message.message}")
            continue
        line = source[message.line - 1]
        shown.append(f"  line {message.line}: {message.message}\n      {line.strip()}")
        origin = _PROVENANCE.search(line)
        if origin:
            shown.append(f"      emitted by {origin['component']} at {origin['place']}, role {origin['role']}")
    if len(messages) > _SHOWN:
        shown.append(f"  ... and {len(messages) - _SHOWN} more in the log")
    return "\n".join(shown)
