"""Who did what when: a launch as a file in the Trace Event Format, for https://ui.perfetto.dev and chrome://tracing.

Time is the number of warp instructions that the launch has executed, in the emulator's order: one warp runs at a time,
so the picture shows which order was tried, not how fast a GPU would be. A process is a CTA and a track a warp; its
slices are ``run`` and its waits, named after the barrier and phase. Copies and wgmma groups in flight are asynchronous
slices, from the instruction that issues them until their memory may be used.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

Event = dict[str, Any]
_EXTRA_TRACK = 1000
"""Tracks of waits that overlap another wait of their warp (divergent lanes) are numbered from here on."""


class Recorder(Observer):
    """Records a launch; `write` or `trace` when it has ended."""

    def __init__(self) -> None:
        self.steps = 0
        self._launch: Launch
        self._program: InstrumentedProgram
        self._events: list[Event] = []
        self._known: set[tuple[int, int]] = set()
        self._running: tuple[Warp, int] | None = None
        self._waits: dict[Fragment, tuple[Warp, str, int, int]] = {}
        self._in_flight: list[tuple[Pending, Event]] = []
        self._matrix: dict[Warp, deque[Event]] = {}
        self._uncommitted: dict[Warp, list[Any]] = {}
        self._serial = 0

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
        process = self._process(warp, track)
        category = "wait" if wait else "run"
        self._events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": process,
                "tid": track,
                "ts": start,
                "dur": self.steps - start,
            }
        )

    def _process(self, warp: Warp, track: int) -> int:
        """Number of a CTA, named with its warp's track when it is first seen."""
        cta = warp.cta
        process = cta.cluster.number * len(cta.cluster.indices) + cta.rank
        if (process, -1) not in self._known:
            self._known.add((process, -1))
            x, y, z = cta.index
            name = f"CTA ({x}, {y}, {z}), cluster {cta.cluster.number} rank {cta.rank}"
            self._events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        if (process, track) not in self._known:
            self._known.add((process, track))
            name = f"{warp.role} (warp {warp.index})" if warp.role else f"warp {warp.index}"
            name += " other lanes" if track >= _EXTRA_TRACK else ""
            thread = {"pid": process, "tid": track}
            self._events.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": name}})
            self._events.append({"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": track}})
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
        self._serial += 1
        event = {
            "ph": "b",
            "cat": category,
            "name": name,
            "id": self._serial,
            "pid": self._process(warp, warp.index),
            "tid": warp.index,
            "ts": self.steps,
            "args": facts,
        }
        self._events.append(event)
        return event

    def _end(self, event: Event) -> None:
        self._events.append({**{key: event[key] for key in ("cat", "name", "id", "pid", "tid")}, "ph": "e",
                             "ts": self.steps})  # fmt: skip

    def _land(self) -> None:
        """End the slices of what has landed since the last block."""
        if self._in_flight and any(operation.done for operation, _ in self._in_flight):
            for operation, event in self._in_flight:
                if operation.done:
                    self._end(event)
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
                self._end(groups.popleft())
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
            self._end(event)
        self._in_flight, self._matrix = [], {}
        launch = self._launch
        return {
            "traceEvents": sorted(self._events, key=lambda event: event.get("ts", -1)),
            "otherData": {
                "kernel": launch.program.name,
                "schedule": launch.schedule,
                "seed": launch.seed,
                "unit": "one microsecond is one warp instruction",
            },
        }

    def write(self, path: str | Path) -> None:
        """Write the file."""
        Path(path).write_text(json.dumps(self.trace()), "utf-8")
