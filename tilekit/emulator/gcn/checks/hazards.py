"""Wait states: instructions that must lie between a producer and a consumer, as these chips ask of the program.

The table is :data:`RULES`. Every instruction in between counts as one, ``s_nop n`` as n + 1. :func:`hazards` follows
the branches of a kernel, and takes the shortest way to each consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.emulator.gcn.checks.instruction_kinds import (
    Kind,
    kind_of,
    passes,
)
from tilekit.emulator.gcn.compiler.effects import effects
from tilekit.emulator.gcn.compiler.flow import Block
from tilekit.emulator.gcn.language.syntax import Constant, Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["RULES", "Hazard", "Rule", "hazards"]

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
            f"line {self.consumer.line}: {self.consumer.text}: {self.rule}: {self.needed} wait states after line "
            f"{self.producer.line} ({self.producer.text}), and there {'is' if self.found == 1 else 'are'} {self.found}"
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


def _steps(i: Instruction) -> int:
    """Wait states that an instruction itself counts for."""
    if i.name == "s_nop" and i.operands and isinstance(i.operands[0], Constant):
        return int(i.operands[0].value) + 1
    return 1


def hazards(blocks: list[Block], accumulators: int, chip: str) -> list[Hazard]:
    """Return every place in a kernel where wait states are missing, in the order of its text."""
    kinds: dict[int, _Sides] = {}
    for block in blocks:
        for i in block.instructions:
            kinds[id(i)] = _Sides(kind_of(i, effects(i, accumulators), accumulators))
    found: dict[tuple[int, int, str], Hazard] = {}
    entering: list[dict[int, int]] = [{} for _ in blocks]
    work = list(range(len(blocks)))
    queued = set(work)
    while work:
        number = work.pop(0)
        queued.discard(number)
        block = blocks[number]
        ages = entering[number].copy()  # by producer, wait states since
        for i in block.instructions:
            consumer = kinds[id(i)]
            if consumer.consumed:
                for identity, age in ages.items():
                    _compare(kinds[identity], consumer, age, chip, found)
            steps = _steps(i)
            ages = {identity: age + steps for identity, age in ages.items() if age + steps < _LONGEST}
            if consumer.produced:
                ages[id(i)] = 0
        for successor in (block.following, block.taken):
            if successor >= 0 and _merge(entering[successor], ages) and successor not in queued:
                work.append(successor)
                queued.add(successor)
    return sorted(found.values(), key=lambda hazard: (hazard.consumer.line, hazard.producer.line))


def _merge(into: dict[int, int], ages: dict[int, int]) -> bool:
    """Keep the shortest way from each producer; returns whether something is new."""
    changed = False
    for identity, age in ages.items():
        if age < into.get(identity, _LONGEST):
            into[identity] = age
            changed = True
    return changed


class _Sides:
    """An instruction, and the registers by which it is a producer and a consumer, rule by rule."""

    __slots__ = ("consumed", "kind", "produced")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.produced = {number: bits for number, rule in enumerate(RULES) if (bits := rule.produces(kind))}
        self.consumed = [(number, bits) for number, rule in enumerate(RULES) if (bits := rule.consumes(kind))]


def _compare(
    producer: _Sides, consumer: _Sides, age: int, chip: str, found: dict[tuple[int, int, str], Hazard]
) -> None:
    for number, bits in consumer.consumed:
        if not producer.produced.get(number, 0) & bits:
            continue
        rule = RULES[number]
        needed = rule.states(producer.kind, consumer.kind, chip)
        if age < needed:
            first, second = producer.kind.instruction, consumer.kind.instruction
            key = (id(first), id(second), rule.words)
            known = found.get(key)
            if known is None or known.found > age:
                found[key] = Hazard(first, second, rule.words, needed, age)
