"""How the warps of a launch take turns, and what one of them does in its turn.

A failed ``mbarrier.try_wait`` or ``test_wait`` blocks its warp until the barrier changes, so idle spinning costs
nothing and a deadlock is exact: no warp can run, nothing is in flight, and polling once more changed nothing. Now and
then it answers at once that the phase is not complete, as it may at any time, unless the policy is ``fair``; when it
is ``adversarial``, so does the first wait of every warp at every instruction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tilekit.emulator.core.errors import Deadlock, EmulatorError, StepBudgetExceeded, Where
from tilekit.emulator.core.interleaving import Interleaving
from tilekit.emulator.core.schedules import Policy, Starts
from tilekit.emulator.ptx.execution.cta import Cluster
from tilekit.emulator.ptx.execution.endless import EndlessLoops
from tilekit.emulator.ptx.execution.forward_progress import TURN, let_ahead, next_fragment, turn_ended, wait_for_others
from tilekit.emulator.ptx.execution.warp import SPLIT, WAIT, Warp

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.launch import Launch

FUEL = 256
"""Blocks that a warp runs before another gets its turn; fewer, at random, when the policy is ``random``."""

IMPATIENCE = 1 / 16
"""Share of the waits on an mbarrier that fail at once, besides each warp's first at an instruction when adversarial."""


class Machine(Interleaving[Warp, Cluster]):
    """Runs the clusters of one launch to the end."""

    def __init__(
        self, launch: Launch, program: Program, policy: Policy, seed: int, budget: int, starts: Starts
    ) -> None:
        super().__init__(
            policy,
            seed,
            groups=launch.clusters[0] * launch.clusters[1] * launch.clusters[2],
            starts=starts,
            at_first=max(1, 4 // (launch.cluster[0] * launch.cluster[1] * launch.cluster[2])),
            at_most=launch.max_resident_clusters,
            observers=launch.observers,
        )
        self.launch = launch
        self.program = program
        self.budget = budget
        self._pollers: set[Warp] = set()
        """Warps whose turns ended in loops that poll memory, since one that did not."""
        self._gave_up: set[tuple[int, int, int, int]] = set()
        self.started = time.perf_counter()
        self._finished_ctas = 0
        self._looks = 0
        self._endless = EndlessLoops(self)

    def signature(self) -> tuple[int, ...]:
        """Numbers that stay as they are while nothing happens that a warp may learn of, its own registers aside."""
        return self.events, self._looks, self.issued, self._finished_ctas, len(self.resident)

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

    # -- clusters ----------------------------------------------------------------------------------------------------

    def look(self, *, idle: bool) -> None:
        """Raise a livelock when nothing can change any more."""
        self._endless.look(idle=idle)

    def deadlock(self) -> Deadlock:
        """The error when nothing can run."""
        return self.launch.deadlock(self.resident)

    def start_next(self) -> None:
        """Start the next cluster, if one waits."""
        if not self.waiting:
            return
        number = self.waiting.popleft()
        cluster = Cluster(self.launch, self.program, number, self._index(number))
        self.resident.append(cluster)
        self.launch.cluster_started(cluster)
        for warp in cluster.warps:
            self.enqueue(warp)

    def cancel_waiting(self) -> tuple[int, int, int] | None:
        """Take the first cluster that has not started from the queue; returns its first CTA's index."""
        if not self.waiting:
            return None
        x, y, z = self._index(self.waiting.popleft())
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

    def turn(self, warp: Warp) -> None:
        """Run a warp until it blocks or its fuel ends."""
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
                hint=f"if the kernel is really that long, Kernel.launch of tilekit.emulator takes "
                f"step_budget={10 * self.budget}, and tilekit emulate of a file --step-budget (bind takes neither); "
                "the table shows where each warp is",
                table=self.launch.position_table(self.resident),
                details={"steps": self.steps, "budget": self.budget},
            )
        if not warp.fragments and not warp.done:
            self._finish(warp)

    def _turn_ended(self, warp: Warp, blocks: int) -> None:
        long_polled = turn_ended(warp, blocks)
        if warp.polling:
            self._pollers.add(warp)
        if long_polled and not self.pending and not self.can_start() and self._pollers.issuperset(self.ready):
            let_ahead(warp)
            self._pollers.clear()
        self.enqueue(warp)

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
            self.moved = self.steps
            self.launch.cluster_finished(cluster)
            self.resident.remove(cluster)
            cluster.dissolve()
            self.launch.report_progress(self._finished_ctas, time.perf_counter() - self.started)
            self.start_next()
