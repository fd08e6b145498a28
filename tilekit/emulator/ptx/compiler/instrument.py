"""Watching a launch from outside: a program whose blocks and helper functions report to observers.

A launch without observers runs the plain program and pays nothing. With observers it runs a copy that shares the
plain one's analysis and has code of its own, in the same order of events: watching changes no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.checks.deadlock import Meeting, PhaseWait
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.control_flow import Block
from tilekit.emulator.ptx.compiler.program import Program

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Pending
    from tilekit.emulator.ptx.execution.warp import Mask, Warp
    from tilekit.emulator.ptx.launch import Launch

__all__ = ["InstrumentedProgram", "Observer", "wait_name"]

BlockFunction = Callable[["Warp", "Mask | None"], int]
BlockFunctions = Callable[["Block", bool], BlockFunction]
"""The function of a block, for all lanes, or (True) for some of them."""
EVERYTHING = -1
"""A set of registers: all of them."""


class Observer:
    """What a launch tells those who watch it; each method does nothing unless it is overridden."""

    def attach(self, program: InstrumentedProgram) -> None:
        """Before any code is compiled: wrap helper functions of the generated code, say."""

    def start(self, launch: Launch) -> None:
        """Before the first warp runs."""

    def ran(self, warp: Warp, block: Block, following: int) -> None:
        """After a block: ``following`` is the next one, or ``WAIT`` where the warp has begun (or gone on) to wait."""

    def issued(self, operation: Pending) -> None:
        """After an asynchronous operation was queued."""


class InstrumentedProgram(Program):
    """A program that tells observers what it does.

    Parameters
    ----------
    program
        The plain program, whose analysis is shared.
    observers
        Told of every block.
    """

    def __init__(self, program: Program, observers: Sequence[Observer]) -> None:
        # A view of an analysed program: nothing is analysed again, only the compiled code is its own.
        self.__dict__.update(program.__dict__)
        self.namespace = dict(program.namespace)
        count = len(self.flow.blocks)
        self.full = [None] * count
        self.masked = [None] * count
        self.sources = {}
        self._observers = tuple(observers)
        self.block_function: BlockFunctions = self._whole_block
        """What makes the function of a block; an observer may put its own here when it is attached."""
        for observer in observers:
            observer.attach(self)

    def wrap(self, function: Callable[..., Any], wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Let the generated code call ``wrapper(function)`` where it would call a helper function."""
        name = function.__name__
        self.namespace[name] = wrapper(self.namespace.get(name, function))

    def compile_range(self, block: Block, start: int, end: int, *, masked: bool) -> BlockFunction:
        """A function for instructions ``start`` to ``end`` of a block that leaves every register in its place."""
        part = replace(block, start=start, end=end, live_out=EVERYTHING)
        source, code = BlockCompiler(self, part, masked=masked).compile()
        self.sources[block.index, masked] = source
        scope: dict[str, Any] = {}
        exec(code, self.namespace, scope)
        function: BlockFunction = scope["block"]
        return function

    def compile_block(self, index: int, *, masked: bool) -> Any:
        """The function of a block, compiled on first use, with what tells the observers."""
        block = self.flow.blocks[index]
        function = self.block_function(block, masked)
        observers = self._observers

        def observed(warp: Warp, mask: Mask | None) -> int:
            following = function(warp, mask)
            for observer in observers:
                observer.ran(warp, block, following)
            return following

        (self.masked if masked else self.full)[index] = observed
        return observed

    def _whole_block(self, block: Block, masked: bool) -> BlockFunction:
        return self.compile_range(block, block.start, block.end, masked=masked)


def wait_name(blocked: Any) -> str:
    """What a blocked fragment waits for, such as ``inputs.full[1] phase 3`` or ``bar 1``."""
    wait = blocked.describe()
    if isinstance(wait, PhaseWait):
        return f"{wait.barrier.name} phase {wait.barrier.phase}"
    return str(wait.name if isinstance(wait, Meeting) else wait.text)
