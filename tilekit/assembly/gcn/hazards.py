"""Wait states: how many must come before each line of finished text, from the table that emulator and lint check by."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.emulator.gcn.checks.hazards import Recent, Sides
from tilekit.emulator.gcn.compiler.flow import Block, blocks_of
from tilekit.emulator.gcn.language.parser import parse

__all__ = ["nops", "wait_states"]

_MOST_OF_NOP = 16
_ROUNDS = 12
_ENTRY = "__entry"


def nops(states: int) -> list[str]:
    """Return the lines that let so many wait states pass."""
    return [f"s_nop {min(_MOST_OF_NOP, states - past) - 1}" for past in range(0, states, _MOST_OF_NOP)]


def wait_states(lines: Sequence[str], accum_offset: int, chip: str) -> dict[int, int]:
    """Return how many wait states must be put before which line, by index; nothing where none are missing.

    They stand as late as they can, right before what needs them, and none can be left out: what comes before a block is
    taken from the blocks as they are with their wait states.

    Parameters
    ----------
    lines
        Instructions and labels of a kernel, with registers in their places.
    accum_offset
        The register of the unified file that is a0.
    chip
        Whose waits they are to be.
    """
    module = parse("\n".join([f"{_ENTRY}:", *lines]))
    passes = _Passes(blocks_of(module, _ENTRY), accum_offset, chip)
    return {line - 2: states for line, states in passes.missing().items()}


class _Passes:
    """Block by block, round by round, until the wait states put in are those that the others make necessary."""

    def __init__(self, blocks: list[Block], accumulators: int, chip: str) -> None:
        self.chip = chip
        self.sides = [[Sides(i, accumulators) for i in block.instructions] for block in blocks]
        self.predecessors: list[list[int]] = [[] for _ in blocks]
        for number, block in enumerate(blocks):
            for successor in {block.following, block.taken}:
                if successor >= 0:
                    self.predecessors[successor].append(number)
        self.order = sorted(range(len(blocks)), key=lambda number: blocks[number].instructions[0].line)
        self.states: dict[int, int] = {}

    def missing(self) -> dict[int, int]:
        """Wait states by line of the text."""
        leaving: list[dict[Sides, int] | None] = [None] * len(self.sides)
        entered: list[dict[Sides, int] | None] = [None] * len(self.sides)
        for round_ in range(10 * _ROUNDS):
            settled = True
            for number in self.order:
                ages = self._entering(number, leaving)
                if ages != entered[number]:
                    settled = False
                    entered[number] = ages
                    # Fewer states in one block may ask for more in another, in turns; then none are taken back.
                    leaving[number] = self._run(number, ages, keep=round_ >= _ROUNDS)
            if settled:
                break
        return {line: states for line, states in self.states.items() if states}

    def _entering(self, number: int, leaving: list[dict[Sides, int] | None]) -> dict[Sides, int]:
        """The shortest way from each producer to the begin of a block, as far as is known."""
        shortest: dict[Sides, int] = {}
        for predecessor in self.predecessors[number]:
            for sides, age in (leaving[predecessor] or {}).items():
                if age < shortest.get(sides, age + 1):
                    shortest[sides] = age
        return shortest

    def _run(self, number: int, ages: dict[Sides, int], *, keep: bool) -> dict[Sides, int]:
        recent = Recent(ages)
        for sides in self.sides[number]:
            line = sides.instruction.line
            needed = max((hazard.needed - hazard.found for hazard in recent.hazards(sides, self.chip)), default=0)
            if keep:
                needed = max(needed, self.states.get(line, 0))
            if needed or line in self.states:
                self.states[line] = needed
            recent.wait(needed)
            recent.follow(sides)
        return recent.ages()
