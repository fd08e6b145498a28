"""The trace as it grows: lines with their origin, in scopes with registers of their own; and how it becomes text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilekit.assembly.provenance import Origin

_ORIGIN_COLUMN = 100
_REGISTER_LIST = 100


@dataclass(frozen=True)
class Line:
    """One emitted line: assembly text, nesting depth, the role that runs it, and the Python that asked for it."""

    text: str
    depth: int
    role: str
    origin: Origin

    def __str__(self) -> str:
        is_label = self.text.endswith(":") and not self.text.startswith(" ")
        text = "    " * (self.depth - is_label) + self.text
        if is_label or self.text.strip() in "{}":
            return text
        return f"{text:<{_ORIGIN_COLUMN}} //@ {self.role} {self.origin.component} {self.origin.file}:{self.origin.line}"


@dataclass
class Scope:
    """A ``{ }`` block with registers of its own; `depth` is the nesting of its contents."""

    depth: int
    registers: dict[str, list[str]] = field(default_factory=dict)
    items: list[Line | Scope] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The contents as text: declarations, then lines and nested blocks in order."""
        pad = "    " * self.depth
        for declared, names in sorted(self.registers.items()):
            yield from (f"{pad}.reg .{declared} {part};" for part in _wrapped(names))
        for item in self.items:
            if isinstance(item, Scope):
                outer = "    " * (item.depth - 1)
                yield f"{outer}{{"
                yield from item.lines()
                yield f"{outer}}}"
            else:
                yield str(item)


def _wrapped(names: list[str]) -> Iterator[str]:
    """Join names into lists of readable width; a range such as ``acc_<64>`` stands alone."""
    part = ""
    for name in names:
        if name.endswith(">"):
            yield name
            continue
        if part and len(part) + len(name) > _REGISTER_LIST:
            yield part
            part = ""
        part = f"{part}, {name}" if part else name
    if part:
        yield part
