"""Watching a launch from outside: a program and batches of waves that report to observers.

A launch without observers runs the plain program and pays nothing. With observers it runs in the same order of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tilekit.emulator.gcn.compiler.program import Function, Program
from tilekit.emulator.gcn.execution.batch import Batch
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.memory.outstanding import Outstanding

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.workgroup import WaveState
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["InstrumentedProgram", "ObservedBatch", "Observer"]

BlockFunction = Callable[[int, bool, bool], Function]
"""Makes the function of a block, for some of the lanes or for all, and with float32 denormals flushed or not."""


class Observer:
    """What a launch tells those who watch it; each method does nothing unless it is overridden."""

    def attach(self, program: InstrumentedProgram) -> None:
        """Before any code is compiled."""

    def start(self, launch: Launch) -> None:
        """Before the first wave runs."""

    def ran(self, waves: Sequence[WaveState], block: int, answer: int) -> None:
        """After waves have executed a block in step; `answer` is the next one, or why there is none."""

    def waits(self, batch: Batch) -> None:
        """Waves have begun to wait at a barrier."""

    def accessed(self, batch: Batch, space: str, i: Instruction, address: Any, size: int, lanes: Any) -> None:
        """An access to LDS, global memory or scratch: addresses [waves, 64], bytes a lane, and the lanes."""

    def loads_scalars(self, batch: Batch, i: Instruction, size: int) -> None:
        """A scalar load."""

    def queued(self, batch: Batch, queue: int, operation: Outstanding) -> None:
        """An operation has been issued."""

    def completed(self, batch: Batch, queue: int, operations: Sequence[Outstanding]) -> None:
        """Operations have been waited for."""


class InstrumentedProgram(Program):
    """A program that tells observers what it does.

    Attributes
    ----------
    code, starts
        All instructions, block after block; and the position of each block's first.
    block_function
        What makes the function of a block; an observer may put its own here when it is attached.
    """

    def __init__(self, program: Program, observers: Sequence[Observer]) -> None:
        # A view of an analysed program: nothing is analysed again, only the compiled code is its own.
        self.__dict__.update(program.__dict__)
        self._functions = {}
        self._observers = tuple(observers)
        self.code: list[Instruction] = [i for block in self.blocks for i in block.instructions]
        sizes = [len(block.instructions) for block in self.blocks]
        self.starts: list[int] = [0, *accumulate(sizes)][:-1]
        self.block_function: BlockFunction = self._whole
        for observer in observers:
            observer.attach(self)

    def _whole(self, number: int, masked: bool, flush: bool) -> Function:
        return self.compile_range(number, 0, len(self.blocks[number].instructions), masked=masked, flush=flush)

    def _compile(self, key: tuple[int, bool, bool]) -> Function:
        plain = self.block_function(*key)
        number, observers = key[0], self._observers

        def observed(batch: Batch) -> int:
            waves = batch.waves
            answer = plain(batch)
            for observer in observers:
                observer.ran(waves, number, answer)
            return answer

        self._functions[key] = observed
        return observed


class ObservedBatch(Batch):
    """Waves in step that report their memory operations."""

    __slots__ = ()

    def lds_places(self, i: Instruction, address: Any, size: int, lanes: Any, action: str) -> Any:
        """The bytes of LDS that addresses are."""
        places = super().lds_places(i, address, size, lanes, action)
        self._tell("LDS", i, address, size, lanes)
        return places

    def places(self, i: Instruction, address: Any, size: int, lanes: Any, action: str) -> Any:
        """The allocations that addresses lie in."""
        found = super().places(i, address, size, lanes, action)
        self._tell("global", i, address, size, lanes)
        return found

    def scratch_places(self, i: Instruction, address: Any, size: int, lanes: Any) -> Any:
        """The bytes of scratch that offsets are."""
        found = super().scratch_places(i, address, size, lanes)
        self._tell("scratch", i, found, size, lanes)
        return found

    def _tell(self, space: str, i: Instruction, address: Any, size: int, lanes: Any) -> None:
        for observer in self.launch.observers:
            observer.accessed(self, space, i, address, size, lanes)

    def scalar_load(self, i: Instruction, base: Any, offset: Any, target: int, count: int) -> None:
        """``s_load``."""
        super().scalar_load(i, base, offset, target, count)
        for observer in self.launch.observers:
            observer.loads_scalars(self, i, 4 * count)

    def queue(self, which: int, operation: Outstanding) -> None:
        """Note an operation that has been issued."""
        super().queue(which, operation)
        for observer in self.launch.observers:
            observer.queued(self, which, operation)

    def wait(self, which: int, most: int) -> None:
        """Let the oldest operations land."""
        before = list(self.queues[which])
        super().wait(which, most)
        complete = before[: len(before) - len(self.queues[which])]
        for observer in self.launch.observers:
            observer.completed(self, which, complete)
