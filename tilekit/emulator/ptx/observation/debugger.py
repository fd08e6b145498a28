"""Stopping a launch of PTX: blocks in which nothing can stop run as a whole, others instruction by instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.errors import Actor
from tilekit.emulator.core.observation.debugger import Debugger, Gate
from tilekit.emulator.core.observation.stops import Places, Stop
from tilekit.emulator.ptx.compiler.instrument import BlockFunction, InstrumentedProgram, Observer, wait_name
from tilekit.emulator.ptx.execution.warp import WAIT
from tilekit.emulator.ptx.observation.inspection import Inspection

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Policy
    from tilekit.emulator.ptx.compiler.control_flow import Block
    from tilekit.emulator.ptx.execution.warp import Fragment, Mask, Warp
    from tilekit.emulator.ptx.kernel import Kernel, LaunchOptions

__all__ = ["WarpDebugger"]


class _Gate(Gate["Warp", "Warp"], Observer):
    """The gate of a launch of PTX."""

    def __init__(self) -> None:
        super().__init__()
        self._suspended: set[Fragment] = set()

    def members(self, runner: Warp) -> tuple[tuple[Warp, Actor]]:
        """The warp itself."""
        return ((runner, runner.actor),)

    def attach(self, program: InstrumentedProgram) -> None:
        """Run every block instruction by instruction where the launch might stop inside."""

        def function(block: Block, masked: bool) -> BlockFunction:
            whole = program.compile_range(block, block.start, block.end, masked=masked)
            size = block.end - block.start
            singles: list[BlockFunction] = []

            def step(warp: Warp, mask: Mask | None) -> int:
                if not self.may_stop(warp, block.start, block.end):
                    following = whole(warp, mask)
                    if following != WAIT:
                        self._suspended.discard(warp.fragment)
                        self.steps += size
                        return following
                else:
                    if not singles:
                        positions = range(block.start, block.end)
                        singles.extend(program.compile_range(block, at, at + 1, masked=masked) for at in positions)
                    following = block.index + 1
                    for at, single in enumerate(singles, block.start):
                        if warp.fragment not in self._suspended:  # else it stood here before it began to wait
                            warp.at = at
                            self.before(warp, at)
                        elif self.only is warp:
                            self._left -= 1
                        following = single(warp, mask)
                        if following == WAIT:
                            break
                        self._suspended.discard(warp.fragment)
                        self.steps += 1
                    else:
                        return following
                if warp.fragment not in self._suspended:
                    self._suspended.add(warp.fragment)
                    self.begins_to_wait(warp, warp.at, wait_name(warp.fragment.blocked))
                return WAIT

            return step

        program.block_function = function


class WarpDebugger(Inspection, Debugger):
    """A launch of PTX that stands still, or has ended."""

    def __init__(
        self,
        kernel: Kernel,
        stop: Stop | int | str | None,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        seed: int | None,
        schedule: Policy | None,
        options: LaunchOptions,
    ) -> None:
        gate = _Gate()
        launch, uploads = kernel.prepare(grid, block, args, seed=seed, schedule=schedule, observers=[gate], **options)
        Inspection.__init__(self, launch)
        Debugger.__init__(self, kernel.name, launch, uploads, gate)
        self.begin(stop)

    def places(self, stop: Stop) -> Places:
        """The instructions that a stop means."""
        program = self.launch.program
        labels = {name: at for at, name in program.function.labels}
        code = [decoded.instruction for decoded in program.code]
        return stop.places(program.name, code, labels, self.launch.symbols)

    def parameter_names(self) -> list[str]:
        """The kernel's parameters, in order."""
        return [parameter.name for parameter in self.launch.program.function.parameters]
