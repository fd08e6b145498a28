"""The shared-memory map: who owns which bytes. Components declare; nothing is ever placed by a constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilekit.assembly.errors import TraceError
from tilekit.assembly.provenance import Origin, origin

if TYPE_CHECKING:
    from tilekit.assembly.values import Value
    from tilekit.assembly.writer import Writer

BASE_ALIGNMENT = 1024
"""Alignment of the first byte: that of the 128-byte swizzle's atom, 8 rows of 128 bytes."""

KINDS = ("mbarrier", "tile", "scratch")


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

    def at(self, w: Writer, index: Value, base: Value | None = None) -> Value:
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
            ``TK-SHARED-001``: a name twice, nothing to reserve, an unknown kind, or an alignment that is no power of
            two up to `BASE_ALIGNMENT`.
        """
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
        offset = -(-self.size // alignment) * alignment
        stride = size if count == 1 else -(-size // alignment) * alignment
        array = SharedArray(name, kind, offset, stride, count, arrive, wait, arrivals)
        self.arrays.append(array)
        self._origins[name] = origin()
        self.size = offset + array.size
        return array

    def annotations(self) -> list[str]:
        """The map, a note an array: comments of the text, which the emulator's reports read."""
        lines = []
        for a in self.arrays:
            text = f"shared {a.name} offset={a.offset} size={a.size} stride={a.stride} count={a.count} kind={a.kind}"
            text += f" arrive={','.join(a.arrive)}" if a.arrive else ""
            text += f" wait={','.join(a.wait)}" if a.wait else ""
            lines.append(text)
        return lines
