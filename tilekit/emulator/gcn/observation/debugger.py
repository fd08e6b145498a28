"""Stopping a launch on an AMD chip: blocks in which nothing can stop run as a whole, others instruction by instruction.

Waves that run in step stand still together; one of them, that the stop admits, is the one that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.errors import Actor
from tilekit.emulator.core.observation.debugger import Debugger, Gate
from tilekit.emulator.core.observation.stops import Places, Stop
from tilekit.emulator.gcn.compiler.program import Function
from tilekit.emulator.gcn.observation.inspection import Inspection
from tilekit.emulator.gcn.observation.instrument import InstrumentedProgram, Observer

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Policy
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.execution.workgroup import WaveState
    from tilekit.emulator.gcn.kernel import Kernel, LaunchOptions

__all__ = ["WaveDebugger"]


class _Gate(Gate["Batch", "WaveState"], Observer):
    """The gate of a launch on an AMD chip; a step of waves in step is one of each."""

    def members(self, runner: Batch) -> list[tuple[WaveState, Actor]]:
        """The waves of a batch."""
        return [(wave, wave.order.actor) for wave in runner.waves]

    def attach(self, program: InstrumentedProgram) -> None:
        """Run every block instruction by instruction where the launch might stop inside."""

        def function(number: int, masked: bool, flush: bool) -> Function:
            start, size = program.starts[number], len(program.blocks[number].instructions)
            whole = program.compile_range(number, 0, size, masked=masked, flush=flush)
            singles: list[Function] = []

            def step(batch: Batch) -> int:
                waves = batch.W
                if not self.may_stop(batch, start, start + size, waves):
                    answer = whole(batch)
                    self.steps += size * waves
                else:
                    if not singles:
                        ranges = ((at, at + 1) for at in range(size))
                        singles.extend(
                            program.compile_range(number, *one, masked=masked, flush=flush) for one in ranges
                        )
                    answer = 0
                    for at, single in enumerate(singles, start):
                        self.before(batch, at)
                        answer = single(batch)
                        self.steps += waves
                return answer

            return step

        self._positions = {id(i): at for at, i in enumerate(program.code)}
        program.block_function = function

    def waits(self, batch: Batch) -> None:
        """Waves have begun to wait at a barrier: stand still if that is asked for."""
        assert batch.waiting is not None
        self.begins_to_wait(batch, self._positions[id(batch.waiting)], batch.waiting.name)


class WaveDebugger(Inspection, Debugger):
    """A launch on an AMD chip that stands still, or has ended."""

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
        text = self.launch.kernel.module.text
        labels = {
            name: text.instructions[at].line for name, at in text.labels.items() if 0 <= at < len(text.instructions)
        }
        return stop.places(self.launch.kernel.name, self.code, labels, self.launch.symbols)

    def parameter_names(self) -> list[str]:
        """The kernel's arguments, in order; by number where the text does not name them."""
        given = [a for a in self.launch.kernel.arguments or () if not a.kind.startswith("hidden")]
        count = max(len(given), len(self._uploads))
        names = [argument.name for argument in given] + [""] * (count - len(given))
        return [name or f"args[{index}]" for index, name in enumerate(names)]
