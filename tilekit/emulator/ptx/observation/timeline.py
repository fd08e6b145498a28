"""Who did what when: a launch as a file in the Trace Event Format, for https://ui.perfetto.dev and chrome://tracing.

Time is the number of warp instructions that the launch has executed, in the emulator's order: one warp runs at a time,
so the picture shows which order was tried, not how fast a GPU would be. A process is a CTA and a track a warp; its
slices are ``run`` and its waits, named after the barrier and phase. Copies and wgmma groups in flight are asynchronous
slices, from the instruction that issues them until their memory may be used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilekit.emulator.core.observation.trace import Event, Trace
from tilekit.emulator.ptx.compiler.instrument import InstrumentedProgram, Observer, wait_name
from tilekit.emulator.ptx.copies.bulk import InFlight, Load, Store
from tilekit.emulator.ptx.execution.warp import WAIT
from tilekit.emulator.ptx.matrix import wgmma_queue

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Pending
    from tilekit.emulator.ptx.compiler.control_flow import Block
    from tilekit.emulator.ptx.execution.warp import Fragment, Warp
    from tilekit.emulator.ptx.launch import Launch

__all__ = ["Recorder"]

_EXTRA_TRACK = 1000
"""Tracks of waits that overlap another wait of their warp (divergent lanes) are numbered from here on."""


class Recorder(Trace, Observer):
    """Records a launch; `write` or `trace` when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._launch: Launch
        self._program: InstrumentedProgram
        self._running: tuple[Warp, int] | None = None
        self._waits: dict[Fragment, tuple[Warp, str, int, int]] = {}
        self._in_flight: list[tuple[Pending, Event]] = []
        self._matrix: dict[Warp, deque[Event]] = {}
        self._uncommitted: dict[Warp, list[Any]] = {}

    def attach(self, program: InstrumentedProgram) -> None:
        """Watch wgmma, which is queued by warps and executed when they wait."""
        self._program = program
        program.wrap(wgmma_queue.issue_wgmma, self._issues)
        program.wrap(wgmma_queue.commit_wgmma, self._commits)
        program.wrap(wgmma_queue.wait_wgmma, self._waited)

    def start(self, launch: Launch) -> None:
        """Remember the launch, for its names."""
        self._launch = launch

    # -- warps -------------------------------------------------------------------------------------------------------

    def ran(self, warp: Warp, block: Block, following: int) -> None:
        """Extend the warp's slice, or begin or end a wait."""
        self._land()
        if self._running is None or self._running[0] is not warp:
            self._cut()
            self._running = warp, self.steps
        if following == WAIT:
            self._begin_wait(warp)
            return
        wait = self._waits.pop(warp.fragment, None)
        if wait is not None:
            self._cut()
            self._running = warp, self.steps
            self._end_wait(*wait)
        self.steps += block.end - block.start

    def _cut(self) -> None:
        """End the slice of the warp that has been running."""
        if self._running is not None:
            warp, start = self._running
            if self.steps > start:
                self._slice(warp, warp.index, "run", start)
            self._running = None

    def _begin_wait(self, warp: Warp) -> None:
        self._cut()
        if warp.fragment not in self._waits:
            taken = {slot for other, _, _, slot in self._waits.values() if other is warp}
            slot = next(n for n in range(len(taken) + 1) if n not in taken)
            self._waits[warp.fragment] = warp, wait_name(warp.fragment.blocked), self.steps, slot

    def _end_wait(self, warp: Warp, name: str, start: int, slot: int) -> None:
        if self.steps > start:
            track = warp.index if slot == 0 else _EXTRA_TRACK * slot + warp.index
            self._slice(warp, track, name, start, wait=True)

    def _slice(self, warp: Warp, track: int, name: str, start: int, wait: bool = False) -> None:
        self.slice(self._process(warp, track), track, name, start, "wait" if wait else "run")

    def _process(self, warp: Warp, track: int) -> int:
        """Number of a CTA, named with its warp's track when it is first seen."""
        cta = warp.cta
        process = cta.cluster.number * len(cta.cluster.indices) + cta.rank
        if not self.knows(process, track):
            x, y, z = cta.index
            name = f"{warp.role} (warp {warp.index})" if warp.role else f"warp {warp.index}"
            name += " other lanes" if track >= _EXTRA_TRACK else ""
            self.name(process, track, f"CTA ({x}, {y}, {z}), cluster {cta.cluster.number} rank {cta.rank}", name)
        return process

    # -- asynchronous operations -------------------------------------------------------------------------------------

    def issued(self, operation: Pending) -> None:
        """Begin the slice of a copy."""
        if not isinstance(operation, InFlight):
            return
        line = operation.where.instruction.line if operation.where.instruction is not None else 0
        if isinstance(operation, Load):
            target = self._launch.shared_name(operation.offset) or f"shared memory {operation.offset:#x}"
            name, category = f"load {target}", "TMA"
            facts: dict[str, Any] = {"bytes": operation.size, "CTAs": [cta.rank for cta in operation.targets]}
        elif isinstance(operation, Store):
            source = self._launch.shared_name(operation.offset) or f"shared memory {operation.offset:#x}"
            name, category, facts = f"store {source}", "TMA", {"bytes": operation.size}
        else:
            name, category, facts = type(operation).__name__.lower(), "cp.async", {}
        self._in_flight.append((operation, self._begin(operation.warp, name, category, {"line": line, **facts})))

    def _begin(self, warp: Warp, name: str, category: str, facts: dict[str, Any]) -> Event:
        return self.begin(self._process(warp, warp.index), warp.index, name, category, facts)

    def _land(self) -> None:
        """End the slices of what has landed since the last block."""
        if self._in_flight and any(operation.done for operation, _ in self._in_flight):
            for operation, event in self._in_flight:
                if operation.done:
                    self.end(event)
            self._in_flight = [(operation, event) for operation, event in self._in_flight if not operation.done]

    # -- wgmma -------------------------------------------------------------------------------------------------------

    def _issues(self, plain: Callable[..., None]) -> Callable[..., None]:
        def issue(warp: Warp, form: Any, *rest: Any) -> None:
            plain(warp, form, *rest)
            self._uncommitted.setdefault(warp, []).append(self._program.instruction(warp.at))

        return issue

    def _commits(self, plain: Callable[[Warp], None]) -> Callable[[Warp], None]:
        def commit(warp: Warp) -> None:
            plain(warp)
            group = self._uncommitted.pop(warp, [])
            shape = next((m for i in group for m in i.modifiers if m.startswith("m64")), "")
            name = f"wgmma {shape} x{len(group)}" if group else "wgmma (empty group)"
            facts = {"line": group[0].line} if group else {}
            self._matrix.setdefault(warp, deque()).append(self._begin(warp, name, "wgmma", facts))

        return commit

    def _waited(self, plain: Callable[[Warp, int], bool]) -> Callable[[Warp, int], bool]:
        def wait(warp: Warp, keep: int) -> bool:
            finished = plain(warp, keep)
            groups = self._matrix.get(warp, deque())
            while finished and len(groups) > keep:
                self.end(groups.popleft())
            return finished

        return wait

    # -- result ------------------------------------------------------------------------------------------------------

    def trace(self) -> dict[str, Any]:
        """The whole file: what still runs, waits or is in flight ends now."""
        self._land()
        self._cut()
        self.steps += 1  # so that a wait that began last can be seen
        for warp, name, start, slot in self._waits.values():
            self._end_wait(warp, f"{name} (never ended)", start, slot)
        self._waits = {}
        open_groups = [event for groups in self._matrix.values() for event in groups]
        for event in [*(event for _, event in self._in_flight), *open_groups]:
            self.end(event)
        self._in_flight, self._matrix = [], {}
        launch = self._launch
        return self.file(launch.program.name, launch.schedule, launch.seed, "one microsecond is one warp instruction")
