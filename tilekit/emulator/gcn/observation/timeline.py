"""Who did what when: a launch as a file for https://ui.perfetto.dev and chrome://tracing.

Time is the number of wave instructions that the launch has executed, in the emulator's order. A process is a workgroup
and a track a wave; its slices are ``run`` and its waits at barriers. Memory operations are asynchronous slices, from
the instruction that issues them until they have been waited for. Waves that run in step have the same slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.observation.trace import Event, Trace
from tilekit.emulator.gcn.memory.outstanding import Outstanding
from tilekit.emulator.gcn.observation.instrument import InstrumentedProgram, Observer

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.execution.workgroup import WaveState
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["Recorder"]

_COUNTERS = ("vmcnt", "lgkmcnt")


class Recorder(Trace, Observer):
    """Records a launch; `write` or `trace` when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._launch: Launch
        self._program: InstrumentedProgram
        self._running: tuple[Sequence[WaveState], int] | None = None
        self._waits: dict[WaveState, int] = {}
        self._outstanding: dict[tuple[WaveState, int, int], Event] = {}

    def attach(self, program: InstrumentedProgram) -> None:
        """Remember the program, for its blocks."""
        self._program = program

    def start(self, launch: Launch) -> None:
        """Remember the launch, for its names."""
        self._launch = launch

    def ran(self, waves: Sequence[WaveState], block: int, answer: int) -> None:
        """Extend the waves' slices, or begin or end a wait."""
        if self._running is None or self._running[0] is not waves:
            self._cut()
            self._running = waves, self.steps
        if self._waits:
            for wave in waves:
                began = self._waits.pop(wave, None)
                if began is not None and self.steps > began:
                    self.slice(*self._track(wave), "s_barrier", began, "wait")
        self.steps += len(waves) * len(self._program.blocks[block].instructions)
        if answer < 0:
            self._cut()

    def waits(self, batch: Batch) -> None:
        """Begin waits."""
        self._waits.update(dict.fromkeys(batch.waves, self.steps))

    def _cut(self) -> None:
        """End the slices of the waves that have been running."""
        if self._running is not None:
            waves, start = self._running
            if self.steps > start:
                for wave in waves:
                    self.slice(*self._track(wave), "run", start, "run")
            self._running = None

    def _track(self, wave: WaveState) -> tuple[int, int]:
        """Numbers of a workgroup and a wave, named when they are first seen."""
        process, track = wave.workgroup.number, wave.index
        if not self.knows(process, track):
            x, y, z = wave.workgroup.index
            role = wave.order.actor.role
            name = f"{role} (wave {track})" if role else f"wave {track}"
            self.name(process, track, f"workgroup ({x}, {y}, {z})", name)
        return process, track

    def queued(self, batch: Batch, queue: int, operation: Outstanding) -> None:
        """Begin the slices of a memory operation."""
        i = operation.instruction
        facts: dict[str, Any] = {"line": i.line, "counter": _COUNTERS[queue]}
        for wave in batch.waves:
            event = self.begin(*self._track(wave), i.name, _COUNTERS[queue], facts)
            self._outstanding[wave, queue, operation.number] = event

    def completed(self, batch: Batch, queue: int, operations: Sequence[Outstanding]) -> None:
        """End the slices of what has been waited for."""
        for operation in operations:
            for wave in batch.waves:
                self.end(self._outstanding.pop((wave, queue, operation.number)))

    def trace(self) -> dict[str, Any]:
        """The whole file: what still runs, waits or is outstanding ends now."""
        self._cut()
        self.steps += 1  # so that a wait that began last can be seen
        for wave, began in self._waits.items():
            self.slice(*self._track(wave), "s_barrier (never ended)", began, "wait")
        for event in self._outstanding.values():
            self.end(event)
        self._waits, self._outstanding = {}, {}
        launch = self._launch
        return self.file(launch.kernel.name, launch.schedule, launch.seed, "one microsecond is one wave instruction")
