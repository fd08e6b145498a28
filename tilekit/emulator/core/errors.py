"""Everything the emulator can report as a fault, and the words in which it does.

An error knows where it happened (kernel, cluster, CTA, role, warp, instruction) as far as the code that raised it knew.
Code nearer the instruction adds what is missing with :meth:`EmulatorError.at` while the exception passes through it, so
an mbarrier can complain about an arrival count without knowing which warp it serves.
"""

# ruff: noqa: N818 (these names are the fault, as the field says them: a deadlock is not a "deadlock error")
from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

__all__ = [
    "Actor",
    "BarrierFault",
    "Deadlock",
    "EmulatorError",
    "InstructionLike",
    "LaunchError",
    "Livelock",
    "MemoryFault",
    "ProtocolError",
    "PtxSyntaxError",
    "RaceError",
    "StepBudgetExceeded",
    "TextError",
    "UnsupportedInstruction",
    "Where",
    "describe",
    "nearest",
    "shown",
]


_LONG_LIST = re.compile(r"\{([^{},]+)(?:,[^{},]+){3,},\s*([^{},]+)\}")
"""A list of more than four operands."""


class InstructionLike(Protocol):
    """The part of an instruction that messages need."""

    @property
    def line(self) -> int:
        """Line in the PTX text, from 1."""

    @property
    def text(self) -> str:
        """The instruction as written."""

    @property
    def provenance(self) -> str:
        """What the author's `//@` comment says of it: role, component, file and line; may be empty."""


def describe(instruction: InstructionLike | None) -> str:
    """Return one line naming an instruction: its PTX line, its text, and where it came from."""
    if instruction is None:
        return "an unnamed instruction"
    return f"line {instruction.line}: {_elided(instruction.text)}{_origin(instruction)}"


def _origin(instruction: InstructionLike | None) -> str:
    return f"  [{instruction.provenance}]" if instruction is not None and instruction.provenance else ""


def _elided(text: str) -> str:
    """An instruction without its semicolon and without the middle of long register lists."""
    return _LONG_LIST.sub(r"{\1, …, \2}", text.strip().rstrip(";"))


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something: a warp of a CTA, under the name the kernel's author gave its role.

    Parameters
    ----------
    cta
        Rank of the CTA within its cluster.
    warp
        Index of the warp within its CTA.
    role
        Name from the kernel's `//@role` line; empty where the text has none.
    cluster
        Linear index of the cluster within the grid.
    """

    cta: int
    warp: int
    role: str = ""
    cluster: int = 0

    def place(self) -> list[str]:
        """Return the places that it is in, outermost first, and itself, in words."""
        return [f"cluster {self.cluster}", f"CTA {self.cta}", str(self)]

    def __str__(self) -> str:
        return f"role {self.role} (warp {self.warp})" if self.role else f"warp {self.warp}"


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a launch: every part that is known.

    Parameters
    ----------
    kernel
        Name of the entry.
    actor
        The warp at fault.
    instruction
        The instruction at fault.
    line, column
        Position in the text, from 1, of a fault that is found as the text is read.
    """

    kernel: str = ""
    actor: Actor | None = None
    instruction: InstructionLike | None = None
    line: int | None = None
    column: int | None = None

    def filled_from(self, other: Where) -> Where:
        """Return this place with its unknown parts taken from `other`."""
        return Where(
            self.kernel or other.kernel,
            self.actor if self.actor is not None else other.actor,
            self.instruction if self.instruction is not None else other.instruction,
            self.line if self.line is not None else other.line,
            self.column if self.column is not None else other.column,
        )

    def lines(self) -> list[str]:
        """Return the place as message lines, outermost first; empty when nothing is known."""
        found = []
        parts = [f"kernel {self.kernel}"] if self.kernel else []
        if self.actor is not None:
            parts += self.actor.place()
        if parts:
            found.append("in " + ", ".join(parts))
        if self.line is not None:
            column = f", column {self.column}" if self.column is not None else ""
            found.append(f"at line {self.line}{column}{_origin(self.instruction)}")
        elif self.instruction is not None:
            found.append("at " + describe(self.instruction))
        return found


