"""Who runs next: a seeded interleaving of warps, asynchronous operations and resident clusters.

A warp runs until it blocks or its fuel ends. Asynchronous operations land, by policy,

- ``fair``: in the order of issue, as soon as the scheduler is between two warps;
- ``random``: at random moments, in random order;
- ``adversarial``: as late as the rules allow, that is when nothing else can run, in random order.

A failed ``mbarrier.try_wait`` or ``test_wait`` blocks its warp until the barrier changes, so idle spinning costs
nothing and a deadlock is exact: nobody can run, nothing is in flight, and polling once more changed nothing. Now and
then it answers at once that the phase is not complete, as it may at any time, unless the policy is ``fair``; when it
is ``adversarial``, so does the first wait of every warp at every instruction.
"""

from __future__ import annotations

import random
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tilekit.emulator.core.errors import EmulatorError, StepBudgetExceeded, Where
from tilekit.emulator.core.schedules import Pending, Policy, Starts, start_order
from tilekit.emulator.ptx.execution.cta import Cluster
from tilekit.emulator.ptx.execution.endless import EndlessLoops
from tilekit.emulator.ptx.execution.forward_progress import TURN, let_ahead, next_fragment, turn_ended, wait_for_others
from tilekit.emulator.ptx.execution.warp import SPLIT, WAIT, Fragment, Warp

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.launch import Launch

FUEL = 256
"""Blocks that a warp runs before another gets its turn; fewer, at random, when the policy is ``random``."""

IMPATIENCE = 1 / 16
"""Share of the waits on an mbarrier that fail at once, besides each warp's first at an instruction when adversarial."""

SPIN = 8192
"""Blocks without an event after which asynchronous work lands, or another cluster starts, although warps can run."""

POLL = 1024
"""The same while a warp polls memory: each time nothing but a poll has run, half as many, down to this."""


LATENESS = 32768
"""Blocks after which one of these happens in any case: who polls may store and meet at barriers as well. Work lands in
half as many each time, down to ``POLL``, while there is always a warp that can run."""


