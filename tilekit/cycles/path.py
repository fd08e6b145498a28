"""Which instructions a wave executes: from the kernel's entry to its loop, and one turn of that.

Loops are those of the control-flow graph. A wave goes from the entry by the branches that the text decides, such as
those by its number, until it comes to the head of an innermost loop with MFMAs: that loop is the wave's. Where the text
does not decide, the way that leads to a loop is taken, or the next instruction, and a remark says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilekit.cycles.values import Values
from tilekit.emulator.core.errors import nearest
from tilekit.emulator.gcn.compiler.effects import Effects, effects, is_memory, is_mfma
from tilekit.emulator.gcn.compiler.flow import Block, blocks_of
from tilekit.emulator.gcn.language.syntax import Instruction, ModuleText
from tilekit.emulator.gcn.ops.control import BRANCHES
from tilekit.errors import ArgumentError

__all__ = ["Flow", "Loop", "Path"]

NO_LOOP, NO_SUCH_LOOP, UNDECIDED = "TK-CYCLES-002", "TK-CYCLES-003", "TK-CYCLES-004"
_LONGEST: Final = 400_000
_ATTEMPTS: Final = 32


@dataclass(frozen=True)
class Loop:
    """A loop: number of its first block, and of all its blocks; its name is a label, or a line."""

    head: int
    blocks: frozenset[int]
    name: str
    line: int
    products: int


@dataclass
class Path:
    """What one wave executes; ``taken`` says of each instruction whether it is a branch that is taken.

    Attributes
    ----------
    loop
        The loop that it comes to.
    before, turn
        Instructions before the loop, and of one turn, each with whether it is a branch that is taken.
    remarks
        What the text does not decide, and how it was decided here.
    """

    loop: Loop
    before: list[tuple[Instruction, bool]]
    turn: list[tuple[Instruction, bool]]
    remarks: list[str] = field(default_factory=list)


class Flow:
    """The control flow of a kernel.

    Parameters
    ----------
    module, entry
        The text, and the label at which waves start.
    accumulators
        Row of register a0.
    """

    def __init__(self, module: ModuleText, entry: str, accumulators: int) -> None:
        self.blocks = blocks_of(module, entry)
        self.accumulators = accumulators
        self._effects: dict[Instruction, Effects] = {}
        places = {id(i): number for number, i in enumerate(module.instructions)}
        self.labels: dict[int, list[str]] = {}
        starts = {places[id(block.instructions[0])]: number for number, block in enumerate(self.blocks)}
        for label, index in module.labels.items():
            if index in starts:
                self.labels.setdefault(starts[index], []).append(label)
        self.loops = self._loops()

    @property
    def innermost(self) -> list[Loop]:
        """Loops with MFMAs that have no such loop within, those with the most MFMAs first."""
        found = [loop for loop in self.loops if loop.products]
        inner = [one for one in found if not any(other.blocks < one.blocks for other in found)]
        return sorted(inner, key=lambda loop: (-loop.products, loop.head))

    def named(self, name: str) -> Loop:
        """The loop whose head has this label, or stands at this line.

        Raises
        ------
        ArgumentError
            If no loop has; with the nearest that there is.
        """
        for loop in self.loops:
            if name in (*self.labels.get(loop.head, ()), str(loop.line)):
                return loop
        names = [loop.name for loop in self.loops]
        if not names:
            raise self._none()
        legal = f"the label, or the line, of a loop's first instruction: {', '.join(names)}"
        close = nearest(name, names) or names[0]
        raise ArgumentError.of("loop", name, legal=legal, nearest=close, code=NO_SUCH_LOOP)

    def path(
        self,
        wave: int,
        loop: Loop | None,
        taken: Mapping[str, bool] | None = None,
        turns: Mapping[str, int] | None = None,
    ) -> Path:
        """Return what a wave executes.

        Parameters
        ----------
        wave
            Its number in the workgroup.
        loop
            The loop to come to; None for the first innermost one with MFMAs. A wave whose branches lead elsewhere comes
            to another.
        taken
            For branches that the text does not decide, by the label that they go to, whether they are taken.
        turns
            For loops within the loop, by label, how often they go round.

        Raises
        ------
        ArgumentError
            If the wave comes to no loop, or a loop within its loop goes round as often as data says.
        """
        forced: list[bool] = []
        flipped: set[int] = set()
        found: Path | None = None
        failure: ArgumentError | None = None
        for _ in range(_ATTEMPTS):  # choices that lead to no such loop are made the other way, the last one first
            walk = _Walk(self, wave, taken or {}, turns or {}, forced)
            try:
                path = walk.path(loop)
                if path.loop == loop or (loop is None and (path.loop.products or not self.innermost)):
                    return path
                found = found or path
            except ArgumentError as error:
                if error.code != NO_LOOP:
                    raise
                failure = failure or error
            forced = walk.choices
            while forced and len(forced) - 1 in flipped:
                flipped.discard(len(forced) - 1)
                forced.pop()
            if not forced:
                break
            forced[-1] = not forced[-1]
            flipped.add(len(forced) - 1)
        if found is None:
            assert failure is not None
            raise failure
        return found

    def effects(self, i: Instruction) -> Effects:
        """What an instruction reads and writes."""
        found = self._effects.get(i)
        if found is None:
            found = self._effects[i] = effects(i, self.accumulators)
        return found

    def label(self, block: int) -> str:
        """The name of a block: its label, the nearest of several, or the line of its first instruction."""
        return (self.labels.get(block) or [f"line {self.blocks[block].instructions[0].line}"])[-1]

    def goals(self, loop: Loop | None) -> list[Loop]:
        """The loops where a wave stops: the one asked for, then innermost ones with MFMAs, then any with memory.

        Raises
        ------
        ArgumentError
            If there is none.
        """
        rest = [one for one in self.loops if not any(other.blocks < one.blocks for other in self.loops)]
        found = [*([loop] if loop else []), *self.innermost]
        found += [one for one in rest if one not in found and self._works(one)]
        found = found or rest
        if not found:
            raise self._none()
        return found

    def reaching(self, goals: Iterable[int], within: Loop | None = None) -> frozenset[int]:
        """The blocks from which one of these can be reached, themselves included; in one turn of a loop, if given."""
        before: dict[int, list[int]] = {}
        for number, block in enumerate(self.blocks):
            for target in _targets(block):
                before.setdefault(target, []).append(number)
        work = list(goals)
        seen = set(work)
        while work:
            reached = work.pop()
            if within is not None and reached == within.head:
                continue
            for number in before.get(reached, ()):
                if number not in seen and (within is None or number in within.blocks):
                    seen.add(number)
                    work.append(number)
        return frozenset(seen)

    def _works(self, loop: Loop) -> bool:
        code = (i for number in loop.blocks for i in self.blocks[number].instructions)
        return any(is_memory(i) or i.name == "s_barrier" for i in code)

    def _none(self) -> ArgumentError:
        return ArgumentError(
            "the kernel has no loop: no branch goes back to an earlier instruction that leads to it. Give a text with "
            "the loop and its label",
            code=NO_LOOP,
        )

    def _loops(self) -> list[Loop]:
        """Natural loops: those with one head are one."""
        dominators = _dominators(self.blocks)
        bodies: dict[int, set[int]] = {}
        for number, block in enumerate(self.blocks):
            for head in _targets(block):
                if dominators[number] >> head & 1:
                    bodies.setdefault(head, {head}).update(self._body(head, number))
        loops = []
        for head, body in bodies.items():
            line = self.blocks[head].instructions[0].line
            products = sum(is_mfma(i) for number in body for i in self.blocks[number].instructions)
            loops.append(Loop(head, frozenset(body), self.label(head), line, products))
        return sorted(loops, key=lambda loop: loop.line)

    def _body(self, head: int, back: int) -> set[int]:
        before: dict[int, list[int]] = {}
        for number, block in enumerate(self.blocks):
            for target in _targets(block):
                before.setdefault(target, []).append(number)
        body, work = {head, back}, [back] if back != head else []
        while work:
            for number in before.get(work.pop(), ()):
                if number not in body:
                    body.add(number)
                    work.append(number)
        return body


def _targets(block: Block) -> list[int]:
    return [number for number in (block.following, block.taken) if number >= 0]


def _dominators(blocks: list[Block]) -> list[int]:
    """For each block, as bits, those that every way from the entry to it goes through."""
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for target in _targets(block):
            before[target].append(number)
    every = (1 << len(blocks)) - 1
    found = [1] + [every] * (len(blocks) - 1)
    changed = True
    while changed:
        changed = False
        for number in range(1, len(blocks)):
            both = every
            for other in before[number]:
                both &= found[other]
            both |= 1 << number
            if both != found[number]:
                found[number], changed = both, True
    return found


class _Walk:
    """One wave's way through the graph; ``choices`` are those made before the loop where the text does not decide.

    Parameters
    ----------
    forced
        The first of the choices.
    """

    def __init__(
        self, flow: Flow, wave: int, taken: Mapping[str, bool], turns: Mapping[str, int], forced: Sequence[bool]
    ) -> None:
        self.flow, self.wave, self.taken, self.turns, self.forced = flow, wave, taken, turns, forced
        self.values = Values(wave, flow.effects)
        self.choices: list[bool] = []
        self.remarks: list[str] = []
        self.length = 0

    def path(self, loop: Loop | None) -> Path:
        """Go to a loop, and once round.

        Raises
        ------
        ArgumentError
            If this way leads to none.
        """
        flow = self.flow
        goals = flow.goals(loop)
        heads = {one.head: one for one in goals}
        wanted = flow.reaching([loop.head if loop else goals[0].head])
        # Where the loop that is asked for cannot be reached any more, another will do: with MFMAs, if one can be.
        multiplying = flow.reaching([one.head for one in goals if one.products])
        ways = [*([wanted] if loop else []), multiplying, flow.reaching(heads)]
        before: list[tuple[Instruction, bool]] = []
        passed: dict[int, int] = {}
        block = 0
        while True:
            here = heads.get(block)
            if here is not None and self._stops(here, block, loop, wanted, multiplying):
                return Path(here, before, self._turn(here), self.remarks)
            passed[block] = passed.get(block, 0) + 1
            block = self._through(block, before, ways, passed)
            if block < 0:
                raise ArgumentError(
                    f"wave {self.wave} comes to the end of the kernel and to no loop with matrix or memory work",
                    code=NO_LOOP,
                )

    @staticmethod
    def _stops(here: Loop, block: int, loop: Loop | None, wanted: frozenset[int], multiplying: frozenset[int]) -> bool:
        if loop is not None and block in wanted:
            return here.head == loop.head
        return bool(here.products) or block not in multiplying

    def _turn(self, loop: Loop) -> list[tuple[Instruction, bool]]:
        """One turn of a loop, of which every turn but the first is one: what a turn changes is not known."""
        for number in loop.blocks:
            for i in self.flow.blocks[number].instructions:
                self.values.forget(i)
        back = self.flow.reaching([loop.head]) & loop.blocks
        products = {number for number in loop.blocks if any(map(is_mfma, self.flow.blocks[number].instructions))}
        turn: list[tuple[Instruction, bool]] = []
        passed: dict[int, int] = {}
        block = loop.head
        while True:
            passed[block] = passed.get(block, 0) + 1
            ahead = self.flow.reaching(products - passed.keys(), within=loop)
            block = self._through(block, turn, [back, ahead], passed, loop)
            if block == loop.head:
                return turn

    def _through(
        self,
        number: int,
        path: list[tuple[Instruction, bool]],
        ways: list[frozenset[int]],
        passed: dict[int, int],
        loop: Loop | None = None,
    ) -> int:
        """Execute a block; return the next one, -1 at the end of the program."""
        block = self.flow.blocks[number]
        last = block.instructions[-1]
        self.length += len(block.instructions)
        if self.length > _LONGEST:
            raise ArgumentError(f"wave {self.wave} comes to no loop within {_LONGEST:,} instructions", code=NO_LOOP)
        for i in block.instructions[:-1]:
            path.append((i, False))
            self.values.follow(i)
        if last.name not in BRANCHES:
            if last.name not in ("s_endpgm", "s_trap"):
                path.append((last, last.name == "s_branch"))
            self.values.follow(last)
            return block.taken if last.name == "s_branch" else block.following
        goes = self._decide(block, ways, passed, loop)
        path.append((last, goes))
        return block.taken if goes else block.following

    def _decide(self, block: Block, ways: list[frozenset[int]], passed: dict[int, int], loop: Loop | None) -> bool:
        last = block.instructions[-1]
        known = self.values.taken(last)
        target = block.taken if known else block.following
        if known is not None and (loop is None or target in loop.blocks):
            return known
        for way in ways:
            if (block.taken in way) != (block.following in way):
                return block.taken in way
        # Several labels may stand at one place; a branch is told by the one that it names.
        given = last.text.split()[-1]
        name = given if given in self.flow.labels.get(block.taken, ()) else self.flow.label(block.taken)
        if loop is not None:
            around = passed.get(block.taken, 0) if block.taken != loop.head else 0
            if name in self.turns and around:
                return around < self.turns[name]
        if name in self.taken:
            return self.taken[name]
        if loop is not None and block.taken != loop.head and passed.get(block.taken, 0):
            raise ArgumentError(
                f"the loop at {name}, within {loop.name}, goes round as often as data says (line {last.line}: "
                f"{last.text}); say how often, such as {name}=1, or choose it as the loop",
                code=UNDECIDED,
            )
        if block.taken == (loop.head if loop else -1):
            return True
        goes = bool(passed.get(block.following)) and not passed.get(block.taken)
        if loop is None:
            if len(self.choices) < len(self.forced):
                goes = self.forced[len(self.choices)]
            self.choices.append(goes)
        self.remarks.append(
            f"line {last.line}: {last.text}: the text does not say which way; "
            f"taken to {'go to ' + name if goes else 'go on'}"
        )
        return goes
