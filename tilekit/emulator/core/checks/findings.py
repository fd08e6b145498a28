"""What is wrong with a kernel, explained, and each said once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Protocol

from tilekit.emulator.core.checks.shadow import Race
from tilekit.emulator.core.errors import Actor, EmulatorError, InstructionLike, RaceError, Where, describe
from tilekit.emulator.core.symbols import SymbolMap

__all__ = ["Explain", "Finding", "Findings", "Unheeded"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a kernel, explained.

    Attributes
    ----------
    kind
        One word: `race`, `barrier`, `protocol`.
    message
        What is wrong, in one sentence.
    lines
        The facts, a line each.
    hint
        What to change.
    where
        The later of the places involved.
    race
        The race behind it, for programs; None for other kinds.
    """

    kind: str
    message: str
    lines: tuple[str, ...] = ()
    hint: str = ""
    where: Where = field(default_factory=Where)
    race: Race | None = None

    def __str__(self) -> str:
        text = [f"{self.kind}: {self.message}", *(f"  {line}" for line in self.lines)]
        if self.hint:
            text.append(f"  hint: {self.hint}")
        return "\n".join(text)

    def _repr_html_(self) -> str:
        """Kind and message, the facts and the hint below them, for notebooks."""
        facts = "".join(f"<li>{escape(line)}</li>" for line in self.lines)
        hint = f"<p><b>hint</b> {escape(self.hint)}</p>" if self.hint else ""
        return (
            '<div style="border-left: 4px solid #d1242f; padding: 2px 12px; margin: 6px 0">'
            f"<b>{escape(self.kind)}</b> {escape(self.message)}<ul>{facts}</ul>{hint}</div>"
        )


@dataclass(frozen=True, slots=True)
class Unheeded:
    """A wait on an mbarrier that gave up, by a warp that has not asked again.

    Attributes
    ----------
    barrier, phase
        What it waited for.
    went_on
        Whether the warp has come to another instruction since.
    """

    actor: Actor
    instruction: InstructionLike
    barrier: str
    phase: int
    went_on: Callable[[], bool]

    def __str__(self) -> str:
        return (
            f"before that {self.actor} of CTA {self.actor.cta} went on although its wait for {self.barrier} phase "
            f"{self.phase} had returned false, as it may at any time: repeat it until it returns true, at "
            f"{describe(self.instruction)}"
        )


class Explain(Protocol):
    """From a race to its finding, in the words of the text's language: memory, places, the missing edge."""

    def __call__(self, race: Race, symbols: SymbolMap, dynamic_base: int, kernel: str) -> Finding:
        """Return the finding for `race`."""


class Findings:
    """The findings of one launch, each reported once however often it happens.

    Parameters
    ----------
    explain
        Says what a race is.
    symbols
        Names of the kernel's roles and shared memory.
    dynamic_base
        Bytes from the start of a CTA's shared memory to its dynamic shared memory, which the names are relative to.
    kernel
        Name of the entry.

    Attributes
    ----------
    unheeded
        The waits that answered false and were not asked again, by warp and barrier: what faults later may follow.
    """

    def __init__(
        self, explain: Explain, symbols: SymbolMap | None = None, dynamic_base: int = 0, kernel: str = ""
    ) -> None:
        self._explain = explain
        self.symbols = symbols if symbols is not None else SymbolMap()
        self.dynamic_base = dynamic_base
        self.kernel = kernel
        self.unheeded: dict[Hashable, Unheeded] = {}
        self._found: dict[object, Finding] = {}
        self._remarks: dict[object, Finding] = {}
        self._late: dict[object, EmulatorError] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def race(self, race: Race) -> None:
        """Explain and keep a race: pass this method to :class:`Memory` as its `on_race`."""
        # The same two instructions race in every CTA, warp and stage: one finding says it.
        kind = race.unfenced, race.lanes is None, race.memory.cta is None
        key = (id(race.earlier.instruction), id(race.later.instruction), *kind)
        if key not in self._found:
            self._found[key] = self._explain(race, self.symbols, self.dynamic_base, self.kernel)

    def add(self, finding: Finding) -> None:
        """Keep a finding that is not a race."""
        self._found.setdefault((finding.kind, finding.message), finding)

    def remark(self, finding: Finding) -> None:
        """Keep what the manual does not allow, and compilers rely on all the same."""
        self._remarks.setdefault((finding.kind, finding.message), finding)

    @property
    def remarks(self) -> tuple[Finding, ...]:
        """What was remarked."""
        return tuple(self._remarks.values())

    def late(self, error: EmulatorError) -> None:
        """Keep the fault of something that a CTA does not wait for before it ends: the launch goes on."""
        self._late.setdefault((error.message, error.line), error)

    def attach(self, error: EmulatorError) -> None:
        """Add what was found so far to the fault that ends the launch: a race is often its cause."""
        found = self._without_echoes()
        if found:
            error.details["findings"] = found
            error.besides = _listed("found before that:", found)
        error.table = "\n".join(filter(None, [error.table, *self._waits_not_repeated()]))

    def _waits_not_repeated(self) -> list[str]:
        """The waits that gave up and were not repeated, one a site."""
        lines = {id(wait.instruction): str(wait) for wait in self.unheeded.values() if wait.went_on()}
        return list(lines.values())

    def _without_echoes(self) -> list[Finding]:
        """The findings, without races between lanes where warps race as well: one barrier is missing for both."""
        races = [finding.race for finding in self if finding.race is not None]
        warps = {_lines_of(race) for race in races if race.lanes is None}
        return [f for f in self if f.race is None or f.race.lanes is None or _lines_of(f.race) not in warps]

    def raise_late(self) -> None:
        """Raise the first of the faults that :meth:`late` kept, by its place in the text."""
        if self._late:
            error = min(self._late.values(), key=lambda late: (late.line or 0, late.message))
            self.attach(error)
            raise error

    def raise_races(self) -> None:
        """Raise the races found, if there are any.

        Raises
        ------
        RaceError
            For the first race, between warps if there is one; what else was found is listed under it and in its
            details.
        """
        found = self._without_echoes()
        races = [finding for finding in found if finding.kind == "race"]
        if races:
            first = min(races, key=lambda finding: finding.race is not None and finding.race.lanes is not None)
            rest = [finding for finding in found if finding is not first]
            error = RaceError(
                first.message,
                where=first.where,
                hint=first.hint,
                table="\n".join([*first.lines, *self._waits_not_repeated()]),
                details={"findings": [first, *rest]},
            )
            error.besides = _listed("found besides:", rest) if rest else []
            raise error


_SHOWN = 3
"""Further findings that an error spells out: of a mistake that many instructions show, a few tell enough."""


def _listed(head: str, found: Sequence[Finding]) -> list[str]:
    """What stands below an error: some of what else was found, and how much more there is."""
    more = len(found) - _SHOWN
    return [head, *map(str, found[:_SHOWN]), *([f"and {more} more, in details['findings']"] if more > 0 else [])]


def _lines_of(race: Race) -> frozenset[int]:
    """The two instructions of a race."""
    return frozenset((id(race.earlier.instruction), id(race.later.instruction)))
