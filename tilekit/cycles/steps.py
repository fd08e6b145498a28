"""What one instruction costs: the unit that it goes to, how long it keeps it, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilekit.cycles.machine import PEAK, Machine
from tilekit.emulator.gcn.checks.instruction_kinds import passes
from tilekit.emulator.gcn.compiler.effects import Effects, effects, is_mfma
from tilekit.emulator.gcn.language.syntax import Constant, Instruction, Register
from tilekit.emulator.gcn.matrix.products import FORMATS
from tilekit.emulator.gcn.matrix.shapes import BITS, SHAPES
from tilekit.emulator.gcn.memory.outstanding import SCALARS
from tilekit.emulator.gcn.ops.control import counts

__all__ = [
    "BARRIER", "BRANCH", "LDS", "LOAD", "MATRIX", "NOP", "PRIORITY", "SCALAR", "SCALAR_LOAD", "VECTOR", "WAIT",
    "Product", "Step", "product_of", "steps_of",
]  # fmt: skip

MATRIX, VECTOR, SCALAR, LDS, LOAD, SCALAR_LOAD, WAIT, BARRIER, NOP, PRIORITY, BRANCH = range(11)
"""Where an instruction goes."""

_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32|64)$")
_QUARTER = re.compile(r"v_(mul_lo|mul_hi|mad_u64|mad_i64)")
_SWAP = re.compile(r"v_permlane(16|32)_swap")
_PACKED = re.compile(r"v_pk_(add|mul|fma|mov)_(f32|b32)$")
_WIDTH = re.compile(r"(?:dword(?:x([234]))?|b(\d+)|u8|i8|u16|i16|byte|short)")
_VECTORS: Final = (1 << SCALARS) - 1
_UNKNOWN_PASSES: Final = 8
"""Of a matrix instruction whose shape is not known, such as sparse ones."""
_LANES: Final = 64


@dataclass(frozen=True, slots=True)
class Product:
    """What a matrix instruction computes: FLOP, and the chip's most FLOP a clock for factors of such a width."""

    flop: int
    peak: int


@dataclass(slots=True)
class Step:
    """An instruction on a wave's path, as the replay needs it.

    Attributes
    ----------
    kind
        Where it goes.
    instruction
        Which it is.
    port
        Clocks that it keeps the port by which it is issued.
    busy
        Clocks of the unit behind the port: passes of the matrix core, service of LDS, transfer of a load.
    extra
        What more the kind needs: the bus's clocks of an LDS access, bytes of a load, lgkmcnt of a wait, turns of
        ``s_nop``, the priority, whether a VALU instruction is packed, or whether a branch is taken.
    counter
        vmcnt of a wait, or LDS's clocks for what a load writes there.
    depends
        (how many steps back an MFMA is, clocks from its issue to when this may be issued).
    """

    kind: int
    instruction: Instruction
    port: int
    busy: int = 0
    extra: int = 0
    counter: int = 0
    depends: tuple[tuple[int, int], ...] = ()


def product_of(i: Instruction, chip: str) -> Product | None:
    """Return what a matrix instruction computes; None for others, and for those whose shape is not known."""
    shape = SHAPES.get(i.name)
    if shape is None:
        return None
    if shape.a == "f8f6f4" and not _formats(i):
        return None
    if shape.a == "f8f6f4":
        bits = max(BITS[FORMATS[i.modifiers.get(name, 0)]] for name in ("cbsz", "blgp"))
    else:
        bits = max(BITS[shape.a], BITS[shape.b])
    peak = PEAK[chip].get(bits, PEAK[chip][8])
    if shape.a == "xf32":
        peak *= 4
    return Product(2 * shape.m * shape.n * shape.k * shape.blocks * (2 if shape.sparse else 1), peak)


def _bytes_of(name: str) -> int:
    """Bytes of a lane that a memory instruction moves."""
    found = _WIDTH.findall(name.replace("2st64", "2"))
    size = 4
    if found:
        dwords, bits = found[-1]
        size = 4 * int(dwords) if dwords else int(bits) // 8 if bits else 4
    return size * (2 if re.match(r"ds_(read|write)2", name) else 1)


def _registers(i: Instruction, place: int) -> int:
    operand = i.operands[place] if place < len(i.operands) else None
    return operand.count if isinstance(operand, Register) else 0


def _integer(i: Instruction) -> int:
    operand = i.operands[0] if i.operands else None
    return operand.value if isinstance(operand, Constant) and isinstance(operand.value, int) else 0


def _formats(i: Instruction) -> bool:
    """Whether the formats of the factors of f8f6f4 are such as there are."""
    return all(i.modifiers.get(name, 0) in range(len(FORMATS)) for name in ("cbsz", "blgp"))


