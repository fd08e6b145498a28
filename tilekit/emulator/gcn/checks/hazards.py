"""Wait states: instructions that must lie between a producer and a consumer, as these chips ask of the program.

The table is :data:`RULES`. Every instruction in between counts as one, ``s_nop n`` as n + 1. :func:`hazards` follows
the branches of a kernel, and takes the shortest way to each consumer; :class:`Recent` is what it knows on the way, for
those who put wait states in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from tilekit.emulator.core.errors import describe
from tilekit.emulator.gcn.checks.instruction_kinds import (
    Kind,
    kind_of,
    passes,
)
from tilekit.emulator.gcn.compiler.effects import effects
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.language.syntax import Constant, Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["RULES", "Hazard", "Recent", "Rule", "Sides", "hazards"]

VECTORS = (1 << SCALARS) - 1
VCC_BITS = 3 << (SCALARS + 106)
M0_BIT = 1 << (SCALARS + 124)
_LONGEST = 24
_SMALL, _SMALL_DOUBLE = 2, 4
"""Passes of the matrix instructions of 4 x 4: other types, and doubles."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """Too few wait states between two instructions.

    Attributes
    ----------
    producer, consumer
        The instructions.
    rule
        What is asked, in words.
    needed, found
        Wait states.
    """

    producer: Instruction
    consumer: Instruction
    rule: str
    needed: int
    found: int

    def __str__(self) -> str:
        return (
            f"{describe(self.consumer)}: {self.rule}: {self.needed} wait states after "
            f"{describe(self.producer)}, and there {'is' if self.found == 1 else 'are'} {self.found}"
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table.

    Attributes
    ----------
    words
        What is asked.
    produces, consumes
        The bits of registers by which an instruction may be the producer, or the consumer; they must meet.
    states
        Wait states between the two on a chip.
    """

    words: str
    produces: Callable[[Kind], int]
    consumes: Callable[[Kind], int]
    states: Callable[[Kind, Kind, str], int]


def _fixed(count: int, only: str = "") -> Callable[[Kind, Kind, str], int]:
    return lambda producer, consumer, chip: count if not only or chip == only else 0


def _vectors_written(k: Kind) -> int:
    return k.effects.writes & VECTORS if k.vector and not k.matrix else 0


def _scalars_written(k: Kind) -> int:
    return k.effects.writes & ~VECTORS if k.vector and not k.matrix else 0


def _matrix_result(k: Kind) -> int:
    return k.effects.writes if k.matrix else 0


def _touched(k: Kind) -> int:
    """What VALU and memory instructions read or overwrite, and what a matrix instruction multiplies."""
    if k.matrix:
        return k.multiplied
    if k.vector or k.memory:
        return (k.effects.reads | k.effects.writes | k.effects.load) & VECTORS
    return 0


def _after_matrix(producer: Kind, consumer: Kind, chip: str) -> int:
    count = passes(producer.instruction, chip)
    if producer.double:
        small = count == _SMALL_DOUBLE
        if consumer.memory:
            return 9 if small else 18
        return 6 if small else 11 if chip == "gfx942" else 19
    if not producer.xdl:
        return count + 2
    return count + (3 if chip == "gfx942" else 4)


def _after_matrix_added(producer: Kind, consumer: Kind, chip: str) -> int:
    count = passes(producer.instruction, chip)
    small = producer.double and count == _SMALL_DOUBLE
    if producer.effects.writes == consumer.added:
        both = small and consumer.name == producer.name
        return 4 if both else 2 if count == _SMALL else 0
    if producer.double:
        return 0 if consumer.xdl else 4 if small else 9 if chip == "gfx942" else 17
    if not producer.xdl:
        return 0 if consumer.xdl else count
    return count + (1 if chip == "gfx942" else 2)


def _after_dot(producer: Kind, consumer: Kind, chip: str) -> int:
    return 0 if producer.name == consumer.name else 3


def _after_same_dot(producer: Kind, consumer: Kind, chip: str) -> int:
    return 3 if producer.name == consumer.name else 0


def _overwrites(k: Kind) -> int:
    return (k.effects.writes | k.effects.load) & VECTORS if (k.vector or k.memory) and not k.matrix else 0


def _after_added(producer: Kind, consumer: Kind, chip: str) -> int:
    return passes(producer.instruction, chip) - 1 if producer.xdl else 0


