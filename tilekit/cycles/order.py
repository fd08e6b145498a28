"""The order of one turn's instructions as a problem for CP-SAT, over the figures of the model.

What fences (waits, barriers, priorities, branches) separate stays apart, memory instructions of a kind stay in their
order, so counters count what they counted, and registers are written and read as before. Within that every instruction
is given an issue slot such that matrix core, vector port, LDS and vector L1 each do one thing at a time, and the turn
is as short as can be proved. OR-tools is needed: ``pip install 'tilekit-gpu[schedule]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilekit.cycles.loop import read_loop, replay_loop
from tilekit.cycles.machine import Machine
from tilekit.cycles.steps import BARRIER, BRANCH, LDS, LOAD, MATRIX, NOP, PRIORITY, SCALAR_LOAD, VECTOR, WAIT, Step
from tilekit.emulator.gcn.checks.hazards import Sides
from tilekit.emulator.gcn.compiler.effects import effects
from tilekit.emulator.gcn.language.syntax import M0
from tilekit.emulator.gcn.lint import lint
from tilekit.emulator.gcn.memory.outstanding import SCALARS
from tilekit.errors import ArgumentError

__all__ = ["Order", "best_order"]

_FENCES: Final = {WAIT, BARRIER, BRANCH, NOP, PRIORITY}
_SCC: Final = 1 << (SCALARS + 253)
_M0: Final = 1 << (SCALARS + M0)
_MOST_STATES: Final = 20
"""Wait states that instructions are to be apart at most."""
_MISSING, _REFUSED = "TK-CYCLES-007", "TK-CYCLES-008"


@dataclass(frozen=True)
class Order:
    """An order of a turn's instructions.

    Attributes
    ----------
    text
        The whole text with the turn in that order; as it was given where the model finds the new order no quicker.
    found, bound
        Clocks of the order that was found, and below which none is, by the solver's view: one turn by itself, with
        units that each do one thing at a time and no queues.
    before, after
        Clocks of a turn as the model replays them, of the given text and of this.
    """

    text: str
    found: int
    bound: int
    before: float
    after: float

    @property
    def optimal(self) -> bool:
        """Whether the solver has proved that no order is shorter."""
        return self.found == self.bound


def best_order(
    text: str,
    *,
    loop: str | None = None,
    chip: str | None = None,
    waves: int = 4,
    seconds: float = 10.0,
    **figures: int,
) -> Order:
    """Find the shortest order of a loop's turn, which is never slower than the given one as the model replays it.

    Parameters
    ----------
    text
        AMDGCN text, each instruction of the loop on a line of its own.
    loop, chip, figures
        As for `replay_loop`; the loop is wave 0's.
    waves
        Waves of the workgroup in the replay. The solver takes one for each SIMD.
    seconds
        After which the best order so far is taken.

    Raises
    ------
    ArgumentError
        If OR-tools is not there, the turn goes through a branch, or the solver finds nothing in time.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise ArgumentError("OR-tools is not installed: pip install 'tilekit-gpu[schedule]'", code=_MISSING) from None
    machine, accumulators, steps = read_loop(text, loop, chip, figures)
    lines = [step.instruction.line for step in steps]
    if sorted(set(lines)) != lines:
        raise ArgumentError("loop: the turn is no straight run of lines, one instruction each", code=_REFUSED)
    if any(step.kind == BRANCH for step in steps[:-1]):
        raise ArgumentError("loop: the turn goes through a branch before its end; legal: a straight run", code=_REFUSED)
    pairs = [*_before(steps, accumulators), *_apart(steps, accumulators, machine.chip)]
    model = _Model(cp_model.CpModel(), machine, steps, pairs)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    state = solver.solve(model.model)
    if state not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise ArgumentError.of(
            "seconds", seconds, legal="long enough for a first order", nearest=2 * seconds, code=_REFUSED
        )
    at = [solver.value(slot) for slot in model.slots]
    order = sorted(range(len(steps)), key=at.__getitem__)
    given = text.split("\n")
    rows = list(given)
    for line, place in zip(lines, order, strict=True):
        rows[line - 1] = given[lines[place] - 1]
    ordered = "\n".join(rows)
    before, after = (
        replay_loop(one, kernel=None, loop=loop, chip=chip, waves=waves, taken=None, turns=None, **figures).clocks
        for one in (text, ordered)
    )
    found, bound = round(solver.objective_value), round(solver.best_objective_bound)
    if after >= before or _hazards(ordered, chip) > _hazards(text, chip):
        ordered, after = text, before
    return Order(ordered, found * machine.issue, bound * machine.issue, before, after)


