"""Names for what a kernel's text only numbers: the `//@role` and `//@shared` annotations.

    //@role <name> warps=<first>-<last>
    //@shared <name> offset=<bytes> size=<bytes> [stride=<bytes> count=<n>] [kind=mbarrier|tile|scratch]
              [arrive=<role,role>] [wait=<role,role>]

(each on one line). Text without annotations has no names: warps and addresses are then reported by number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from tilekit.emulator.core.errors import LaunchError, PtxSyntaxError, nearest

__all__ = ["RoleWarps", "SharedSymbol", "SymbolMap"]

_ROLE = re.compile(r"\s*//@role\s+(?P<name>\S+)\s+warps=(?P<first>\d+)-(?P<last>\d+)\s*$")
_SHARED = re.compile(r"\s*//@shared\s+(?P<name>\S+)(?P<fields>(\s+\w+=\S+)*)\s*$")
_NUMBERS = ("offset", "size", "stride", "count")
_KINDS = ("mbarrier", "tile", "scratch")


@dataclass(frozen=True, slots=True)
class RoleWarps:
    """A role and the warps of a CTA that play it, `first` to `last`."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SharedSymbol:
    """An array in dynamic shared memory.

    Attributes
    ----------
    offset, size
        Of the whole array, in bytes, from the start of dynamic shared memory.
    stride, count
        Bytes between elements, and elements.
    kind
        `mbarrier`, `tile` or `scratch`.
    arrive, wait
        For mbarriers: the roles that arrive on it and those that wait for it.
    """

    name: str
    offset: int
    size: int
    stride: int
    count: int = 1
    kind: str = "scratch"
    arrive: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()

    def element(self, index: int) -> str:
        """Return the name of an element: `inputs.a[1]`, or the plain name of an array of one."""
        return f"{self.name}[{index}]" if self.count > 1 else self.name


class SymbolMap:
    """The roles and the shared-memory map of one kernel.

    Parameters
    ----------
    roles
        Which warps play which role.
    shared
        The arrays in dynamic shared memory.
    """

    def __init__(self, roles: Iterable[RoleWarps] = (), shared: Iterable[SharedSymbol] = ()) -> None:
        self.roles = list(roles)
        self.shared = sorted(shared, key=lambda s: s.offset)
        self._offsets = [s.offset for s in self.shared]
        self._by_name = {s.element(i): s for s in self.shared for i in range(s.count)}

    @classmethod
    def parse(cls, text: str, first_line: int = 1) -> Self:
        """Read the annotations in `text`, whose first line is line `first_line` of the module.

        Raises
        ------
        PtxSyntaxError
            If an annotation line does not have the form above.
        """
        roles: list[RoleWarps] = []
        shared: list[SharedSymbol] = []
        for number, line in enumerate(text.splitlines(), first_line):
            column = line.find("//@") + 1
            if not column:
                continue
            note = line[column - 1 :]
            if note.startswith("//@role "):
                match = _ROLE.match(note)
                if match is None or int(match["first"]) > int(match["last"]):
                    raise PtxSyntaxError(
                        f"bad role annotation '{note.strip()}'",
                        line=number,
                        column=column,
                        hint="write //@role <name> warps=<first>-<last>",
                    )
                roles.append(RoleWarps(match["name"], int(match["first"]), int(match["last"])))
            elif note.startswith("//@shared "):
                shared.append(_shared_symbol(note, number, column))
        return cls(roles, shared)

    def role_of(self, warp: int) -> str:
        """Return the role of a warp of a CTA, or an empty string."""
        return next((r.name for r in self.roles if r.first <= warp <= r.last), "")

    def at(self, offset: int) -> tuple[SharedSymbol, int, int] | None:
        """Return what lies at a byte of dynamic shared memory: (array, element, bytes into the element)."""
        i = bisect_right(self._offsets, offset) - 1
        if i < 0 or offset >= self.shared[i].offset + self.shared[i].size:
            return None
        symbol = self.shared[i]
        index = min((offset - symbol.offset) // symbol.stride, symbol.count - 1)
        return symbol, index, offset - symbol.offset - index * symbol.stride

    def name(self, offset: int) -> str:
        """Return the name of a byte of dynamic shared memory, such as `inputs.a[1]+0x40`; empty if it has none."""
        found = self.at(offset)
        if found is None:
            return ""
        symbol, index, within = found
        return f"{symbol.element(index)}+{within:#x}" if within else symbol.element(index)

    def extent(self, name: str) -> tuple[int, int] | None:
        """Return offset and bytes of an array, or of an element; None for what is not there."""
        array, index = re.fullmatch(r"(.*?)(?:\[(\d+)\])?", name, re.DOTALL).groups()  # type: ignore[union-attr]
        for symbol in self.shared:
            if symbol.name == array and (index is None or int(index) < symbol.count):
                size = symbol.size if index is None else min(symbol.stride, symbol.size)
                return symbol.offset + int(index or 0) * symbol.stride, size
        return None

    def unknown(self, name: str) -> LaunchError:
        """Return the error for a name of shared memory that is not there."""
        known = [symbol.element(i) for symbol in self.shared for i in range(symbol.count)]
        return LaunchError.argument("name", name, ", ".join(known) or "none: the text names no shared memory",
                                    nearest(name, known) or None)  # fmt: skip

    def barrier(self, name: str) -> SharedSymbol | None:
        """Return the array that the element called `name` belongs to, such as `inputs.full[1]`."""
        return self._by_name.get(name)

    def barriers_between(self, arrives: str, waits: str) -> list[SharedSymbol]:
        """Return the barriers on which role `arrives` is declared to arrive and role `waits` to wait."""
        return [s for s in self.shared if arrives in s.arrive and waits in s.wait]


def _shared_symbol(note: str, line: int, column: int) -> SharedSymbol:
    def bad(why: str) -> PtxSyntaxError:
        return PtxSyntaxError(
            f"bad shared-memory annotation '{note.strip()}': {why}",
            line=line,
            column=column,
            hint="write //@shared <name> offset=<bytes> size=<bytes> [stride=<bytes> count=<n>] "
            "[kind=mbarrier|tile|scratch] [arrive=<role,role>] [wait=<role,role>]",
        )

    match = _SHARED.match(note)
    if match is None:
        raise bad("it is not a name followed by key=value fields")
    fields = dict(pair.split("=", 1) for pair in match["fields"].split())
    unknown = set(fields) - {*_NUMBERS, "kind", "arrive", "wait"}
    if unknown:
        raise bad(f"unknown field '{min(unknown)}'")
    numbers: dict[str, int] = {}
    for key in _NUMBERS:
        if key in fields:
            try:
                numbers[key] = int(fields[key], 0)
            except ValueError:
                raise bad(f"{key}={fields[key]} is not a number") from None
    if "offset" not in numbers or "size" not in numbers:
        raise bad("offset and size are required")
    count = numbers.get("count", 1)
    if count < 1 or numbers["size"] < 1 or numbers["offset"] < 0:
        raise bad("size and count must be positive and offset not negative")
    kind = fields.get("kind", "scratch")
    if kind not in _KINDS:
        raise bad(f"kind={kind} is none of {', '.join(_KINDS)}")
    return SharedSymbol(
        match["name"],
        numbers["offset"],
        numbers["size"],
        numbers.get("stride", numbers["size"] // count) or 1,
        count,
        kind,
        tuple(filter(None, fields.get("arrive", "").split(","))),
        tuple(filter(None, fields.get("wait", "").split(","))),
    )