class Machine:
    """Runs the clusters of one launch to the end."""

    def __init__(
        self, launch: Launch, program: Program, policy: Policy, seed: int, budget: int, starts: Starts
    ) -> None:
        self.launch = launch
        self.program = program
        self.policy = policy
        self.rng = random.Random(seed)
        self.budget = budget
        self.ready: deque[Warp] = deque()
        self.pending: list[Pending] = []
        self.resident: list[Cluster] = []
        self.events = 0
        """Counts changes that somebody may wait for: arrivals, stores, landings, exits."""
        self.steps = 0
        self._last_events = 0
        self._spun = 0
        self._patience = SPIN
        self._moved = 0
        self._lateness = LATENESS
        self._pollers: set[Warp] = set()
        """Warps whose turns ended in loops that poll memory, since one that did not."""
        self._gave_up: set[tuple[int, int, int, int]] = set()
        self.started = time.perf_counter()
        self._waiting = deque(start_order(launch.clusters[0] * launch.clusters[1] * launch.clusters[2], starts, seed))
        self._finished_ctas = 0
        self._looks = 0
        self._issued = 0
        self._endless = EndlessLoops(self)

    def signature(self) -> tuple[int, ...]:
        """Numbers that stay as they are while nothing happens that a warp may learn of, its own registers aside."""
        return self.events, self._looks, self._issued, self._finished_ctas, len(self.resident)

    def ticks(self) -> int:
        """Blocks run so far, and looks at the clock: the time that kernels see, which never stands still."""
        self._looks += 1
        return self.steps + self._looks

    def wait_fails(self, warp: Warp) -> bool:
        """Whether a warp's wait for a phase that is not complete says so at once: try_wait may give up at any time."""
        if self.policy == "adversarial":
            place = warp.cta.cluster.number, warp.cta.rank, warp.index, warp.at
            if place not in self._gave_up:
                self._gave_up.add(place)
                return True
        return self.policy != "fair" and self.rng.random() < IMPATIENCE

    # -- queues ------------------------------------------------------------------------------------------------------

    def enqueue(self, warp: Warp) -> None:
        """Put a warp that can run into the queue."""
        if not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def wake(self, waiters: list[tuple[Warp, Fragment]]) -> None:
        """Let fragments that waited for something try again."""
        self.events += 1
        if waiters:
            for warp, fragment in waiters:
                fragment.blocked = None
                self.enqueue(warp)
            waiters.clear()

    def submit(self, operation: Pending) -> None:
        """Queue an asynchronous operation."""
        self.pending.append(operation)
        self._issued += 1
        for observer in self.launch.observers:
            observer.issued(operation)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run every cluster to its end.

        Raises
        ------
        EmulatorError
            The first fault, with the place where it happened.
        """
        resident = min(max(1, 4 // len(self._indices())), self.launch.max_resident_clusters)
        for _ in range(resident):
            self._start_cluster()
        while True:
            if self.pending and self.policy != "adversarial":
                self._land_some()
            if not self.ready:
                self._patience, self._lateness = SPIN, LATENESS
            elif not self._spinning():
                self._turn(self._pick())
                continue
            self._moved = self.steps
            if self.ready:
                self._endless.look(idle=not (self.pending or self._can_start()))
            if self.pending:
                if self.ready:
                    self._lateness = max(POLL, self._lateness // 2)
                self._land(self.rng.randrange(len(self.pending)))
            elif self._can_start():
                self._start_cluster()
            elif not self.resident:
                return
            elif self.ready:
                self._spun = self.steps
            elif not self.time_out():
                raise self.launch.deadlock(self.resident)

    def _spinning(self) -> bool:
        """Whether warps have run for long, or changed nothing: perhaps they poll memory for what is pending."""
        if self.events != self._last_events:
            self._last_events = self.events
            self._spun = self.steps
        if self.steps - self._spun > self._patience:
            self._patience = max(POLL, self._patience // 2)
            return True
        return self.steps - self._moved > self._lateness

    def _indices(self) -> range:
        width, height, depth = self.launch.cluster
        return range(width * height * depth)

    def _pick(self) -> Warp:
        ready = self.ready
        if self.policy == "fair" or len(ready) == 1:
            warp = ready.popleft()
        else:
            index = self.rng.randrange(len(ready))
            ready[index], ready[0] = ready[0], ready[index]
            warp = ready.popleft()
        warp.queued = False
        return warp

    def _land_some(self) -> None:
        if self.policy == "fair":
            while self.pending:
                self._land(0)
        elif self.rng.random() < 0.5:
            self._land(self.rng.randrange(len(self.pending)))

    def _land(self, index: int) -> None:
        pending = self.pending
        operation = pending[index]
        try:
            landed = operation.done or operation.land()
        except EmulatorError as error:
            pending.remove(operation)
            raise error.at(operation.where) from None
        if landed:
            pending[index] = pending[-1]
            pending.pop()

    def land_rest(self) -> None:
        """After a fault: land what is in flight, so that its races are found as well; it can fail no more."""
        for operation in self.pending:
            with suppress(EmulatorError):
                while not (operation.done or operation.land()):
                    pass

    def _start_cluster(self) -> None:
        if not self._waiting:
            return
        number = self._waiting.popleft()
        cluster = Cluster(self.launch, self.program, number, self._index(number))
        self.resident.append(cluster)
        self.launch.cluster_started(cluster)
        for warp in cluster.warps:
            self.enqueue(warp)

    def cancel_waiting(self) -> tuple[int, int, int] | None:
        """Take the first cluster that has not started from the queue; returns its first CTA's index."""
        if not self._waiting:
            return None
        x, y, z = self._index(self._waiting.popleft())
        width, height, depth = self.launch.cluster
        self._finished_ctas += width * height * depth
        return x * width, y * height, z * depth

    def _index(self, number: int) -> tuple[int, int, int]:
        width, height, _ = self.launch.clusters
        return number % width, number // width % height, number // (width * height)

    def time_out(self, *, again: bool = False) -> bool:
        """Let polls that failed fail visibly, once for each state of the machine; False when all did already.

        Parameters
        ----------
        again
            Let those fail as well that did already.
        """
        woken = False
        for cluster in self.resident:
            for warp in cluster.warps:
                for fragment in warp.fragments:
                    blocked = fragment.blocked
                    if blocked is not None and blocked.polls and (again or fragment.timed_out != self.events):
                        fragment.timed_out = self.events
                        fragment.expired = True
                        fragment.blocked = None
                        blocked.waiters.remove((warp, fragment))
                        self.enqueue(warp)
                        woken = True
        return woken

    # -- one turn of a warp ------------------------------------------------------------------------------------------

    def _turn(self, warp: Warp) -> None:
        fuel = FUEL if self.policy != "random" else self.rng.randrange(1, 32)
        try:
            self._run_warp(warp, fuel)
        except EmulatorError as error:
            raise error.at(self.place(warp)) from None
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.launch.internal_fault(error).at(self.place(warp)) from error

    def place(self, warp: Warp) -> Where:
        """Where a warp is."""
        return Where(self.program.name, warp.actor, self.program.code[warp.at].instruction)

    def place_of_block(self, warp: Warp) -> Where:
        """Where a warp goes on."""
        block = self.program.flow.blocks[warp.fragments[0].block]
        return Where(self.program.name, warp.actor, self.program.code[block.start].instruction)

    def _run_warp(self, warp: Warp, fuel: int) -> None:
        program, counts, exit_block = warp.program, warp.counts, warp.exit_block
        if warp.parted or warp.polling:
            fuel = min(fuel, TURN)
        start = fuel
        while True:
            fragment = next_fragment(warp) if warp.parted else warp.runnable()
            if fragment is None:
                break
            warp.fragment = fragment
            block, mask, join = fragment.block, fragment.mask, fragment.join
            if warp.parted and wait_for_others(warp, block):
                self.enqueue(warp)
                break
            table = program.full if mask is None else program.masked
            while fuel > 0:
                fuel -= 1
                function = table[block]
                if function is None:
                    function = program.compile_block(block, masked=mask is not None)
                following = function(warp, mask)
                if following == WAIT:
                    fragment.block = block
                    break
                counts[block] += 1
                if following < 0:
                    break
                if following == join:
                    warp.reach_join()
                    break
                if following == exit_block:
                    warp.at = program.last_instruction(block)
                    warp.exit_fragment()
                    break
                block = following
                if warp.parted and wait_for_others(warp, block):
                    following = SPLIT
                    break
            else:
                fragment.block = block
                self._turn_ended(warp, start)
                break
            if following < SPLIT:
                self._turn_ended(warp, max(start - fuel, TURN))
                break
            warp.polling = False
        if not warp.polling:
            self._pollers.clear()
        self.steps += start - fuel
        if self.steps > self.budget:
            raise StepBudgetExceeded(
                f"the launch ran {self.steps:,} basic blocks, more than step_budget={self.budget}, "
                "and did not come to an end",
                hint=f"give step_budget={10 * self.budget} (tilekit emulate --step-budget) if the kernel is "
                "really that long; the table shows where each warp is",
                table=self.launch.position_table(self.resident),
                details={"steps": self.steps, "budget": self.budget},
            )
        if not warp.fragments and not warp.done:
            self._finish(warp)

    def _turn_ended(self, warp: Warp, blocks: int) -> None:
        long_polled = turn_ended(warp, blocks)
        if warp.polling:
            self._pollers.add(warp)
        if long_polled and not self.pending and not self._can_start() and self._pollers.issuperset(self.ready):
            let_ahead(warp)
            self._pollers.clear()
        self.enqueue(warp)

    def _can_start(self) -> bool:
        """Whether another cluster waits, and has room."""
        return bool(self._waiting) and len(self.resident) < self.launch.max_resident_clusters

    def _finish(self, warp: Warp) -> None:
        warp.done = True
        self.events += 1
        cta, cluster = warp.cta, warp.cta.cluster
        self.launch.warp_finished(warp)
        cta.live_warps -= 1
        cluster.live_warps -= 1
        for release in self.launch.on_warp_exit:
            release(warp)
        if cta.live_warps == 0:
            self._finished_ctas += 1
        if cluster.live_warps == 0:
            self._moved = self.steps
            self.launch.cluster_finished(cluster)
            self.resident.remove(cluster)
            cluster.dissolve()
            self.launch.report_progress(self._finished_ctas, time.perf_counter() - self.started)
            self._start_cluster()