RULES = (
    Rule("a matrix result is read or overwritten", _matrix_result, _touched, _after_matrix),
    Rule("a matrix result is added to, and not by exactly the same registers", _matrix_result,
         lambda k: k.added if k.matrix else 0, _after_matrix_added),
    Rule("what a matrix instruction adds to is overwritten",
         lambda k: k.added & ~k.effects.writes if k.matrix else 0, _overwrites, _after_added),
    Rule("a matrix instruction reads what a vector instruction wrote", _vectors_written,
         lambda k: k.effects.reads & VECTORS if k.matrix else 0, _fixed(2)),
    Rule("a transcendental result is read", lambda k: _vectors_written(k) if k.transcendental else 0,
         lambda k: k.effects.reads & VECTORS if k.vector and not k.matrix and not k.transcendental else 0, _fixed(1)),
    Rule("a dot product is read or overwritten", lambda k: _vectors_written(k) if k.dot else 0,
         lambda k: _touched(k) if not k.matrix else 0, _after_dot),
    Rule("a dot product is multiplied", lambda k: _vectors_written(k) if k.dot else 0,
         lambda k: k.multiplied if k.dot else 0, _after_same_dot),
    Rule("a matrix instruction after v_cmpx", lambda k: 1 if k.name.startswith("v_cmpx") else 0,
         lambda k: 1 if k.matrix else 0, _fixed(4)),
    Rule("a double is multiplied and added after a matrix instruction of doubles", lambda k: 1 if k.double else 0,
         lambda k: 1 if k.name in ("v_fma_f64", "v_fmac_f64") else 0, _fixed(2)),
    Rule("a register written in part is read", lambda k: _vectors_written(k) if k.partial else 0,
         lambda k: k.sources & VECTORS if k.vector else 0, _fixed(1)),
    Rule("a memory instruction uses a scalar register that a vector instruction wrote", _scalars_written,
         lambda k: k.effects.reads & ~VECTORS if k.memory and not k.lds else 0, _fixed(5)),
    Rule("a vector instruction reads a scalar register that a vector instruction wrote", _scalars_written,
         lambda k: k.scalars_read if k.vector else 0, _fixed(2)),
    Rule("a lane is selected by a scalar register that a vector instruction wrote", _scalars_written,
         lambda k: k.selector, _fixed(4)),
    Rule("v_div_fmas reads VCC that a vector instruction wrote", _scalars_written,
         lambda k: VCC_BITS if k.name.startswith("v_div_fmas") else 0, _fixed(4)),
    Rule("a lane is read of a register that a vector instruction wrote", _vectors_written,
         lambda k: k.effects.reads & VECTORS if k.name in ("v_readlane_b32", "v_readfirstlane_b32") else 0, _fixed(1)),
    Rule("DPP moves a register that was written just before", lambda k: (k.effects.writes | k.effects.load) & VECTORS,
         lambda k: k.moved if k.dpp else 0, _fixed(2)),
    Rule("DPP after v_cmpx", lambda k: 1 if k.name.startswith("v_cmpx") else 0, lambda k: 1 if k.dpp else 0, _fixed(5)),
    Rule("v_permlane after v_cmpx", lambda k: 1 if k.name.startswith("v_cmpx") else 0,
         lambda k: 1 if k.name.startswith("v_permlane") else 0, _fixed(4)),
    Rule("lanes are exchanged of a register that a vector instruction wrote", _vectors_written,
         lambda k: (k.effects.reads | k.effects.writes) & VECTORS if k.name.startswith("v_permlane") else 0,
         _fixed(2, "gfx950")),
    Rule("M0 is used that a scalar instruction wrote", lambda k: k.effects.writes & M0_BIT if k.scalar else 0,
         lambda k: M0_BIT if k.to_lds or k.name.startswith(("s_movrel", "s_sendmsg")) else 0, _fixed(1)),
    Rule("a hardware register is read that s_setreg wrote", lambda k: 1 if k.name.startswith("s_setreg") else 0,
         lambda k: 1 if k.name == "s_getreg_b32" else 0, _fixed(2)),
    Rule("the data of a wide store is overwritten", lambda k: k.stored, lambda k: _vectors_written(k), _fixed(2)),
)  # fmt: skip
"""The table: published by LLVM's hazard recogniser for both chips."""


