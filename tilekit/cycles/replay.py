"""The clocks: all waves of a compute unit issue their steps in order, and share its ports, queues and buses.

A wave issues at most one instruction in four clocks. The ports of a SIMD, one each for vector and matrix instructions,
for scalar ones and for memory and LDS, take one instruction at a time, of whichever wave is ready first; of two that
are ready at once the one of higher priority goes first, then the one that has waited longer. What an instruction waited
for is noted by cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heappushpop
from typing import Final

from tilekit.cycles.machine import Machine
from tilekit.cycles.steps import (
    BARRIER,
    BRANCH,
    LDS,
    LOAD,
    MATRIX,
    NOP,
    PRIORITY,
    SCALAR,
    SCALAR_LOAD,
    VECTOR,
    WAIT,
    Step,
)

__all__ = ["CAUSES", "Run", "Stall", "WavePath", "run"]

CAUSES: Final = (
    "matrix core",
    "vector port",
    "scalar port",
    "memory port",
    "LDS queue",
    "load queue",
    "loads in flight",
    "vmcnt",
    "lgkmcnt",
    "barrier",
    "MFMA result",
    "packed after MFMA",
    "branch",
)
"""What an instruction may wait for."""
(_CORE, _VECTOR_PORT, _SCALAR_PORT, _MEMORY_PORT, _QUEUE, _LOAD_QUEUE, _FLIGHT, _VMCNT, _LGKMCNT, _BARRIER, _RESULT,
 _PACKED, _BRANCH) = range(13)  # fmt: skip


_RUNAWAY: Final = 64
"""How many times as many turns as asked for one wave may make while others make none."""


@dataclass(frozen=True, slots=True)
class WavePath:
    """What a wave executes: once what comes before the loop, then the loop again and again.

    Attributes
    ----------
    simd, workgroup
        Where the wave runs, and with which others it meets at barriers.
    before, turn
        Steps before the loop, and of one turn.
    """

    simd: int
    workgroup: int
    before: Sequence[Step]
    turn: Sequence[Step]


@dataclass(slots=True)
class Stall:
    """An instruction that waited: from one clock to another, for what, and its place in the turn."""

    start: int
    end: int
    cause: int
    place: int


@dataclass(slots=True)
class Run:
    """What came out.

    Attributes
    ----------
    starts
        For each wave, the clock at which each of its turns began.
    issued
        For each wave, the clock of every step, those before the loop included.
    stalls
        For each wave, where it waited, in order.
    gaps
        For each SIMD, the stretches in which its matrix core was idle: start, end, wave and step that ended it.
    """

    starts: list[list[int]]
    issued: list[list[int]]
    stalls: list[list[Stall]]
    gaps: list[list[tuple[int, int, int, int]]]


@dataclass(slots=True)
class _Wave:
    number: int
    path: WavePath
    steps: Sequence[Step]
    place: int = 0
    looping: bool = False
    ready: int = 0
    priority: int = 0
    matrix_end: int = -(1 << 30)
    vector_memory: deque[int] = field(default_factory=deque)
    other_memory: deque[int] = field(default_factory=deque)


class _Unit:
    """The shared state of a compute unit."""

    def __init__(self, m: Machine, paths: Sequence[WavePath]) -> None:
        self.m = m
        self.vector = [0] * m.simds
        self.scalar = [0] * m.simds
        self.memory = [0] * m.simds
        self.core = [0] * m.simds
        self.lds_free = 0
        self.bus_free = [0] * ((m.simds + 1) // 2)
        self.queues: list[deque[int]] = [deque() for _ in self.bus_free]
        self.load_free = 0
        self.load_queue: deque[int] = deque()
        self.landings: deque[tuple[int, int]] = deque()
        self.flight: deque[tuple[int, int]] = deque()
        self.flying = 0
        self.arrived: dict[int, list[tuple[int, int]]] = {}
        self.waves = [_Wave(number, path, path.before or path.turn) for number, path in enumerate(paths)]
        for wave in self.waves:
            wave.looping = not wave.path.before
        self.groups: dict[int, int] = {}
        for path in paths:
            self.groups[path.workgroup] = self.groups.get(path.workgroup, 0) + 1
        count = len(paths)
        self.result = Run(
            [[] for _ in range(count)],
            [[] for _ in range(count)],
            [[] for _ in range(count)],
            [[] for _ in range(m.simds)],
        )

    # -- when may a step be issued? ----------------------------------------------------------------------------------

    def earliest(self, wave: _Wave, step: Step) -> tuple[int, int]:
        """The clock at which a step can be issued as things are, and what it waits for."""
        kind = step.kind
        clock, cause = wave.ready, -1
        simd = wave.path.simd
        if kind == MATRIX:
            if self.core[simd] > clock:
                clock, cause = self.core[simd], _CORE
            if self.vector[simd] > clock:
                clock, cause = self.vector[simd], _VECTOR_PORT
        elif kind == VECTOR:
            if self.vector[simd] > clock:
                clock, cause = self.vector[simd], _VECTOR_PORT
            if step.extra and wave.matrix_end + self.m.packed_after_matrix > clock:
                clock, cause = wave.matrix_end + self.m.packed_after_matrix, _PACKED
        elif kind == SCALAR:
            if self.scalar[simd] > clock:
                clock, cause = self.scalar[simd], _SCALAR_PORT
        elif kind == WAIT:
            return self._waited(wave, step)
        elif kind == LDS:
            if self.memory[simd] > clock:
                clock, cause = self.memory[simd], _MEMORY_PORT
            queue = self.queues[simd >> 1]
            if len(queue) >= self.m.lds_queue and queue[-self.m.lds_queue] > clock:
                clock, cause = queue[-self.m.lds_queue], _QUEUE
        elif kind == LOAD:
            if self.memory[simd] > clock:
                clock, cause = self.memory[simd], _MEMORY_PORT
            queued = self.load_queue
            if len(queued) >= self.m.load_queue and queued[-self.m.load_queue] > clock:
                clock, cause = queued[-self.m.load_queue], _LOAD_QUEUE
            if step.extra:
                freed = self._room(step.extra, clock)
                if freed > clock:
                    clock, cause = freed, _FLIGHT
        for back, clocks in step.depends:
            issued = self.result.issued[wave.number]
            if back <= len(issued) and issued[-back] + clocks > clock:
                clock, cause = issued[-back] + clocks, _RESULT
        return clock, cause

    def _waited(self, wave: _Wave, step: Step) -> tuple[int, int]:
        clock, cause = wave.ready, -1
        over = len(wave.vector_memory) - step.counter
        if over > 0 and wave.vector_memory[over - 1] > clock:
            clock, cause = wave.vector_memory[over - 1], _VMCNT
        over = len(wave.other_memory) - step.extra
        if over > 0 and wave.other_memory[over - 1] > clock:
            clock, cause = wave.other_memory[over - 1], _LGKMCNT
        return clock, cause

    def _room(self, size: int, clock: int) -> int:
        """The clock from which so many more bytes may be in flight."""
        flight = self.flight
        while flight and flight[0][0] <= clock:
            self.flying -= flight.popleft()[1]
        over = self.flying + size - self.m.load_flight
        if over <= 0:
            return clock
        freed = clock
        for landed, held in flight:
            freed = landed
            over -= held
            if over <= 0:
                break
        return freed

    # -- what a step does --------------------------------------------------------------------------------------------

    def issue(self, wave: _Wave, step: Step, clock: int, place: int) -> None:
        """Take a step at a clock: ports, queues and counters change, and the wave is ready again later."""
        m, kind, simd = self.m, step.kind, wave.path.simd
        after = clock + m.issue
        if kind == MATRIX:
            free = self.core[simd]
            if clock > free:
                self.result.gaps[simd].append((free, clock, wave.number, place))
            self.core[simd] = wave.matrix_end = clock + step.busy
            self.vector[simd] = clock + step.port
        elif kind == VECTOR:
            self.vector[simd] = clock + step.port
        elif kind == LDS:
            self.memory[simd] = after
            self._lds(wave, step, clock)
        elif kind == SCALAR:
            self.scalar[simd] = after
        elif kind == LOAD:
            self.memory[simd] = after
            self._load(wave, step, clock)
        elif kind == WAIT:
            while len(wave.vector_memory) > step.counter:
                wave.vector_memory.popleft()
            while len(wave.other_memory) > step.extra:
                wave.other_memory.popleft()
        elif kind == SCALAR_LOAD:
            wave.other_memory.append(clock + m.scalar_load)
        elif kind == NOP:
            after = clock + step.port
        elif kind == PRIORITY:
            wave.priority = step.extra
        elif kind == BRANCH and step.extra:
            self.result.stalls[wave.number].append(Stall(after, clock + m.branch, _BRANCH, place))
            after = clock + m.branch
        wave.ready = after

    def _lds(self, wave: _Wave, step: Step, clock: int) -> None:
        pair = wave.path.simd >> 1
        landings = self.landings
        while landings and landings[0][0] <= clock:  # what loads have written to LDS before
            arrived, busy = landings.popleft()
            self.lds_free = max(self.lds_free, arrived) + busy
        start = max(clock, self.lds_free)
        self.lds_free = start + step.busy
        landed = max(start + self.m.lds_latency, self.bus_free[pair]) + step.extra
        self.bus_free[pair] = landed
        queue = self.queues[pair]
        queue.append(
            landed - self.m.lds_latency
        )  # it leaves the queue when LDS has served it, not when its data is there
        if len(queue) > self.m.lds_queue:
            queue.popleft()
        wave.other_memory.append(landed)

    def _load(self, wave: _Wave, step: Step, clock: int) -> None:
        start = max(clock, self.load_free)
        self.load_queue.append(start)
        if len(self.load_queue) > self.m.load_queue:
            self.load_queue.popleft()
        self.load_free = start + step.busy
        landed = max(self.load_free, clock + self.m.load_latency)
        if wave.vector_memory and wave.vector_memory[-1] > landed:
            landed = wave.vector_memory[-1]
        wave.vector_memory.append(landed)
        if step.counter:
            self.landings.append((landed, step.counter))
        if step.extra:
            self.flight.append((landed, step.extra))
            self.flying += step.extra

    # -- all of them -------------------------------------------------------------------------------------------------

    def run(self, turns: int) -> Run:
        """Replay until every wave has begun so many turns after its first, or waves wait that nothing lets go on."""
        waves, issued_of, starts_of = self.waves, self.result.issued, self.result.starts
        heap = [(0, 0, 0, wave.number) for wave in waves]
        heapify(heap)
        left, most = len(waves), _RUNAWAY * (turns + 1)
        furthest = 0
        item = heappop(heap)
        while True:
            wave = waves[item[3]]
            step = wave.steps[wave.place]
            clock, cause = self.earliest(wave, step)
            if clock > item[0]:
                if cause >= 0:
                    self._note(wave, clock, cause)
                item = heappushpop(heap, (clock, -wave.priority, wave.ready, wave.number))
                if item[3] != wave.number:
                    continue
            issued_of[wave.number].append(clock)
            if not wave.place and wave.looping:
                starts = starts_of[wave.number]
                starts.append(clock)
                if len(starts) == turns + 1:
                    left -= 1
                furthest = max(furthest, len(starts))
            place = wave.place
            wave.place += 1
            if wave.place == len(wave.steps):
                wave.steps, wave.place, wave.looping = wave.path.turn, 0, True
            if step.kind == BARRIER:
                self._meet(wave, clock, place if wave.steps is wave.path.turn else -1, heap)
                if not heap or not left or furthest > most:
                    break
                item = heappop(heap)
                continue
            self.issue(wave, step, clock, place)
            if not left or furthest > most:
                break
            item = heappushpop(heap, (wave.ready, -wave.priority, wave.ready, wave.number))
        return self.result

    def _note(self, wave: _Wave, clock: int, cause: int) -> None:
        """Note that a wave waits; where it has waited for the same step before, only what is added."""
        stalls = self.result.stalls[wave.number]
        start = wave.ready
        if stalls and stalls[-1].end > start:
            start = stalls[-1].end
        if clock > start:
            stalls.append(Stall(start, clock, cause, wave.place if wave.looping else -1))

    def _meet(self, wave: _Wave, clock: int, place: int, heap: list[tuple[int, int, int, int]]) -> None:
        """Arrive at a barrier; the last wave of the workgroup lets all of them go on."""
        group = wave.path.workgroup
        here = self.arrived.setdefault(group, [])
        here.append((wave.number, place))
        wave.ready = clock + self.m.issue
        if len(here) < self.groups[group]:
            return
        free = clock + self.m.barrier
        for number, waited in here:
            other = self.waves[number]
            if free > other.ready:
                self.result.stalls[number].append(Stall(other.ready, free, _BARRIER, waited))
                other.ready = free
            heappush(heap, (other.ready, -other.priority, other.ready, number))
        here.clear()


def run(m: Machine, paths: Sequence[WavePath], turns: int) -> Run:
    """Replay some turns of the loop on all waves of a compute unit."""
    return _Unit(m, paths).run(turns)