class _Model:
    """The problem: a slot for each step, in units of one issue."""

    def __init__(self, model: Any, m: Machine, steps: Sequence[Step], before: Sequence[tuple[int, int]]) -> None:
        self.model, self.m, self.steps = model, m, steps
        most = sum(self._length(step) for step in steps) + m.lds_latency
        self.slots = [model.new_int_var(0, most, f"slot {place}") for place in range(len(steps))]
        self.end = model.new_int_var(0, 2 * most, "end")
        for earlier, later in before:
            model.add(self.slots[later] > self.slots[earlier])
        self._units()
        self._waits()
        for slot, step in zip(self.slots, steps, strict=True):
            model.add(self.end >= slot + (self._slots(m.branch) if step.kind == BRANCH else self._length(step)))
        for slot, time in zip(self.slots, self._as_given(), strict=True):
            model.add_hint(slot, time)
        model.minimize(self.end)

    def _slots(self, clocks: int) -> int:
        return -(-clocks // self.m.issue)

    def _length(self, step: Step) -> int:
        if step.kind == MATRIX:
            return self._slots(step.busy)
        return self._slots(max(step.port, self.m.issue))

    def _uses(self, step: Step) -> dict[str, int]:
        """The units that a step needs, each for so many slots."""
        shared = self.m.simds
        uses = {"issue": self._slots(step.port) if step.kind == NOP else 1}
        if step.kind == MATRIX:
            uses |= {"core": self._slots(step.busy), "vector": self._slots(step.port)}
        elif step.kind == VECTOR:
            uses["vector"] = self._slots(step.port)
        elif step.kind == LDS:
            uses["lds"] = self._slots(max(step.busy * shared, step.extra * shared // 2))
        elif step.kind == LOAD:
            uses["load"] = self._slots(step.busy * shared)
        return uses

    def _as_given(self) -> list[int]:
        """Slots of the steps in the order in which they are given, each as early as the units and waits let it."""
        free: dict[str, int] = {}
        slots: list[int] = []
        landing: list[int] = []
        for place, step in enumerate(self.steps):
            uses = self._uses(step)
            at = max([0, *(free.get(name, 0) for name in uses)])
            for back, clocks in step.depends:
                if back <= place and self.steps[place - back].kind == MATRIX:
                    at = max(at, slots[place - back] + self._slots(clocks))
            if step.kind == LDS:
                landing.append(at + self._slots(self.m.lds_latency + step.extra))
            elif step.kind == WAIT and step.extra < len(landing):
                at = max([at, *landing[: len(landing) - step.extra]])
                landing = landing[len(landing) - step.extra :]
            slots.append(at)
            free |= {name: at + length for name, length in uses.items()}
        return slots

    def _units(self) -> None:
        """One instruction a slot; matrix core, vector port, LDS and vector L1 are each for one at a time."""
        units: dict[str, list[tuple[int, int]]] = {}
        for place, step in enumerate(self.steps):
            for name, length in self._uses(step).items():
                units.setdefault(name, []).append((place, length))
        for name, users in units.items():
            self.model.add_no_overlap(
                self.model.new_fixed_size_interval_var(self.slots[place], length, f"{name} {place}")
                for place, length in users
            )
        for place, step in enumerate(self.steps):
            for back, clocks in step.depends:
                if back <= place and self.steps[place - back].kind == MATRIX:
                    self.model.add(self.slots[place] >= self.slots[place - back] + self._slots(clocks))

    def _waits(self) -> None:
        """What a wait for LDS lets go on comes when the data of the reads before it is there."""
        reads: list[int] = []
        for place, step in enumerate(self.steps):
            if step.kind == LDS:
                reads.append(place)
            elif step.kind == WAIT and step.extra < len(reads):
                for read in reads[: len(reads) - step.extra]:
                    landed = self._slots(self.m.lds_latency + self.steps[read].extra)
                    self.model.add(self.slots[place] >= self.slots[read] + landed)
                reads = reads[len(reads) - step.extra :]


def _before(steps: Sequence[Step], accumulators: int) -> list[tuple[int, int]]:
    """Pairs of steps whose order must stay, without those that follow from others by fences."""
    found = [effects(step.instruction, accumulators) for step in steps]
    reads = [one.reads for one in found]
    writes = [one.writes | one.load for one in found]
    for place, step in enumerate(steps):
        name = step.instruction.name
        if name.startswith(("s_add", "s_sub", "s_cmp", "s_and", "s_or", "s_lsh", "s_bit")):
            writes[place] |= _SCC
        if name.startswith(("s_addc", "s_subb", "s_cselect", "s_cmov", "s_cbranch_scc")):
            reads[place] |= _SCC
        if step.kind == LOAD and (step.instruction.flag("lds") or "load_lds" in name):
            reads[place] |= _M0
    pairs = []
    fence = -1
    for place, step in enumerate(steps):
        if step.kind in _FENCES:
            pairs += [(earlier, place) for earlier in range(max(fence, 0), place)]
            fence = place
            continue
        if fence >= 0:
            pairs.append((fence, place))
        for earlier in range(fence + 1, place):
            other = steps[earlier]
            ordered = step.kind == other.kind and step.kind in (LDS, LOAD, SCALAR_LOAD)
            touches = writes[earlier] & (reads[place] | writes[place]) or reads[earlier] & writes[place]
            if ordered or touches:
                pairs.append((earlier, place))
    return pairs


def _apart(steps: Sequence[Step], accumulators: int, chip: str) -> list[tuple[int, int]]:
    """Pairs that keep between instructions that are to be wait states apart as many as those of what stands there.

    Round the loop nothing is kept: an order that lacks wait states there is not taken.
    """
    sides = [Sides(step.instruction, accumulators) for step in steps]
    pairs = []
    for place, consumer in enumerate(sides):
        for earlier in range(max(0, place - _MOST_STATES - 1), place):
            needed = max((hazard.needed for hazard in consumer.after(sides[earlier], 0, chip)), default=0)
            between = range(place - 1, max(earlier, place - 1 - needed), -1)
            pairs += [pair for one in between for pair in ((earlier, one), (one, place))]
    return pairs


def _hazards(text: str, chip: str | None) -> int:
    """How often wait states are missing in a text that describes a kernel."""
    return sum(remark.rule == "hazard" for remark in lint(text, chip))
