"""One launch: its shape, arguments, memory, order and counters; what batches look up."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilekit.emulator.core import collector
from tilekit.emulator.core.blas import single_threaded
from tilekit.emulator.core.checks.agents import Clock
from tilekit.emulator.core.checks.findings import Finding, Findings
from tilekit.emulator.core.checks.shadow import Memory, Race
from tilekit.emulator.core.dimensions import Dim3
from tilekit.emulator.core.errors import EmulatorError, ProtocolError, Where, describe
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.core.schedules import Policy, Progress, Starts
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.gcn.abi import dispatch_packet
from tilekit.emulator.gcn.checks.order import WaveOrder
from tilekit.emulator.gcn.checks.words import explain, tolerated
from tilekit.emulator.gcn.compiler.program import Program
from tilekit.emulator.gcn.errors import MissingWait
from tilekit.emulator.gcn.execution.batch import Batch
from tilekit.emulator.gcn.execution.machine import Machine
from tilekit.emulator.gcn.execution.state import BatchState
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS, Outstanding
from tilekit.emulator.gcn.report import DispatchReport

if TYPE_CHECKING:
    from tilekit.emulator.gcn.device import Device
    from tilekit.emulator.gcn.execution.workgroup import Gang
    from tilekit.emulator.gcn.kernel import Kernel
    from tilekit.emulator.gcn.observation.instrument import Observer

__all__ = ["Launch", "Watched"]

GANG_WAVES = 64
"""Most waves of a gang whose kernel has many registers; others have more, up to eight times as many."""
GANG_BYTES = 1 << 25
"""Registers that a gang has together, unless one workgroup has more."""
DYNAMIC_STACK = 1 << 14
"""Scratch of a lane, besides what the descriptor says, where functions may call themselves."""
_COUNTERS = ("vmcnt", "lgkmcnt")
_USER = (
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
"""What a wave's first scalar registers hold, in order, where the descriptor asks for it; and how many registers."""


class Watched(NamedTuple):
    """What a launch runs instead of the plain program, and who is told."""

    program: Program
    batch_type: type[Batch]
    observers: Sequence[Observer]


