"""What the explanation of a deadlock needs to know of a barrier that counts arrivals and bytes, phase by phase."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from tilekit.emulator.core.errors import Actor, InstructionLike

__all__ = ["Arrival", "PhasedBarrier"]


class Arrival(NamedTuple):
    """One operation on a barrier: `arrivals` it counted, `expected` and `completed` bytes it added and took away."""

    actor: Actor | None
    instruction: InstructionLike | None
    arrivals: int
    expected: int
    completed: int


class PhasedBarrier(Protocol):
    """A barrier in memory whose phases complete when all arrivals and all bytes are in.

    Attributes
    ----------
    name
        What the kernel's author calls it.
    phase
        Number of phases completed.
    expected, pending
        Arrivals a phase, and arrivals that the current one still needs.
    tx
        Bytes expected and not yet arrived in the current phase.
    bytes_expected, bytes_arrived
        In the current phase.
    arrivals, last_arrivals
        Operations on the current and on the last phase.
    initialised_by
        Where its count comes from.
    INITIALISES, ARRIVES
        What the instruction set calls the instruction that sets the count, and those that arrive.
    """

    INITIALISES: ClassVar[str]
    ARRIVES: ClassVar[str]
    name: str
    phase: int
    expected: int
    pending: int
    tx: int
    bytes_expected: int
    bytes_arrived: int

    @property
    def arrivals(self) -> Sequence[Arrival]: ...

    @property
    def last_arrivals(self) -> Sequence[Arrival]: ...

    @property
    def initialised_by(self) -> Arrival: ...

    def overrun(self, key: Hashable) -> int | None:
        """Return the phase that `key` should have seen next if it completed, and another one after it, unseen."""
