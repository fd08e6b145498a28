"""Reading nvdisasm's output: instructions, the control flow between them, its loops, and what a loop consists of.

A loop is what a compiler calls a natural loop: a block that dominates the source of a branch back to it, and every
block from which that branch is reached without passing the first. So a loop has its instructions wherever ptxas put
them (the retry of a failed wait usually stands behind the kernel's end), and loops nest. Which loop is which role's is
told by what only that role does: `innermost` finds the smallest loop that has, say, an ``UTMALDG``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<guard>@!?U?P\w+)\s+)?(?P<rest>[A-Z][^;]*?)\s*;"
)
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_BARRIER = re.compile(r"\bB\d+\b")
_OPERAND_GUARD = re.compile(r"^!?U?P\d")
_REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)\b")

_ENDS = ("EXIT", "RET", "KILL")
_JUMPS = ("BRA", "BSYNC")
_UNREADABLE = ("BRX", "BRXU", "JMP", "JMX", "JMXU")
"""Control flow that this reader does not follow; a kernel with one is refused rather than misread."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Attributes
    ----------
    address
        Its offset in the kernel, bytes.
    guard
        Its predicate as written (``@!P1``), or empty.
    opcode
        Mnemonic with modifiers, for example ``UTMALDG.2D.MULTICAST``.
    operands
        The rest, as text.
    """

    address: int
    guard: str
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        """The mnemonic without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> str | None:
        """The label it names: where a BRA goes, where the threads of a BSSY meet."""
        match = _TARGET.search(self.operands)
        return match[1] if match else None

    @property
    def conditional(self) -> bool:
        """Whether control may also fall through: a predicate, in front or as first operand (``BRA.U !UP0, …``), or a
        branch that only diverged threads take."""
        return bool(self.guard or _OPERAND_GUARD.match(self.operands)) or self.opcode in ("BRA.DIV", "BRA.CONV")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.guard, self.opcode, self.operands)))


@dataclass(frozen=True)
class Block:
    """A basic block: instructions that run one after the other."""

    index: int
    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]


@dataclass(eq=False)
class Loop:
    """A natural loop.

    Attributes
    ----------
    header
        Index of the block every turn begins with.
    blocks
        Its blocks, those of inner loops included, by index.
    parent, inner
        The loop around it, and the loops directly within.
    """

    header: int
    blocks: dict[int, Block]
    parent: Loop | None = None
    inner: list[Loop] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        """Everything in the loop, in address order."""
        return [i for index in sorted(self.blocks) for i in self.blocks[index].instructions]

    @property
    def own(self) -> list[Instruction]:
        """What is in this loop and in no inner one."""
        within = {index for loop in self.inner for index in loop.blocks}
        return [i for index in sorted(self.blocks.keys() - within) for i in self.blocks[index].instructions]

    def has(self, opcode: str) -> bool:
        """Whether an instruction is `opcode`, with these or more modifiers."""
        return any(matches(i, opcode) for i in self.instructions)


@dataclass(frozen=True)
class Program:
    """A kernel's machine code.

    Attributes
    ----------
    blocks
        The basic blocks that can be reached from the entry, by index.
    """

    blocks: dict[int, Block]

    @property
    def instructions(self) -> list[Instruction]:
        """Every instruction that can be reached, in address order."""
        return [i for index in sorted(self.blocks) for i in self.blocks[index].instructions]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """All loops, an outer one before its inner ones."""
        bodies: dict[int, set[int]] = {}
        dominators = _dominators(self.blocks)
        for block in self.blocks.values():
            for header in block.successors:
                if header in dominators[block.index]:
                    bodies.setdefault(header, set()).update(_body(self.blocks, header, block.index))
        found = [Loop(h, {i: self.blocks[i] for i in body}) for h, body in bodies.items()]
        found.sort(key=lambda loop: -len(loop.blocks))
        for position, loop in enumerate(found):
            around = [outer for outer in found[:position] if loop.blocks.keys() < outer.blocks.keys()]
            if around:
                loop.parent = around[-1]
                around[-1].inner.append(loop)
        return tuple(found)

    @property
    def once(self) -> list[Instruction]:
        """What stands in no loop."""
        within = {index for loop in self.loops for index in loop.blocks}
        return [i for index in sorted(self.blocks.keys() - within) for i in self.blocks[index].instructions]

    def innermost(self, opcode: str) -> Loop:
        """Return the smallest loop that has `opcode`.

        Raises
        ------
        LookupError
            When no loop has it, or loops that do not nest do.
        """
        having = [loop for loop in self.loops if loop.has(opcode) and not any(i.has(opcode) for i in loop.inner)]
        if len(having) != 1:
            raise LookupError(f"{len(having)} innermost loops have {opcode}, not one")
        return having[0]

    def highest_register(self, kind: str) -> int:
        """The highest number of a register of `kind` (``R`` or ``UR``) that an instruction names; -1 for none."""
        names = (match for i in self.instructions for match in _REGISTER.finditer(i.operands))
        return max((int(name[2]) for name in names if name[1] == kind), default=-1)


def matches(instruction: Instruction, opcode: str) -> bool:
    """Whether an instruction is `opcode`, with these or more modifiers: UTMALDG.2D is UTMALDG, UTMALDGX is not."""
    return f"{instruction.opcode}.".startswith(f"{opcode}.")


