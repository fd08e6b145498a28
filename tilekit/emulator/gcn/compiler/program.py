"""A kernel's blocks as Python functions, made when they are first run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.gcn.arithmetic import bits, conversions, dots, floats, lanes, words
from tilekit.emulator.gcn.checks.hazards import Hazard, hazards
from tilekit.emulator.gcn.chips import Chip
from tilekit.emulator.gcn.compiler.effects import Effects, effects, is_memory, is_mfma, queue_of
from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.flow import Block, blocks_of
from tilekit.emulator.gcn.compiler.guesses import first_guesses
from tilekit.emulator.gcn.compiler.indexing import SLOTS, Indexed, indexed_instructions
from tilekit.emulator.gcn.compiler.masks import maskable
from tilekit.emulator.gcn.compiler.polls import polling_loads
from tilekit.emulator.gcn.execution import scalars
from tilekit.emulator.gcn.language.syntax import Instruction, ModuleText
from tilekit.emulator.gcn.ops import OPS
from tilekit.emulator.gcn.ops.control import BARRIER, BRANCHES, END, YIELD

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch

__all__ = ["Function", "Program"]

Function = Callable[["Batch"], int]


def _public(*modules: ModuleType) -> dict[str, Any]:
    return {name: value for module in modules for name, value in vars(module).items() if not name.startswith("__")}


_NAMES: dict[str, Any] = {
    **_public(words, bits, conversions, dots, floats, lanes, scalars),
    "where": np.where, "copyto": np.copyto, "minimum_of": np.minimum, "maximum_of": np.maximum, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "root": np.sqrt, "npmaximum": np.maximum,
    "npminimum": np.minimum, "K0": np.int64(0), "K0F": np.float32(0), "K255": np.uint32(255),
    "BELOW_LOW": np.array([min((1 << lane) - 1, 0xFFFFFFFF) for lane in range(64)], np.uint32),
    "BELOW_HIGH": np.array([(1 << max(lane - 32, 0)) - 1 for lane in range(64)], np.uint32),
    "FP4": conversions.NARROW["fp4"],
    "spread_rows": lambda value, waves: np.broadcast_to(value, (waves, 64)),
    "from_narrow": lambda codes, dtype, size: conversions.table(dtype, size)[codes],
}  # fmt: skip
"""What generated code may call."""


class Program:
    """One kernel, ready to be run on a chip.

    Attributes
    ----------
    blocks
        Its basic blocks; the first is the entry.
    rows
        Vector registers that it names, accumulators behind `accumulators` included.
    guesses
        Identities of the loads that only guess what a compare-and-swap will find.
    polls
        Identities of the loads from LDS that wait until what they read has changed.
    """

    def __init__(self, module: ModuleText, entry: str, chip: Chip, accumulators: int) -> None:
        self.chip = chip
        self.accumulators = accumulators
        self.blocks = blocks_of(module, entry)
        code = [i for block in self.blocks for i in block.instructions]
        for i in code:
            if i.name not in OPS:
                raise UnsupportedInstruction(
                    f"instruction '{i.name}' is not known", line=i.line, column=i.column, form=i.name, known=OPS
                )
        self.effects: dict[int, Effects] = {id(i): effects(i, accumulators) for i in code}
        used = 0
        for found in self.effects.values():
            used |= found.reads | found.writes | found.load
        self.rows = (used & ((1 << 1024) - 1)).bit_length()
        self.indexed: dict[int, Indexed] = {}
        if any(i.name == "s_set_gpr_idx_on" for i in code):
            self.rows = max(self.rows, accumulators)
            self.indexed = indexed_instructions(self.blocks, self.rows)
            self.effects |= {at: effects(one.instruction, accumulators) for at, one in self.indexed.items()}
            self.rows += SLOTS
        self.maskable = maskable(code)
        self.guesses = first_guesses(self.blocks, self.effects, accumulators)
        self.polls = polling_loads(self.blocks, self.effects)
        self._functions: dict[tuple[int, bool, bool], Function] = {}
        self._labels = module.labels
        self._starts = {block.start: number for number, block in enumerate(self.blocks)}
        self._indices = {id(i): block.start + at for block in self.blocks for at, i in enumerate(block.instructions)}

    def block_at(self, index: int) -> int | None:
        """The block that begins with an instruction, by its index in the text; None where none does."""
        return self._starts.get(index)

    def index_of(self, i: Instruction) -> int:
        """The index of an instruction in the text."""
        return self._indices[id(i)]

    def counter_of(self, i: Instruction) -> int | None:
        """What the program counter was when it was last read before an instruction, in its block."""
        block = next(block for block in self.blocks if i in block.instructions)
        at = block.instructions.index(i)
        read = [place for place, other in enumerate(block.instructions[:at]) if other.name == "s_getpc_b64"]
        return block.start + read[-1] + 1 if read else None

    def first_of(self, block: int) -> Instruction:
        """The first instruction of a block."""
        return self.blocks[block].instructions[0]

    def last_of(self, block: int) -> Instruction:
        """The last instruction of a block."""
        return self.blocks[block].instructions[-1]

    def following(self, block: int) -> int:
        """The block behind a block."""
        return self.blocks[block].following

    def function(self, block: int, batch: Batch) -> Function:
        """The function of a block for a batch as it is."""
        key = (block, batch.E is not None, batch.flushes)
        return self._functions.get(key) or self._compile(key)

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """Where wait states are missing."""
        return tuple(hazards(self.blocks, self.accumulators, self.chip.name))

    def check(self) -> None:
        """Compile every block once, so that what is not executed is said before the launch."""
        for number in range(len(self.blocks)):
            self._compile((number, True, False))

    def _compile(self, key: tuple[int, bool, bool]) -> Function:
        number, masked, flush = key
        function = self.compile_range(number, 0, len(self.blocks[number].instructions), masked=masked, flush=flush)
        self._functions[key] = function
        return function

    def compile_range(self, number: int, start: int, end: int, *, masked: bool, flush: bool) -> Function:
        """A function for instructions `start` to `end` of a block; it answers where the block ends with them."""
        block = self.blocks[number]
        e = Emitter(self.accumulators, masked=masked, flush=flush, maskable=self.maskable, chip=self.chip,
                    index_of=self.index_of, counter_of=self.counter_of, labels=self._labels)  # fmt: skip
        self._body(e, block, number, start, end)
        source = "\n    ".join(["def block(B):", "S, U, I, F, V, W = B.S, B.U, B.I, B.F, B.V, B.W",
                                *(["E = B.E"] if masked else []), *e.lines])  # fmt: skip
        names = {**_NAMES, **e.names}
        exec(compile(source, f"<block {number} at line {block.instructions[0].line}>", "exec"), names)
        function: Function = names["block"]
        return function

    def _body(self, e: Emitter, block: Block, number: int, start: int, end: int) -> None:
        """The statements of a part of a block, with the checks between them."""
        issued = 0
        segments = self._segments(block, start, end)
        for place, i in enumerate(block.instructions[start:end], start):
            found = self.effects[id(i)]
            if place in segments:
                issued = 0
                touched = segments[place]
                if touched:
                    e.add(f"if B.pending & {touched}: B.launch.look_for_wait(B, {number}, {place})")
            if i.name == "s_waitcnt":
                issued = 0
            own = found.reads | found.writes | found.load
            if own & issued:
                e.add(f"if B.pending & {own}: B.launch.look_for_wait(B, {number}, {place})")
            # A function saves its caller's registers in scratch, written or not.
            if (is_mfma(i) or is_memory(i)) and found.reads and not i.name.startswith("scratch_store"):
                e.add(f"if {found.reads} & ~B.written: B.launch.unwritten(B, {e.name(i, 'i')}, {found.reads})")
            self._execute(e, i)
            if found.writes | found.load:
                e.add(f"B.written |= {found.writes | found.load}")
            if queue_of(i) is not None:
                issued |= found.load
        if end == len(block.instructions):
            self._ending(e, block)

    def _execute(self, e: Emitter, i: Instruction) -> None:
        """The statements of an instruction itself."""
        indexed = self.indexed.get(id(i))
        if indexed is None:
            OPS[i.name](e, i)
            return
        limit = self.rows - SLOTS
        for first, count, slot in indexed.reads:
            e.add(f"B.read_indexed({e.name(i, 'i')}, {first}, {count}, {slot}, {limit})")
        OPS[i.name](e, indexed.instruction)
        for first, count, slot in indexed.writes:
            e.add(f"B.write_indexed({first}, {count}, {slot})")

    def _segments(self, block: Block, start: int, end: int) -> dict[int, int]:
        """Where a part begins, or has waited: the registers that are touched from there to the next wait."""
        segments: dict[int, int] = {}
        touched = 0
        for place, i in enumerate(block.instructions[start:end], start):
            if i.name == "s_waitcnt":
                segments[start] = touched
                start, touched = place + 1, 0
                continue
            found = self.effects[id(i)]
            touched |= found.reads | found.writes | found.load
        if start < end:
            segments[start] = touched
        return segments

    def _ending(self, e: Emitter, block: Block) -> None:
        last = block.instructions[-1]
        if last.name in BRANCHES:
            truth, taken = BRANCHES[last.name]
            if taken:
                e.add(f"return B.branch({truth}, {block.taken}, {block.following})")
            else:
                e.add(f"return B.branch(opposite({truth}), {block.taken}, {block.following})")
        elif last.name in ("s_branch", "s_call_b64"):
            e.add(f"return {block.taken}")
        elif last.name in ("s_setpc_b64", "s_swappc_b64"):
            e.add(f"return B.jump({e.name(last, 'i')}, target)")
        elif last.name in ("s_endpgm", "s_trap"):
            if last.name == "s_trap":
                e.add(f"B.launch.trapped(B, {e.name(last, 'i')})")
            e.add(f"return {END}")
        elif last.name == "s_barrier":
            e.add(f"return {BARRIER}")
        elif last.name == "s_sleep":
            e.add(f"return {YIELD}")
        else:
            e.add(f"return {block.following}")
