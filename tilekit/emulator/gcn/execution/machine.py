"""How the batches of a launch take turns, wait at barriers, and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core.errors import Deadlock, Livelock, StepBudgetExceeded, Where
from tilekit.emulator.core.interleaving import Interleaving
from tilekit.emulator.core.schedules import Policy, Starts
from tilekit.emulator.gcn.execution.batch import Batch
from tilekit.emulator.gcn.execution.whereabouts import whereabouts
from tilekit.emulator.gcn.execution.workgroup import Gang, Workgroup
from tilekit.emulator.gcn.ops.control import BARRIER, END, SPLIT, YIELD

if TYPE_CHECKING:
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["Machine"]

FUEL = 256
"""Blocks that a batch runs before another gets its turn; fewer, at random, when the policy is ``random``."""


class Machine(Interleaving[Batch, Gang]):
    """Runs the gangs of one launch to the end."""

    def __init__(self, launch: Launch, policy: Policy, seed: int, budget: int, starts: Starts, gangs: int) -> None:
        super().__init__(policy, seed, groups=gangs, starts=starts, at_first=1, at_most=launch.most_gangs, observers=())
        self.launch = launch
        self.budget = budget

    def lands_early(self) -> bool:
        """Whether the data of an operation lands when it is issued, and not as late as the rules allow."""
        return self.policy == "fair" or (self.policy == "random" and self.rng.random() < 0.5)

    def start_next(self) -> None:
        """Start the next gang."""
        number = self.waiting.popleft()
        gang = Gang(self.launch, number, self.launch.numbers_of(number))
        self.resident.append(gang)
        self.events += 1
        for batch in gang.batches:
            self.enqueue(batch)

    def turn(self, batch: Batch) -> None:
        """Run a batch until it waits at a barrier, ends, is split, or its turn is over."""
        program = self.launch.program
        fuel = FUEL if self.policy != "random" else self.rng.randrange(1, FUEL)
        block = batch.block
        counts = self.launch.counts
        if self.steps > self.budget:
            raise StepBudgetExceeded(
                f"more than {self.budget} basic blocks have been executed",
                where=batch.where(program.first_of(block), 0),
                table=self._whereabouts(),
                hint=f"if the kernel is really that long, Kernel.launch of tilekit.emulator takes "
                f"step_budget={10 * self.budget}, and tilekit emulate of a file --step-budget (bind takes neither); "
                "the table shows where each wave is",
            )
        while fuel:
            answer = program.function(block, batch)(batch)
            counts[block] += batch.W
            self.steps += batch.W
            if answer < 0:
                self._stop(batch, answer, block)
                return
            block = answer
            fuel -= 1
        batch.block = block
        self._circle(batch)
        self.enqueue(batch)

    def _circle(self, batch: Batch) -> None:
        """Note whether a batch is back where it was, with nothing changed since."""
        if batch.met_events != self.events:
            batch.met_events = self.events
            batch.seen.clear()
            batch.circling = False
            return
        state = hash(batch.state())
        batch.circling = state in batch.seen
        batch.seen.add(state)

    def _stop(self, batch: Batch, answer: int, block: int) -> None:
        program = self.launch.program
        if answer == SPLIT:
            self.enqueue(batch)
        elif answer == YIELD:
            batch.block = program.following(block)
            self._circle(batch)
            self.enqueue(batch)
        elif answer == END:
            self._end(batch, block)
        else:
            assert answer == BARRIER
            self._arrive(batch, block)

    def _end(self, batch: Batch, block: int) -> None:
        gang = batch.gang
        self.launch.wave_ends(batch, program_end=self.launch.program.last_of(block))
        if batch.order_checked and not batch.order_known:
            batch.tell_order()
        for wave in batch.waves:
            wave.ended = True
        gang.batches.remove(batch)
        self.events += 1
        for workgroup in {wave.workgroup for wave in batch.waves}:
            if workgroup.arrived and workgroup.complete():
                self._release(gang, [workgroup])
        if not gang.batches:
            self.resident.remove(gang)
            self.moved = self.steps
            self.launch.gang_ended(gang)

    def _arrive(self, batch: Batch, block: int) -> None:
        """Wait at the barrier, or pass it at once where all waves of the batch's workgroups are in it."""
        if batch.order_checked and not batch.order_known:
            batch.tell_order()
        batch.block = self.launch.program.following(block)
        batch.waiting = self.launch.program.last_of(block)
        workgroups = dict.fromkeys(wave.workgroup for wave in batch.waves)
        for wave in batch.waves:
            wave.workgroup.arrived.add(wave.index)
            for queue, issued in zip(wave.order.queues, batch.issued, strict=True):
                wave.order.assumed[queue.identity] = issued
        self._release(batch.gang, [workgroup for workgroup in workgroups if workgroup.complete()])
        if batch.waiting is not None:
            for observer in self.launch.observers:
                observer.waits(batch)

    def _release(self, gang: Gang, complete: list[Workgroup]) -> None:
        """Let the waves of workgroups whose barrier is complete go on."""
        if not complete:
            return
        self.events += 1
        passed = set(map(id, complete))
        if self.launch.order_checked:
            for workgroup in complete:
                workgroup.meet()
        else:
            for workgroup in complete:
                workgroup.release()
        for batch in list(gang.batches):
            if batch.waiting is None:
                continue
            free = np.array([id(wave.workgroup) in passed for wave in batch.waves])
            if free.all():
                batch.waiting = None
                self.enqueue(batch)
            elif free.any():
                other = batch.part(free)
                batch.keep(~free)
                gang.batches.append(other)
                self.enqueue(other)

    # -- when nothing moves ------------------------------------------------------------------------------------------

    def look(self, *, idle: bool) -> None:
        """Raise a livelock when every batch that runs goes round in a circle."""
        if idle and self.ready and all(batch.circling and batch.met_events == self.events for batch in self.ready):
            batch = self.ready[0]
            first = self.launch.program.first_of(batch.block)
            raise Livelock(
                "waves go round in a loop in which nothing changes",
                where=batch.where(first, 0),
                table=self._whereabouts(),
                hint="they wait for memory that no other wave will write",
            )

    def _whereabouts(self) -> str:
        return whereabouts(self.resident, self.launch.program)

    def time_out(self, *, again: bool = False) -> bool:
        """Nothing gives up waiting on these machines."""
        return False

    def deadlock(self) -> Deadlock:
        """The error when every wave that has not ended waits."""
        return Deadlock(
            "waves wait at s_barrier for others that will never come",
            where=Where(self.launch.kernel.name),
            table=self._whereabouts(),
        )