class Launch:
    """The context of a running launch.

    Attributes
    ----------
    lds_bytes, scratch_bytes
        Of a workgroup, and of a lane.
    waves
        Of a workgroup.
    batch_type, observers
        What waves in step are, and who is told of what they do.
    exact
        Whether matrix products are rounded as the chip rounds them.
    most_gangs
        How many may be there at once.
    counts
        How often each block was run, in waves.
    atomic_words
        What has been passed on, known and assumed, through each word that atomics touch.
    loads
        The bytes that waves load from global memory, by instruction and workgroup.
    """

    def __init__(
        self,
        kernel: Kernel,
        device: Device,
        *,
        grid: Dim3,
        block: Dim3,
        lds_bytes: int,
        arguments: bytes,
        schedule: Policy,
        seed: int,
        check: str,
        starts: Starts,
        step_budget: int,
        progress: Progress | None,
        exact: bool = False,
        multiprocessors: int | None = None,
        watched: Watched | None = None,
    ) -> None:
        self.kernel = kernel
        self.program: Program = kernel.program if watched is None else watched.program
        self.batch_type: type[Batch] = Batch if watched is None else watched.batch_type
        self.observers: Sequence[Observer] = () if watched is None else watched.observers
        self.chip = device.chip
        self.memory = device.memory
        self.image = kernel.module.image
        self.symbols: SymbolMap = kernel.symbols
        self.grid: Dim3 = grid
        self.block: Dim3 = block
        self.lds_bytes: int = lds_bytes
        self.scratch_bytes = kernel.field("private_segment_fixed_size")
        if kernel.field("uses_dynamic_stack"):
            self.scratch_bytes += DYNAMIC_STACK
        self.arguments = arguments
        self.schedule: Policy = schedule
        self.seed = seed
        self.check = check
        self.order_checked: bool = check == "full"
        self.progress = progress
        self.exact = exact
        self.threads = math.prod(block)
        self.waves: int = -(-self.threads // 64)
        self.workgroups = math.prod(grid)
        self.findings = Findings(explain, self.symbols, 0, kernel.name)
        self.identities: count[int] = count(1)
        self.atomic_words: dict[int, tuple[Clock, Clock]] = {}
        self.loads: dict[tuple[int, int], list[tuple[int, int, WaveOrder]]] = {}
        self.counts = [0] * len(self.program.blocks)
        self.flops = 0
        self._said: set[Any] = set()
        self._per_gang = self._gang_size()
        if multiprocessors is not None:
            self._per_gang = min(self._per_gang, multiprocessors)
        gangs = -(-self.workgroups // self._per_gang)
        if multiprocessors is None:
            self.most_gangs: int = max(4, 304 // self._per_gang)
        else:
            self.most_gangs = multiprocessors // self._per_gang
        self.machine: Machine = Machine(self, schedule, seed, step_budget, starts, gangs)
        self._arguments: Allocation | None = None
        self._packet: Allocation | None = None
        self._started = 0.0
        self._done = 0

    def _gang_size(self) -> int:
        """Workgroups of a gang."""
        by_registers = GANG_BYTES // ((self.kernel.vectors * 256 + self.scratch_bytes * 64) * self.waves)
        by_waves = 8 * GANG_WAVES // self.waves
        return max(1, min(by_registers, by_waves, self.workgroups))

    def numbers_of(self, gang: int) -> range:
        """The workgroups of a gang."""
        first = gang * self._per_gang
        return range(first, min(first + self._per_gang, self.workgroups))

    def run(self) -> DispatchReport:
        """Run to the end.

        Raises
        ------
        EmulatorError
            The first fault, or the races found.
        """
        self._started = start = time.perf_counter()
        self._arguments = self.memory.allocate(max(len(self.arguments), 16), "the kernel's arguments", align=64)
        self._arguments.data[: len(self.arguments)] = np.frombuffer(self.arguments, np.uint8)
        packet = dispatch_packet(self.grid, self.block, self.scratch_bytes, self.lds_bytes, self._arguments.start)
        self._packet = self.memory.allocate(len(packet), "the dispatch packet", align=64)
        self._packet.data[: len(packet)] = np.frombuffer(packet, np.uint8)
        own = (self._arguments, self._packet)
        watched = []
        if self.order_checked:
            for allocation in self.memory.allocations():
                if allocation not in own:
                    allocation.shadow = Memory(allocation.name, allocation.start, allocation.size, self.race)
                    watched.append(allocation)
        try:
            with np.errstate(all="ignore"), single_threaded(), collector.held_back():
                self.machine.run()
        except EmulatorError as error:
            self.findings.attach(error)
            raise
        finally:
            for allocation in watched:
                allocation.shadow = None
            for allocation in own:
                self.memory.free(allocation)
        self.findings.raise_races()
        self._add_hazards()
        steps = sum(
            number * len(block.instructions) for number, block in zip(self.counts, self.program.blocks, strict=True)
        )
        return DispatchReport(
            kernel=self.kernel.name,
            grid=self.grid,
            block=self.block,
            cluster=(1, 1, 1),
            shared_bytes=self.lds_bytes,
            schedule=self.schedule,
            seed=self.seed,
            check=self.check,
            steps=steps,
            instructions=self._instructions(),
            flops=self.flops,
            seconds=time.perf_counter() - start,
            findings=tuple(self.findings),
            remarks=self.findings.remarks,
        )

    def _add_hazards(self) -> None:
        """Report missing wait states of code that ran."""
        if self.check == "off":
            return
        ran = {
            id(block.instructions[0]) for block, number in zip(self.program.blocks, self.counts, strict=True) if number
        }
        for hazard in self.program.hazards:
            block = next(b for b in self.program.blocks if hazard.consumer in b.instructions)
            if id(block.instructions[0]) not in ran:
                continue
            where = Where(kernel=self.kernel.name, instruction=hazard.consumer)
            missing = hazard.needed - hazard.found
            self.findings.add(
                Finding("hazard", str(hazard), (), f"put s_nop {missing - 1} before it, or other instructions", where)
            )

    def _instructions(self) -> dict[str, int]:
        """Instructions executed, by mnemonic."""
        found: Counter[str] = Counter()
        for number, block in zip(self.counts, self.program.blocks, strict=True):
            if number:
                for i in block.instructions:
                    found[i.name] += number
        return dict(found.most_common())

    # -- life of waves -----------------------------------------------------------------------------------------------

    def prepare(self, batch: Batch) -> None:
        """Give the waves of a gang the registers that they start with."""
        kernel, width, height = self.kernel, *self.block[:2]
        s = batch.S
        at = 0
        for value in self._user_registers():
            s[at] = value
            at += 1
        at = max(at, kernel.field("user_sgpr_count"))
        groups = np.array([wave.workgroup.index for wave in batch.waves], np.int64)
        for axis, letter in enumerate("xyz"):
            if kernel.field(f"system_sgpr_workgroup_id_{letter}", int(letter == "x")):
                column = groups[:, axis : axis + 1]
                s[at] = int(column[0, 0]) if (column == column[0]).all() else column
                at += 1
        thread = np.array([wave.index for wave in batch.waves])[:, None] * 64 + np.arange(64)
        x, y, z = thread % width, thread // width % height, thread // (width * height)
        batch.U[0][...] = x | y << 10 | z << 20
        batch.written = 1 | ((1 << at) - 1) << SCALARS
        batch.set_exec(thread < self.threads)
        batch.mode = kernel.mode
        if self.scratch_bytes:
            pitch = -(-self.scratch_bytes // 16) * 16
            batch.scratch = np.full((batch.W, 64, pitch), 0xFF, np.uint8)

    def _user_registers(self) -> list[int]:
        """What the first scalar registers of every wave hold: what the descriptor asks for, preloaded arguments last.

        LLVM's user guide for AMDGPU, initial kernel execution state and preloaded kernel arguments. A wave starts at
        the kernel's first instruction, so code that loads the same arguments for old firmware runs too.
        """
        assert self._arguments is not None
        assert self._packet is not None
        kernel = self.kernel
        words = []
        pointers = {"dispatch_ptr": self._packet.start, "kernarg_segment_ptr": self._arguments.start}
        for name, size in _USER:
            if kernel.field(f"user_sgpr_{name}"):
                value = self.scratch_bytes if name == "private_segment_size" else pointers.get(name, 0)
                words += [value >> 32 * place & 0xFFFFFFFF for place in range(size)]
        first = kernel.field("user_sgpr_kernarg_preload_offset")
        last = first + kernel.field("user_sgpr_kernarg_preload_length")
        return words + [int(word) for word in self._arguments.views[4][first:last]]

    def wave_ends(self, batch: Batch, program_end: Instruction) -> None:
        """Look at what a wave leaves behind: loads to LDS that nothing waits for are lost, and harmless."""

    def gang_ended(self, gang: Gang) -> None:
        """Tell of progress."""
        self._done += len(gang.workgroups)
        if self.progress is not None:
            self.progress(self._done, self.workgroups, time.perf_counter() - self._started)

    # -- faults ------------------------------------------------------------------------------------------------------

    def look_for_wait(self, batch: Batch, block: int, start: int) -> None:
        """Find the instruction from `start` on that touches what is pending, before the block waits."""
        if self.check == "off":
            return
        instructions = self.program.blocks[block].instructions
        for i in instructions[start:]:
            if i.name == "s_waitcnt":
                return
            found = self.program.effects[id(i)]
            touched = (found.reads | found.writes) & batch.pending
            overtaken = found.load & batch.pending
            if touched:
                raise self._missing(batch, i, touched)
            if overtaken:
                self._check_order(batch, i, overtaken)
            if i.name.startswith(("ds_", "s_load", "buffer_", "global_", "flat_", "scratch_")):
                # What it issues is looked at where it is used: what was pending here has been compared.
                continue

    def _check_order(self, batch: Batch, i: Instruction, registers: int) -> None:
        """A load may write what an earlier load of the same counter will: they land in order, but for scalar ones."""
        own = 1 if i.name.startswith(("ds_", "s_")) else 0
        for which, queue in enumerate(batch.queues):
            for operation in queue:
                if operation.registers & registers and (which != own or operation.scalar):
                    raise self._missing(batch, i, registers)

    def not_waited_for(self, batch: Batch, i: Instruction, registers: int) -> None:
        """Report registers that an instruction uses by index while they are pending."""
        if self.check != "off":
            raise self._missing(batch, i, registers)

    def _missing(self, batch: Batch, i: Instruction, registers: int) -> MissingWait:
        for which, queue in enumerate(batch.queues):
            for place, operation in enumerate(queue):
                if operation.registers & registers:
                    behind = 0 if operation.scalar else len(queue) - 1 - place
                    counter = f"{_COUNTERS[which]}({behind})"
                    return MissingWait(
                        f"{self._names(operation.registers & registers)} used before the load that writes it has been "
                        "waited for",
                        where=batch.where(i, 0),
                        table=self._loaded(operation),
                        hint=f"put s_waitcnt {counter} before it",
                        details={"counter": _COUNTERS[which], "count": behind, "load": operation.instruction},
                    )
        raise AssertionError("nothing is pending")

    @staticmethod
    def _loaded(operation: Outstanding) -> str:
        return f"loaded at {describe(operation.instruction)}"

    def _names(self, registers: int) -> str:
        number = (registers & -registers).bit_length() - 1
        if number >= SCALARS:
            return f"s{number - SCALARS}"
        accumulators = self.program.accumulators
        return f"a{number - accumulators}" if accumulators and number >= accumulators else f"v{number}"

    def unwritten(self, batch: Batch, i: Instruction, reads: int) -> None:
        """Report registers that nothing has written and a matrix or memory instruction uses."""
        missing = reads & ~batch.written & ~(3 << (SCALARS + 124))
        if self.check == "off" or not missing or (i, missing) in self._said:
            return
        self._said.add((i, missing))
        self.findings.add(
            Finding(
                "uninitialised",
                f"{self._names(missing)} is used and nothing has written it",
                (*batch.where(i, 0).lines(),),
                "write the register first",
                batch.where(i, 0),
            )
        )

    def unwritten_lds(self, batch: BatchState, i: Instruction, wave: int, lane: int, offset: int) -> None:
        """Report LDS that is read, and that nothing has written; once an instruction."""
        if (i, "LDS") in self._said:
            return
        self._said.add((i, "LDS"))
        where = batch.where(i, wave)
        name = self.symbols.name(offset)
        self.findings.add(
            Finding(
                "uninitialised",
                f"LDS {f'{name}, ' if name else ''}byte {offset:#x} is read, and nothing has written it",
                (f"read by lane {lane}", *where.lines()),
                "wait for the load that fills it, or write it first",
                where,
            )
        )

    def race(self, race: Race) -> None:
        """Keep a race: as a finding, or as a remark where compilers rely on it."""
        reason = tolerated(race, self.loads)
        if reason:
            found = explain(race, self.symbols, 0, self.kernel.name)
            self.findings.remark(Finding("race", reason, (found.message, *found.lines), "", found.where))
        else:
            self.findings.race(race)

    def trapped(self, batch: Batch, i: Instruction) -> None:
        """End the launch at an ``s_trap``."""
        raise ProtocolError("the program executed s_trap", where=batch.where(i, 0))
