"""The shared-memory map: who owns which bytes. Components declare; nothing is ever placed by a constant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

from tilekit.assembly.errors import TraceError
from tilekit.assembly.provenance import Origin, origin

if TYPE_CHECKING:
    from tilekit.assembly.values import Value
    from tilekit.assembly.writer import Writer

BASE_ALIGNMENT = 1024
"""Alignment of the first byte: that of the 128-byte swizzle's atom, 8 rows of 128 bytes."""

_NAME = re.compile(r"[\w.-]+")
_APART = re.compile(r"[^\w.-]+")
"""What reports cannot tell from what stands behind a name."""

KINDS = ("mbarrier", "tile", "scratch")


class SharedDeclaration(NamedTuple):
    """What a component takes of shared memory, said before there is a writer: for budgets, and for its constructor.

    Attributes
    ----------
    name, kind
        Its name in maps and reports; ``mbarrier``, ``tile`` or ``scratch``.
    size, elements
        Bytes of an element, and how many there are.
    alignment
        Of each element, bytes.
    """

    name: str
    size: int
    elements: int = 1
    alignment: int = 16
    kind: str = "scratch"

    @property
    def stride(self) -> int:
        """Bytes between elements."""
        return self.size if self.elements == 1 else -(-self.size // self.alignment) * self.alignment

    def offset(self, taken: int) -> int:
        """Where it begins behind `taken` bytes."""
        return -(-taken // self.alignment) * self.alignment

    def times(self, count: int) -> SharedDeclaration:
        """So many times as many elements."""
        return SharedDeclaration(self.name, self.size, self.elements * count, self.alignment, self.kind)


MBARRIER_BYTES = 8


@cache
def mbarriers(name: str, which: tuple[str, ...], count: int) -> tuple[SharedDeclaration, ...]:
    """Arrays of `count` mbarriers, called ``<name>.<which>``."""
    return tuple(
        SharedDeclaration(f"{name}.{each}", MBARRIER_BYTES, count, MBARRIER_BYTES, "mbarrier") for each in which
    )


def size_of(declarations: Iterable[SharedDeclaration], taken: int = 0, times: int = 1) -> int:
    """Bytes in all, when these, each so many `times`, have been placed in this order behind `taken` bytes."""
    for _, size, elements, alignment, _ in declarations:
        count = elements * times
        stride = size if count == 1 else -(-size // alignment) * alignment
        taken = -(-taken // alignment) * alignment + stride * count
    return taken


@dataclass(frozen=True)
class SharedArray:
    """A named array in dynamic shared memory.

    Attributes
    ----------
    name, kind
        Its name in maps and reports; ``mbarrier``, ``tile`` or ``scratch``.
    offset, stride, count
        Bytes from the base, bytes between elements, elements.
    arrive, wait
        For barriers: the roles that arrive on it and the roles that wait for it.
    arrivals
        For barriers: arrivals that complete a phase.
    """

    name: str
    kind: str
    offset: int
    stride: int
    count: int
    arrive: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    arrivals: int = 0

    @property
    def size(self) -> int:
        """Bytes the array takes."""
        return self.stride * self.count

    def at(self, w: Writer, index: Value | int, base: Value | None = None) -> Value:
        """Address of element `index`; of another CTA's, whose shared memory begins at `base`.

        Raises
        ------
        TraceError
            ``TK-ROLE-004`` in a role that the barrier does not know: its arrivals were counted without it.
        """
        if self.arrive or self.wait:
            w.require_role({*self.arrive, *self.wait}, f"{self.kind} {self.name!r}")
        return (w.shared_base if base is None else base) + index * self.stride + self.offset


@dataclass
class SharedMemory:
    """Allocates dynamic shared memory, in order of declaration."""

    arrays: list[SharedArray] = field(default_factory=list)
    size: int = 0
    _origins: dict[str, Origin] = field(default_factory=dict)

    def require_fits(self, kernel: str, limit: int) -> None:
        """Check that a CTA has so much shared memory.

        Raises
        ------
        TraceError
            ``TK-COMP-005`` with the largest object, where it was declared, and how many of it there may be.
        """
        over = self.size - limit
        if over <= 0:
            return
        largest = max(self.arrays, key=lambda array: array.size)
        # The objects of a ring have a part in each stage: with one stage less all of them shrink.
        ring = [array for array in self.arrays if array.count == largest.count]
        stage = sum(array.stride for array in ring)
        most = largest.count - -(-over // stage)
        if largest.count > 1 and most >= 1:
            nearest = f"{most} of it"
            if len(ring) > 1:
                named = ", ".join(array.name for array in ring)
                stages = any(array.kind == "mbarrier" for array in ring)
                nearest = f"stages={most} in place of {largest.count}, for" if stages else f"{most} each of"
                nearest += f" {named}"
            fits = largest.stride - -(-over // largest.count)
            nearest += f"; or {largest.count} of up to {fits} bytes" if fits > 0 else ""
        else:
            fits = largest.stride - -(-over // largest.count)
            nearest = f"{fits} bytes each, so a smaller tile" if fits > 0 else "smaller objects throughout"
        raise TraceError(
            f"{kernel}: shared memory is {self.size} bytes, {over} over the {limit} of a CTA; the largest array is "
            f"{largest.name}, {largest.count} x {largest.stride} bytes, declared by {self._origins[largest.name]}. "
            f"Nearest: {nearest}",
            code="TK-COMP-005",
        )

    def allocate(
        self,
        name: str,
        *,
        size: int,
        count: int = 1,
        alignment: int = 16,
        kind: str = "scratch",
        arrive: tuple[str, ...] = (),
        wait: tuple[str, ...] = (),
        arrivals: int = 0,
    ) -> SharedArray:
        """Reserve `count` elements of `size` bytes, each aligned to `alignment` bytes.

        Raises
        ------
        TraceError
            ``TK-SHARED-001``: a name twice, or of other than letters, digits, _, - and dots, numbers that are not
            whole, nothing to reserve, an unknown kind, or an alignment that is no power of two up to `BASE_ALIGNMENT`.
        """
        declared = SharedDeclaration(name, size, count, alignment, kind)
        return self.place(declared, arrive=arrive, wait=wait, arrivals=arrivals)

    def place(
        self,
        declared: SharedDeclaration,
        *,
        arrive: tuple[str, ...] = (),
        wait: tuple[str, ...] = (),
        arrivals: int = 0,
    ) -> SharedArray:
        """Reserve what is declared; of a barrier, who arrives and waits.

        Raises
        ------
        TraceError
            ``TK-SHARED-001``, as for `allocate`.
        """
        if not isinstance(declared, SharedDeclaration):
            raise TraceError(
                f"w.shared.place takes a SharedDeclaration and is given {declared!r}; nearest: "
                "w.shared.allocate(name, size=...)",
                code="TK-SHARED-001",
            )
        name, size, count, alignment, kind = declared
        numbers = {"size": size, "count": count, "alignment": alignment}
        if not isinstance(name, str) or not all(isinstance(number, Integral) for number in numbers.values()):
            given = ", ".join(f"{word}={number!r}" for word, number in numbers.items())
            raise TraceError(
                f"shared array {name!r}: {given}; legal: a name that is text, and whole numbers", code="TK-SHARED-001"
            )
        if not _NAME.fullmatch(name):
            close = _APART.sub("_", name).strip("_.") or "x"
            raise TraceError(
                f"shared array {name!r}; legal: a name of letters, digits, _, - and dots; nearest: {close!r}",
                code="TK-SHARED-001",
            )
        if name in self._origins:
            raise TraceError(
                f"shared array {name!r} is declared twice: by {self._origins[name]} and by {origin()}",
                code="TK-SHARED-001",
            )
        if size < 1 or count < 1:
            raise TraceError(
                f"shared array {name!r}: size={size}, count={count}; both are at least 1", code="TK-SHARED-001"
            )
        if alignment not in (1 << bit for bit in range(BASE_ALIGNMENT.bit_length())):
            nearest = min(BASE_ALIGNMENT, 1 << max(alignment - 1, 0).bit_length())
            raise TraceError(
                f"shared array {name!r}: alignment={alignment} is no power of two up to {BASE_ALIGNMENT}; nearest: "
                f"{nearest}",
                code="TK-SHARED-001",
            )
        if kind not in KINDS:
            raise TraceError(
                f"shared array {name!r}: kind={kind!r} is none of {', '.join(KINDS)}", code="TK-SHARED-001"
            )
        offset = declared.offset(self.size)
        array = SharedArray(name, kind, offset, declared.stride, count, arrive, wait, arrivals)
        self.arrays.append(array)
        self._origins[name] = origin()
        self.size = offset + array.size
        return array

    def check(self, declared: Iterable[SharedDeclaration], owner: str) -> None:
        """Check that the map is what the budget of `owner` was made of.

        Raises
        ------
        TraceError
            ``TK-SHARED-002``, naming what was allocated and not declared, or declared and not allocated.
        """
        allocated = {a.name: (a.offset, a.stride, a.count) for a in self.arrays}
        planned, taken = {}, 0
        for each in declared:
            offset = each.offset(taken)
            planned[each.name], taken = (offset, each.stride, each.elements), size_of((each,), taken)
        # What only one of them has comes first: it has moved the others.
        for name in (*sorted(planned.keys() ^ allocated.keys()), *allocated):
            has, budget = (_words(places.get(name)) for places in (allocated, planned))
            if has != budget:
                raise TraceError(
                    f"{owner}: shared array {name!r} is {has}, and the budget has {budget}; in all {self.size} B are "
                    f"allocated, and {taken} B were declared. Have the component declare what it allocates",
                    code="TK-SHARED-002",
                )

    def annotations(self) -> list[str]:
        """The map, a note an array: comments of the text, which the emulator's reports read."""
        lines = []
        for a in self.arrays:
            text = f"shared {a.name} offset={a.offset} size={a.size} stride={a.stride} count={a.count} kind={a.kind}"
            text += f" arrive={','.join(a.arrive)}" if a.arrive else ""
            text += f" wait={','.join(a.wait)}" if a.wait else ""
            lines.append(text)
        return lines


def _words(place: tuple[int, int, int] | None) -> str:
    return "nothing" if place is None else f"{place[2]} x {place[1]} B at {place[0]}"