class Sides:
    """An instruction, and the registers by which it is a producer and a consumer, rule by rule.

    Attributes
    ----------
    instruction, kind
        Which, and what the table sees in it.
    produced, consumed
        By number of the rule, bits of registers.
    steps
        Wait states that it counts for itself.
    """

    __slots__ = ("_any_consumed", "_any_produced", "consumed", "instruction", "kind", "produced", "steps")

    def __init__(self, i: Instruction, accumulators: int) -> None:
        self.instruction = i
        self.kind = kind = kind_of(i, effects(i, accumulators), accumulators)
        self.produced = {number: bits for number, rule in enumerate(RULES) if (bits := rule.produces(kind))}
        self.consumed = [(number, bits) for number, rule in enumerate(RULES) if (bits := rule.consumes(kind))]
        self._any_produced = reduce(or_, self.produced.values(), 0)
        self._any_consumed = reduce(or_, (bits for _, bits in self.consumed), 0)
        self.steps = 1
        if i.name == "s_nop" and i.operands and isinstance(i.operands[0], Constant):
            self.steps = int(i.operands[0].value) + 1

    def after(self, producer: Sides, found: int, chip: str) -> Iterator[Hazard]:
        """What is wrong if so many wait states lie between a producer and this."""
        if not producer._any_produced & self._any_consumed:
            return
        for number, bits in self.consumed:
            if producer.produced.get(number, 0) & bits:
                needed = RULES[number].states(producer.kind, self.kind, chip)
                if found < needed:
                    yield Hazard(producer.instruction, self.instruction, RULES[number].words, needed, found)


class Recent:
    """The producers on the way to a place, and the wait states since each of them.

    Parameters
    ----------
    ages
        Those at the begin.
    """

    def __init__(self, ages: Mapping[Sides, int]) -> None:
        self._now = 0
        self._since = {sides: -age for sides, age in ages.items()}

    def hazards(self, consumer: Sides, chip: str) -> list[Hazard]:
        """What is wrong if an instruction follows here."""
        if not consumer.consumed:
            return []
        now = self._now
        return [
            hazard for producer, since in self._since.items() for hazard in consumer.after(producer, now - since, chip)
        ]

    def wait(self, states: int) -> None:
        """Let wait states pass."""
        self._now += states

    def follow(self, sides: Sides) -> None:
        """Go on behind an instruction."""
        self._now += sides.steps
        if sides.produced:
            oldest = self._now - _LONGEST
            self._since = {other: since for other, since in self._since.items() if since > oldest}
            self._since.pop(sides, None)
            self._since[sides] = self._now

    def ages(self) -> dict[Sides, int]:
        """By producer, the wait states since."""
        return {sides: self._now - since for sides, since in self._since.items() if self._now - since < _LONGEST}


def hazards(blocks: list[Block], accumulators: int, chip: str) -> list[Hazard]:
    """Return every place in a kernel where wait states are missing, in the order of its text."""
    sides = [[Sides(i, accumulators) for i in block.instructions] for block in blocks]
    found: dict[tuple[int, int, str], Hazard] = {}
    entering: list[dict[Sides, int]] = [{} for _ in blocks]
    work = list(range(len(blocks)))
    queued = set(work)
    while work:
        number = work.pop(0)
        queued.discard(number)
        block = blocks[number]
        recent = Recent(entering[number])
        for consumer in sides[number]:
            for hazard in recent.hazards(consumer, chip):
                key = (id(hazard.producer), id(hazard.consumer), hazard.rule)
                known = found.get(key)
                if known is None or known.found > hazard.found:
                    found[key] = hazard
            recent.follow(consumer)
        ages = recent.ages()
        for successor in (block.following, block.taken):
            if successor >= 0 and _merge(entering[successor], ages) and successor not in queued:
                work.append(successor)
                queued.add(successor)
    return sorted(found.values(), key=lambda hazard: (hazard.consumer.line, hazard.producer.line))


def _merge(into: dict[Sides, int], ages: dict[Sides, int]) -> bool:
    """Keep the shortest way from each producer; returns whether something is new."""
    changed = False
    for sides, age in ages.items():
        if age < into.get(sides, _LONGEST):
            into[sides] = age
            changed = True
    return changed