class EmulatorError(Exception):
    """A fault the emulator found in a kernel's text, its launch, or its run.

    Parameters
    ----------
    message
        What is wrong, in one sentence.
    where
        Where it happened, as far as known.
    hint
        What to change.
    table
        Further lines that belong under the message, such as who waits for whom.
    details
        The same facts by name, for programs.

    Attributes
    ----------
    besides
        What else was found, line by line: printed last.
    """

    title = "fault"

    def __init__(
        self,
        message: str,
        *,
        where: Where | None = None,
        hint: str = "",
        table: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where if where is not None else Where()
        self.hint = hint
        self.table = table
        self.details: dict[str, Any] = dict(details) if details else {}
        self.besides: list[str] = []

    def at(self, where: Where) -> Self:
        """Add what `where` knows and this error does not; returns the error, to be raised."""
        self.where = self.where.filled_from(where)
        return self

    @property
    def kernel(self) -> str:
        """Name of the kernel, or an empty string."""
        return self.where.kernel

    @property
    def cluster(self) -> int | None:
        """Linear index of the cluster in the grid."""
        return self.where.actor.cluster if self.where.actor else None

    @property
    def cta(self) -> int | None:
        """Rank of the CTA in its cluster."""
        return self.where.actor.cta if self.where.actor else None

    @property
    def role(self) -> str:
        """Role of the warp at fault, or an empty string."""
        return self.where.actor.role if self.where.actor else ""

    @property
    def warp(self) -> int | None:
        """Index of the warp in its CTA."""
        return self.where.actor.warp if self.where.actor else None

    @property
    def instruction(self) -> InstructionLike | None:
        """The instruction at fault."""
        return self.where.instruction

    @property
    def line(self) -> int | None:
        """Line of the PTX text, from 1."""
        return self.where.instruction.line if self.where.instruction is not None else self.where.line

    @property
    def text(self) -> str:
        """The instruction at fault as written, or an empty string."""
        return self.where.instruction.text if self.where.instruction is not None else ""

    @property
    def provenance(self) -> str:
        """Component and source line that emitted the instruction, or an empty string."""
        return self.where.instruction.provenance if self.where.instruction is not None else ""

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.message}"]
        lines += [f"  {line}" for line in self.where.lines()]
        lines += [f"  {line}" for line in self.table.splitlines()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        lines += [f"  {line}" for text in self.besides for line in text.splitlines()]
        return "\n".join(lines)


class TextError(EmulatorError):
    """Text that is not what it should be; carries the line and column."""

    title = "syntax"

    def __init__(self, message: str, *, line: int, column: int, hint: str = "") -> None:
        super().__init__(message, where=Where(line=line, column=column), hint=hint)

    @property
    def column(self) -> int:
        """Column in the line, from 1."""
        return self.where.column or 0


class PtxSyntaxError(TextError):
    """Text that is not PTX."""

    title = "PTX syntax"


class UnsupportedInstruction(EmulatorError):
    """An opcode, modifier, type or operand form that the emulator does not execute; names the nearest one it does."""

    title = "unsupported instruction"

    def __init__(
        self, message: str, *, line: int, column: int = 1, form: str = "", known: Iterable[str] = (), hint: str = ""
    ) -> None:
        closest = nearest(form, known)
        if closest and not hint:
            hint = f"the nearest form known is '{closest}'"
        super().__init__(
            message,
            where=Where(line=line, column=column),
            hint=hint,
            details={"form": form, "nearest": closest},
        )

    @property
    def column(self) -> int:
        """Column in the line, from 1."""
        return self.where.column or 0


class LaunchError(EmulatorError):
    """A launch that the chip or the kernel's signature does not allow."""

    title = "launch"

    @classmethod
    def argument(cls, name: str, given: object, legal: str, nearest_legal: object = None) -> Self:
        """Return the error for one bad launch argument: what was given, what is legal, the nearest legal value."""
        hint = f"use {name}={nearest_legal!r}" if nearest_legal is not None else ""
        return cls(
            f"{name}={shown(given)} is not allowed; legal: {legal}",
            hint=hint,
            details={"argument": name, "given": given, "legal": legal, "nearest": nearest_legal},
        )


class MemoryFault(EmulatorError):
    """An access outside an allocation, misaligned, through a null pointer, in the wrong space, or to poison."""

    title = "memory"


class BarrierFault(EmulatorError):
    """An mbarrier or named barrier used against its rules: uninitialised, overrun, re-initialised while live."""

    title = "barrier"


class Deadlock(EmulatorError):
    """No warp can run and no asynchronous work is outstanding; the table says who waits for whom."""

    title = "deadlock"


class Livelock(EmulatorError):
    """Warps run, but nothing they could be waiting for has changed for a long time."""

    title = "livelock"


class StepBudgetExceeded(Livelock):
    """The launch executed more instructions than it was allowed to."""

    title = "step budget"


class RaceError(EmulatorError):
    """Two accesses to the same bytes that nothing orders, or an async access to bytes not fenced across proxies."""

    title = "race"


class ProtocolError(EmulatorError):
    """An instruction used out of protocol.

    For example wgmma without `wgmma.fence`, accumulators touched in flight, an `.aligned` instruction in a divergent
    warp, a register budget exceeded by setmaxnreg, an exit while a peer can still write this CTA's shared memory.
    """

    title = "protocol"


_SHOWN = 200
"""Characters of a value in a message."""


def shown(given: object) -> str:
    """A value as a message shows it: cut where it is long, and its type where it has no text."""
    try:
        text = repr(given)
    except Exception:  # of an object that is broken, or of an integer with thousands of digits
        text = f"<{type(given).__name__}>"
    if len(text) <= _SHOWN:
        return text
    try:  # of an array how it lies says more than its first numbers
        return f"<{type(given).__module__}.{type(given).__name__} of {given.dtype}, shape {tuple(given.shape)}>"  # type: ignore[attr-defined]
    except Exception:  # it is none
        return f"{text[: _SHOWN - 3]}..."


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the entry of `known` most like `word`, or an empty string when none is alike."""
    words = sorted(known)
    matches = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if matches:
        return matches[0]
    opcode = word.split(".", 1)[0]
    return next((candidate for candidate in words if opcode and candidate.split(".", 1)[0] == opcode), "")