def _matrix(i: Instruction, m: Machine) -> Step:
    widest = max(_registers(i, 1), _registers(i, 2), 2)
    busy = ((passes(i, m.chip) if _formats(i) else 0) or _UNKNOWN_PASSES) * m.matrix_pass
    return Step(MATRIX, i, min(m.matrix_read * -(-widest // 2), busy), busy)


def _lds(i: Instruction, m: Machine, ways: int) -> Step:
    size = _bytes_of(i.name)
    if "bpermute" in i.name or "permute" in i.name:
        size = 4
    total = size * _LANES
    rate = m.lds_write_bytes if i.name.startswith("ds_write") else m.lds_bytes
    service = -(-total * ways // rate)
    return Step(LDS, i, m.issue, service, -(-total // m.lds_bus))


def _load(i: Instruction, m: Machine) -> Step:
    size = _bytes_of(i.name)
    busy = m.load_dword if size <= 4 else m.load_wide
    stores = "_store_" in i.name
    to_lds = i.flag("lds") or i.name.startswith("global_load_lds")
    written = -(-size * _LANES // m.lds_bytes) if to_lds else 0
    return Step(LOAD, i, m.issue, busy, 0 if stores else size * _LANES, written)


def _vector(i: Instruction, m: Machine) -> Step:
    clocks = m.vector
    if _TRANSCENDENTAL.match(i.name):
        clocks = m.transcendental
    elif _QUARTER.match(i.name):
        clocks = m.quarter_rate
    elif _SWAP.match(i.name):
        clocks = m.lane_swap
    return Step(VECTOR, i, clocks, 0, int(bool(_PACKED.match(i.name))))


def _special(i: Instruction, m: Machine) -> Step:
    name = i.name
    if name == "s_waitcnt":
        vector, other = counts(i)
        return Step(WAIT, i, m.issue, 0, other, vector)
    if name == "s_barrier":
        return Step(BARRIER, i, m.issue)
    if name == "s_nop":
        return Step(NOP, i, m.issue * (_integer(i) + 1))
    if name == "s_sleep":
        return Step(NOP, i, max(64 * _integer(i), m.issue))
    if name == "s_setprio":
        return Step(PRIORITY, i, m.issue, 0, _integer(i))
    if name.startswith(("s_cbranch", "s_branch")):
        return Step(BRANCH, i, m.issue)
    if name.startswith(("s_load", "s_buffer_load", "s_store", "s_atomic", "s_dcache")):
        return Step(SCALAR_LOAD, i, m.issue)
    return Step(SCALAR, i, m.issue)


def _cost(i: Instruction, m: Machine, ways: int) -> Step:
    name = i.name
    if is_mfma(i):
        return _matrix(i, m)
    if name.startswith("v_"):
        return _vector(i, m)
    if name.startswith("ds_"):
        return _lds(i, m, ways)
    if name.startswith(("buffer_inv", "buffer_wb")):
        return Step(SCALAR, i, m.issue)
    if name.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return _load(i, m)
    return _special(i, m)


@lru_cache(1 << 16)
def _bits(operand: Register, accumulators: int) -> int:
    first = operand.first + {"s": SCALARS, "v": 0, "a": accumulators}[operand.file]
    return ((1 << operand.count) - 1) << first


def steps_of(
    path: Sequence[Instruction], m: Machine, *, accumulators: int, ways: Sequence[int] | int = 1, cyclic: bool = True
) -> list[Step]:
    """Return the steps of a path.

    Parameters
    ----------
    path
        Instructions in the order in which a wave executes them.
    m
        The machine.
    accumulators
        Row of register a0.
    ways
        How often LDS must be read for one access, for all of them or for each instruction; 1 without conflicts.
    cyclic
        Whether the first instruction follows the last one.
    """
    each = [ways] * len(path) if isinstance(ways, int) else list(ways)
    steps = [_cost(i, m, way) for i, way in zip(path, each, strict=True)]
    found = [effects(i, accumulators) for i in path]
    longest = max((step.busy for step in steps if step.kind == MATRIX), default=0) + m.matrix_result
    reach = min(longest // m.issue, len(path) - (not cyclic))
    producers = [place for place, step in enumerate(steps) if step.kind == MATRIX]
    waiting: list[list[tuple[int, int]]] = [[] for _ in steps]
    for place in producers:
        written = found[place].writes
        result = steps[place].busy + m.matrix_result
        for back in range(1, min(reach, result // m.issue) + 1):
            consumer = place + back
            if consumer >= len(steps):
                if not cyclic:
                    break
                consumer %= len(steps)
            clocks = _latency(path[place], path[consumer], found[consumer], steps[consumer], written, accumulators, m)
            if clocks:
                waiting[consumer].append((back, steps[place].busy + clocks))
    for step, places in zip(steps, waiting, strict=True):
        step.depends = tuple(sorted(places))
    return steps


def _latency(
    producer: Instruction, i: Instruction, found: Effects, step: Step, written: int, accumulators: int, m: Machine
) -> int:
    """Clocks from the last pass of a producer to its consumer; 0 where nothing waits."""
    touched = (found.reads | found.writes | found.load) & _VECTORS & written
    if not touched:
        return 0
    if step.kind == MATRIX:
        factors = 0
        for operand in i.operands[1:3]:
            factors |= _bits(operand, accumulators) if isinstance(operand, Register) else 0
        added = i.operands[3] if len(i.operands) > 3 else None
        shifted = isinstance(added, Register) and added != producer.operands[0] and _bits(added, accumulators) & written
        if not factors & written and not shifted:
            return 0
    return m.matrix_result
