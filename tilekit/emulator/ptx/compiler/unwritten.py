"""Registers that are read before anything has written them: which reads those may be, and a finding when one is.

The text decides which reads may come too early. A read that no path has written for is reported when it is executed.
One that only some paths have not written for is watched where it matters: as an address, as what is stored, as a
predicate, as the operand of a barrier, as what a warp's matrix product is added to. Other arithmetic on such a value is
left alone, since compilers compute with what they never use.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import ballot
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.errors import Where, describe
from tilekit.emulator.ptx.compiler.control_flow import ControlFlow
from tilekit.emulator.ptx.execution.convergence import listed
from tilekit.emulator.ptx.execution.lockstep_memory import Unsure
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import AddressOperand, Operand, Register, RegisterOperand, VectorOperand

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.warp import Warp

Mask = npt.NDArray[np.bool_]

_STORES = ("st", "atom", "red")
_PRODUCTS = ("mma", "wmma")
_ADDEND = 3
"""Place of C among the operands of a warp's product; what else these opcodes do has fewer."""
_BARRIERS = ("mbarrier", "bar", "barrier")


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a register that may not have been written.

    Attributes
    ----------
    decoded, register
        What reads what.
    certain
        Whether no path has written it.
    use
        What happens to the value, such as ``used as an address``; ``read`` where it is computed with.
    """

    decoded: Decoded
    register: Register
    certain: bool
    use: str


def unwritten_reads(code: Sequence[Decoded], flow: ControlFlow, count: int) -> Iterator[Read]:
    """Every such read of ``count`` registers, in the order of the blocks.

    Accumulators of wgmma do not count: their first use may overwrite them. Nor do packing instructions: compilers pack
    halves that mean nothing.
    """
    blocks = flow.blocks
    everything = (1 << count) - 1
    # What a block does as a whole: a block is looked at as often as what reaches it changes.
    effects = []
    for block in blocks:
        written, without = 0, everything
        for position in range(block.start, block.end):
            written, without = _after(code[position], written, without)
        effects.append((written, without))
    # On entry of each block: registers that some path has written, and that some path has not; 0 until it is reached.
    some = [0] * len(blocks)
    missing = [0] * len(blocks)
    missing[0] = everything
    reached = {0}
    work = [0]  # a heap: in the order of the text a block mostly comes after those that lead to it
    while work:
        index = heapq.heappop(work)
        while work and work[0] == index:
            heapq.heappop(work)
        written, without = some[index] | effects[index][0], missing[index] & effects[index][1]
        for successor in blocks[index].successors:
            if successor >= len(blocks):
                continue
            if successor not in reached or written & ~some[successor] or without & ~missing[successor]:
                reached.add(successor)
                some[successor] |= written
                missing[successor] |= without
                heapq.heappush(work, successor)
    for block in blocks:
        if block.index not in reached:
            continue
        written, without = some[block.index], missing[block.index]
        for position in range(block.start, block.end):
            yield from _early(code[position], written, without)
            written, without = _after(code[position], written, without)


def _after(decoded: Decoded, written: int, without: int) -> tuple[int, int]:
    for register in decoded.defs:
        written |= 1 << register.number
        if decoded.guard is None:
            without &= ~(1 << register.number)
    return written, without


def _early(decoded: Decoded, written: int, without: int) -> Iterator[Read]:
    """The reads of one instruction, each register once."""
    if _packs(decoded):
        return
    uses = _uses(decoded)
    accumulators = {register.number for register in _accumulators(decoded)}
    for register in dict.fromkeys(decoded.uses):
        number = register.number
        if number not in accumulators and without >> number & 1:
            yield Read(decoded, register, not written >> number & 1, uses.get(number, "read"))


def _uses(decoded: Decoded) -> dict[int, str]:
    """What the registers are used as whose value does not only enter into another one."""
    found: dict[int, str] = {}
    opcode = decoded.form.opcode
    use = "used as a barrier's operand" if opcode in _BARRIERS else "stored"
    for kind, operand in zip(decoded.form.operands, decoded.operands, strict=False):
        if isinstance(operand, AddressOperand):
            found |= dict.fromkeys(_numbers(operand), "used as an address")
        elif not kind.startswith(("d", "{d")) and opcode in (*_STORES, *_BARRIERS):
            found |= dict.fromkeys(_numbers(operand), use)
    if opcode in _PRODUCTS and len(decoded.operands) > _ADDEND:
        found |= dict.fromkeys(_numbers(decoded.operands[_ADDEND]), "added to by a matrix product")
    if decoded.guard is not None:
        found[decoded.guard.register.number] = "used as a predicate"
    return found


def _numbers(operand: Operand) -> Iterator[int]:
    match operand:
        case RegisterOperand(register=register):
            yield register.number
        case VectorOperand(items=items):
            for item in items:
                yield from _numbers(item)
        case AddressOperand(base=base, coordinates=coordinates):
            for item in (base, *(coordinates or ())):
                yield from _numbers(item)


def _accumulators(decoded: Decoded) -> Iterator[Register]:
    """Registers that an instruction reads and writes in one operand."""
    for kind, operand in zip(decoded.form.operands, decoded.operands, strict=False):
        if "+" in kind:
            for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
                if isinstance(item, RegisterOperand):
                    yield item.register


def _packs(decoded: Decoded) -> bool:
    """Whether an instruction puts parts together, some of which may be unused."""
    sources = decoded.operands[1:]
    return decoded.form.opcode == "prmt" or (
        decoded.form.opcode == "mov" and any(isinstance(operand, VectorOperand) for operand in sources)
    )


class Watched:
    """The reads of a program that are watched when it runs.

    Attributes
    ----------
    reads
        By position of the instruction.
    slots
        Of the registers that are written on some paths only: where a warp keeps which of its lanes have.
    """

    def __init__(self, program: Program) -> None:
        self.reads: dict[int, list[Read]] = {}
        self.slots: dict[int, int] = {}
        if program.procedures:
            return  # their registers are those of the caller
        for read in unwritten_reads(program.code, program.flow, len(program.registers)):
            number = read.register.number
            if number not in program.tile_rows and (read.certain or read.use != "read"):
                self.reads.setdefault(read.decoded.index, []).append(read)
                if not read.certain:
                    self.slots.setdefault(number, len(self.slots))


def wrote(warp: Warp, slot: int, mask: Mask | None) -> None:
    """Note that lanes have written a register."""
    known = warp.written[slot]
    if known is not True:
        warp.written[slot] = True if mask is None else mask.copy() if known is None else known | mask


def check_written(warp: Warp, read: Read, slot: int | None, mask: Mask | None) -> None:
    """Report a read by lanes that have not written the register."""
    if not warp.cta.launch.protocol:
        return
    known: Any = None if slot is None else warp.written[slot]
    active = warp.live if mask is None else mask & warp.live
    missing = active if known is None else active & ~known
    if known is True or not missing.any():
        return
    if warp.program.warps > 1:
        raise Unsure
    instruction = read.decoded.instruction
    why = (
        "nothing writes it on any path to here" if read.certain else f"{listed(ballot(missing))} came by a path without"
    )
    warp.cta.launch.findings.add(
        Finding(
            "uninitialised",
            f"{read.register.name} is {read.use} on line {instruction.line} before anything has written it",
            (f"by {warp.actor} of CTA {warp.cta.rank}, at {describe(instruction)}", why),
            f"write {read.register.name} on every path that leads here",
            Where(warp.program.name, warp.actor, instruction),
        )
    )
