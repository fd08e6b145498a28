"""The shared-memory map: who owns which bytes. Components declare; nothing is ever placed by a constant."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass
class SharedMemory:
    """Allocates dynamic shared memory, in order of declaration."""

    arrays: list[SharedArray] = field(default_factory=list)
    size: int = 0

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
        """Reserve `count` elements of `size` bytes, each aligned to `alignment` bytes."""
        offset = -(-self.size // alignment) * alignment
        stride = size if count == 1 else -(-size // alignment) * alignment
        array = SharedArray(name, kind, offset, stride, count, arrive, wait, arrivals)
        self.arrays.append(array)
        self.size = offset + array.size
        return array

    def annotations(self) -> list[str]:
        """The map as ``//@shared`` lines, which the emulator's reports read."""
        lines = []
        for a in self.arrays:
            text = f"//@shared {a.name} offset={a.offset} size={a.size} stride={a.stride} count={a.count} kind={a.kind}"
            text += f" arrive={','.join(a.arrive)}" if a.arrive else ""
            text += f" wait={','.join(a.wait)}" if a.wait else ""
            lines.append(text)
        return lines
