"""What a launch that stands still shows: where warps are, barriers, and what is in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import InstructionLike, describe

__all__ = ["AsyncOperation", "BarrierState", "View", "WarpState", "grouped"]


@dataclass(frozen=True, slots=True)
class WarpState:
    """Where a warp is: before ``instruction`` (None: it has ended), and what it waits for (empty: nothing)."""

    unit: ClassVar[str] = "warp"

    cluster: int
    cta: int
    warp: int
    role: str
    instruction: InstructionLike | None
    waits_for: str

    @property
    def doing(self) -> str:
        """What the warp does, in words."""
        where = describe(self.instruction) if self.instruction is not None else "has ended"
        return f"waits for {self.waits_for} at {where}" if self.waits_for else where

    def place(self, *, several: bool) -> str:
        """The CTA that it is of, in words; with its cluster where there are several."""
        return (f"cluster {self.cluster}, " if several else "") + f"CTA {self.cta}"

    def __str__(self) -> str:
        name = f"{self.unit} {self.warp}"
        return f"{f'{self.role} ({name})' if self.role else name}: {self.doing}"


@dataclass(frozen=True, slots=True)
class BarrierState:
    """A barrier: ``pending`` of ``expected`` arrivals and ``tx`` bytes are missing in ``phase``; who waits for it."""

    name: str
    cta: int
    phase: int
    pending: int
    expected: int
    tx: int
    waiting: tuple[str, ...]

    @property
    def idle(self) -> bool:
        """Whether nothing has happened to it since it was initialised."""
        return (self.phase, self.pending, self.tx) == (0, self.expected, 0) and not self.waiting

    def __str__(self) -> str:
        who = f"; waited for by {', '.join(self.waiting)}" if self.waiting else ""
        return f"{self.name}: phase {self.phase}, {self.pending} of {self.expected} arrivals pending, tx {self.tx}{who}"


@dataclass(frozen=True, slots=True)
class AsyncOperation:
    """An asynchronous operation that has not landed: what it is, who issued it where, and its place.

    ``name`` is that of the shared memory, or the registers, that it fills or reads; ``bytes`` what it moves.
    """

    unit: str
    issuer: str
    instruction: InstructionLike | None
    name: str
    bytes: int

    def __str__(self) -> str:
        size = f", {self.bytes} bytes" if self.bytes else ""
        return f"{self.unit} {self.name}{size}, issued by {self.issuer} at {describe(self.instruction)}"


def grouped(states: Sequence[WarpState]) -> list[str]:
    """Warps of a CTA and role that do the same, on one line."""
    groups: dict[tuple[int, int, str, str], list[WarpState]] = {}
    for state in states:
        groups.setdefault((state.cluster, state.cta, state.role, state.doing), []).append(state)
    several = len({state.cluster for state in states}) > 1
    lines = []
    for (_, _, role, doing), members in groups.items():
        unique = sorted({state.warp for state in members})
        run = len(unique) > 1 and unique[-1] - unique[0] == len(unique) - 1
        numbers = f"{unique[0]}-{unique[-1]}" if run else ", ".join(map(str, unique))
        name = f"{members[0].unit}{'s' if len(unique) > 1 else ''} {numbers}"
        lines.append(f"{members[0].place(several=several)} {f'{role} ({name})' if role else name}: {doing}")
    return lines


class View(ABC):
    """What there is to look at while a launch stands still."""

    @property
    @abstractmethod
    def instruction(self) -> InstructionLike:
        """The instruction that is executed next, or waited at."""

    @property
    @abstractmethod
    def where(self) -> WarpState:
        """The place at which the launch stands."""

    @abstractmethod
    def warps(self) -> list[WarpState]:
        """Every warp that is resident."""

    @abstractmethod
    def registers(self, *, warp: int | None = None, cta: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Values by name, of the warp that stands here or of another."""

    @abstractmethod
    def register(self, name: str, *, warp: int | None = None, cta: int = 0) -> npt.NDArray[Any]:
        """One register."""

    @abstractmethod
    def shared(
        self, name: str | int, size: int | None = None, *, dtype: npt.DTypeLike = np.uint8, cta: int | None = None
    ) -> npt.NDArray[Any]:
        """Bytes of shared memory, by name or offset."""

    @abstractmethod
    def barriers(self) -> list[BarrierState]:
        """The barriers of the cluster that stands still."""

    @abstractmethod
    def in_flight(self) -> list[AsyncOperation]:
        """What was issued and has not landed."""