def read(sass: str) -> Program:
    """Read the one kernel in the output of ``nvdisasm --print-code``.

    Raises
    ------
    ValueError
        For text without instructions, a branch to nowhere, or control flow that this reader does not follow.
    """
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            opcode, _, operands = match["rest"].partition(" ")
            instructions.append(Instruction(int(match["address"], 16), match["guard"] or "", opcode, operands.strip()))
    if not instructions:
        raise ValueError("no instructions: is this the output of nvdisasm?")
    targets = [_targets(at, instructions, labels) for at in range(len(instructions))]
    starts = sorted(
        {0, *labels.values(), *(at + 1 for at, i in enumerate(instructions) if i.base in (*_JUMPS, *_ENDS))}
    )
    starts = [start for start in starts if start < len(instructions)]
    number = {start: index for index, start in enumerate(starts)}
    blocks = {}
    for index, (first, end) in enumerate(zip(starts, [*starts[1:], len(instructions)], strict=True)):
        successors = tuple(number[target] for target in targets[end - 1] if target < len(instructions))
        blocks[index] = Block(index, tuple(instructions[first:end]), successors)
    return Program({index: blocks[index] for index in sorted(_reachable(blocks))})


def _targets(at: int, instructions: list[Instruction], labels: dict[str, int]) -> tuple[int, ...]:
    """Where control goes from an instruction, as positions."""
    here = instructions[at]
    if any(matches(here, opcode) for opcode in _UNREADABLE):
        raise ValueError(f"{here} at {here.address:#x}: control flow that is not followed here")
    label = None
    if here.base == "BRA":
        label = here.target
        if label is None:
            raise ValueError(f"{here} at {here.address:#x}: a branch without a label")
    elif here.base == "BSYNC":
        # Threads go on where the BSSY that set the barrier says, which need not be the next instruction.
        barrier = _barrier(here)
        label = next((i.target for i in instructions[at::-1] if i.base == "BSSY" and _barrier(i) == barrier), None)
    if label is not None and label not in labels:
        raise ValueError(f"{here} at {here.address:#x}: no label {label}")
    through = () if here.base in (*_ENDS, *_JUMPS) and not here.conditional else (at + 1,)
    return (*through, labels[label]) if label is not None else through


def _barrier(instruction: Instruction) -> str:
    match = _BARRIER.search(instruction.operands)
    return match[0] if match else ""


def _reachable(blocks: dict[int, Block]) -> set[int]:
    seen: set[int] = set()
    waiting = [0]
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            waiting.extend(blocks[index].successors)
    return seen


def _dominators(blocks: dict[int, Block]) -> dict[int, set[int]]:
    """For each block the blocks that every way from the entry passes, itself included."""
    before: dict[int, list[int]] = {index: [] for index in blocks}
    for block in blocks.values():
        for successor in block.successors:
            before[successor].append(block.index)
    result = {index: set(blocks) for index in blocks}
    result[0] = {0}
    changed = True
    while changed:
        changed = False
        for index in blocks.keys() - {0}:
            now = {index} | set.intersection(*(result[p] for p in before[index]))
            changed |= now != result[index]
            result[index] = now
    return result


def _body(blocks: dict[int, Block], header: int, source: int) -> set[int]:
    """The blocks from which `source` is reached without passing `header`, and the header."""
    body = {header}
    waiting = [source]
    while waiting:
        index = waiting.pop()
        if index not in body:
            body.add(index)
            waiting.extend(b.index for b in blocks.values() if index in b.successors)
    return body


_SYNONYMS = {
    "add": r"IADD3|VIADD|IMAD\.IADD",
    "move": r"MOV|IMAD\.MOV(\.U32)?|IMAD\.U32",
    "shift left": r"SHF\.L\.U32|IMAD\.SHL\.U32",
    "compare": r"ISETP\.\w+\.U32\.AND",
    "compare, uniform": r"UISETP\.\w+\.U32\.AND",
}
"""Instructions that ptxas takes for one another, to balance the pipes or by turning a condition round."""

_ARITHMETIC = re.compile(
    r"U?(BMSK|IADD3?|IMAD|ISETP|LDC|LEA|LOP3|MOV|PLOP3|PRMT|SEL|SGXT|SHF)|CS2U?R|F2I|FMUL|I2FP?|IABS|IMNMX|LDCU|MUFU|NOP|"
    r"P2R|R2P|R2UR|S2U?R|UP2UR|VIADD|VIADDMNMX|VIMNMX"
)
"""Mnemonics of address and counting arithmetic (integer division by way of floats included), constants and moves."""


def is_arithmetic(instruction: Instruction) -> bool:
    """Whether an instruction only finds out where and how often: no memory, matrix unit, barrier, branch or result."""
    return _ARITHMETIC.fullmatch(instruction.base) is not None


def work(instruction: Instruction) -> str:
    """What an instruction does: its opcode with modifiers, or a name for all that ptxas takes for one another."""
    names = (name for name, pattern in _SYNONYMS.items() if re.fullmatch(pattern, instruction.opcode))
    return next(names, instruction.opcode)


def histogram(instructions: Iterable[Instruction]) -> Counter[str]:
    """How often each kind of `work` is done."""
    return Counter(work(i) for i in instructions)
