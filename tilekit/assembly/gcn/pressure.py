"""How many registers of a file are needed at once: the peak, where it is, and what is held there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from tilekit.assembly.gcn.code import Code, File, Instruction, Virtual
from tilekit.assembly.gcn.liveness import Ranges
from tilekit.assembly.provenance import Origin

__all__ = ["Holder", "Pressure", "held"]

_SHOWN = 8
_NAMES: dict[File, str] = {"vector": "VGPRs", "scalar": "SGPRs", "accumulator": "AGPRs"}


def held(stretches: Iterable[tuple[int, int]]) -> int:
    """Return for how many slots a register's place is taken."""
    return sum(last - first + 1 for first, last in stretches)


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds registers at a peak: a value by its name in Python, or several of one name and role."""

    name: str
    role: str
    words: int
    accumulator: bool


@dataclass(frozen=True, slots=True)
class Pressure:
    """The peak of one file.

    Attributes
    ----------
    file
        Which.
    needed
        Registers that hold something at once, at most.
    instruction
        The first at which it is so; None in a kernel that uses none.
    holders
        What holds them there, largest first.
    roles
        The peak among the instructions of each role.
    """

    file: File
    needed: int
    instruction: Instruction | None
    holders: tuple[Holder, ...]
    roles: dict[str, int]

    @classmethod
    def of(cls, file: File, code: Code, ranges: Ranges) -> Pressure:
        """Find the peak of a file."""
        change = [0] * (2 * len(code.items) + 1)
        for register, stretches in ranges.items():
            if register.file == file:
                for first, last in stretches:
                    change[first] += register.words
                    change[last + 1] -= register.words
        needed = list(accumulate(change))
        peak = max(needed, default=0)
        slot = needed.index(peak) if peak else 0
        roles: dict[str, int] = {}
        for index, item in enumerate(code.items):
            if isinstance(item, Instruction):
                here = max(needed[2 * index], needed[2 * index + 1])
                if here > roles.get(item.role, 0):
                    roles[item.role] = here
        found = code.items[slot // 2] if peak else None
        at = next((i for i in code.items[slot // 2 :] if isinstance(i, Instruction)), None) if peak else None
        instruction = found if isinstance(found, Instruction) else at
        return cls(file, peak, instruction, _holders(file, code, ranges, slot) if peak else (), roles)

    @property
    def origin(self) -> Origin | None:
        """The Python that asked for the peak's instruction."""
        return self.instruction.origin if self.instruction is not None else None

    @property
    def accumulators(self) -> int:
        """Registers at the peak that matrix instructions add to."""
        return sum(holder.words for holder in self.holders if holder.accumulator)

    @property
    def largest(self) -> int:
        """Registers of the largest holder."""
        return self.holders[0].words if self.holders else 0

    def text(self) -> str:
        """Return the peak in a line, and a line for each of its holders."""
        at = f" at {self.origin}" if self.origin is not None else ""
        doing = f" ({self.instruction.text.split()[0]})" if self.instruction is not None else ""
        lines = [f"{_NAMES[self.file]}: at most {self.needed} at once{at}{doing}"]
        for holder in self.holders[:_SHOWN]:
            lines.append(f"  {holder.words:4d}  {holder.name}{f' of {holder.role}' if holder.role else ''}")
        rest = self.holders[_SHOWN:]
        if rest:
            lines.append(f"  {sum(holder.words for holder in rest):4d}  {len(rest)} others")
        if len(self.roles) > 1:
            lines.append("  by role: " + ", ".join(f"{role or 'all'} {count}" for role, count in self.roles.items()))
        return "\n".join(lines)


def _holders(file: File, code: Code, ranges: Ranges, slot: int) -> tuple[Holder, ...]:
    there = {
        register
        for register, stretches in ranges.items()
        if register.file == file and any(first <= slot <= last for first, last in stretches)
    }
    roles: dict[Virtual, str] = {}
    added: set[Virtual] = set()
    for item in code.items:
        if isinstance(item, Instruction):
            for part in item.writes:
                roles.setdefault(part.register, item.role)
                if item.text.startswith("v_mfma"):
                    added.add(part.register)
    words: dict[tuple[str, str, bool], int] = {}
    for register in there:
        key = (register.name, roles.get(register, ""), register in added)
        words[key] = words.get(key, 0) + register.words
    found = [Holder(name, role, count, accumulator) for (name, role, accumulator), count in words.items()]
    return tuple(sorted(found, key=lambda holder: (-holder.words, holder.name)))
