"""Who runs next: a seeded interleaving of warps, asynchronous operations and resident groups of warps.

A warp runs until it blocks or its turn ends. Asynchronous operations land, by policy,

- ``fair``: in the order of issue, as soon as the scheduler is between two warps;
- ``random``: at random moments, in random order;
- ``adversarial``: as late as the rules allow, that is when nothing else can run, in random order.

What a warp does in its turn, and what starts and ends with a group (a cluster of CTAs, a workgroup), is said by the
room of its language.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from tilekit.emulator.core.errors import Deadlock, EmulatorError
from tilekit.emulator.core.schedules import Pending, Policy, Starts, Waiting

__all__ = ["Interleaving"]

SPIN = 8192
"""Blocks without an event after which asynchronous work lands, or another cluster starts, although warps can run."""

POLL = 1024
"""The same while a warp polls memory: each time nothing but a poll has run, half as many, down to this."""


LATENESS = 32768
"""Blocks after which one of these happens in any case: who polls may store and meet at barriers as well. Work lands in
half as many each time, down to ``POLL``, while there is always a warp that can run."""


class Runner(Protocol):
    """A warp, as far as queues need to know it."""

    queued: bool


class Watcher(Protocol):
    """Who is told of asynchronous operations."""

    def issued(self, operation: Pending) -> None:
        """An operation has been issued."""


R = TypeVar("R", bound=Runner)
G = TypeVar("G")


class Interleaving(ABC, Generic[R, G]):
    """Runs the groups of one launch to the end.

    Parameters
    ----------
    policy, seed
        The order of events.
    groups, starts
        How many there are, and in which order they start.
    at_first, at_most
        How many start at once, and how many may be there together.
    observers
        Who is told of asynchronous operations.

    Attributes
    ----------
    ready
        Warps that can run.
    pending
        What has been issued and has not landed.
    resident
        Groups that have started and not ended.
    waiting
        Numbers of those that have not started.
    events
        Counts changes that a warp may wait for: arrivals, stores, landings, exits.
    steps
        Blocks run.
    moved
        Steps when something last landed, started or ended.
    issued
        Asynchronous operations so far.
    """

    def __init__(
        self,
        policy: Policy,
        seed: int,
        *,
        groups: int,
        starts: Starts,
        at_first: int,
        at_most: int,
        observers: Sequence[Watcher],
    ) -> None:
        self.policy = policy
        self.rng = random.Random(seed)
        self.observers = observers
        self.ready: deque[R] = deque()
        self.pending: list[Pending] = []
        self.resident: list[G] = []
        self.waiting = Waiting(groups, starts, seed)
        self.events = self.steps = self.moved = self.issued = 0
        self._at_first, self._at_most = at_first, at_most
        self._last_events = 0
        self._spun = 0
        self._patience = SPIN
        self._lateness = LATENESS

    @abstractmethod
    def turn(self, warp: R) -> None:
        """Run a warp until it blocks or its turn ends."""

    @abstractmethod
    def start_next(self) -> None:
        """Start the next group, if one waits: take it from `waiting` and queue its warps."""

    @abstractmethod
    def look(self, *, idle: bool) -> None:
        """Look, after a while without an event, whether this can ever end; idle when nothing can land or start."""

    @abstractmethod
    def time_out(self, *, again: bool = False) -> bool:
        """Let waits that may give up do so, once for each state of the machine; False when all did already."""

    @abstractmethod
    def deadlock(self) -> Deadlock:
        """The error when nothing can run."""

    def can_start(self) -> bool:
        """Whether another group waits, and has room."""
        return bool(self.waiting) and len(self.resident) < self._at_most

    # -- queues ------------------------------------------------------------------------------------------------------

    def enqueue(self, warp: R) -> None:
        """Put a warp that can run into the queue."""
        if not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def wake(self, waiters: list[tuple[R, Any]]) -> None:
        """Let parts of warps that waited for something try again."""
        self.events += 1
        if waiters:
            for warp, fragment in waiters:
                fragment.blocked = None
                self.enqueue(warp)
            waiters.clear()

    def submit(self, operation: Pending) -> None:
        """Queue an asynchronous operation."""
        self.pending.append(operation)
        self.issued += 1
        for observer in self.observers:
            observer.issued(operation)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run every group to its end.

        Raises
        ------
        EmulatorError
            The first fault, with the place where it happened.
        """
        for _ in range(min(self._at_first, self._at_most)):
            self.start_next()
        while True:
            if self.pending and self.policy != "adversarial":
                self._land_some()
            if not self.ready:
                self._patience, self._lateness = SPIN, LATENESS
            elif not self._spinning():
                self.turn(self._pick())
                continue
            self.moved = self.steps
            if self.ready:
                self.look(idle=not (self.pending or self.can_start()))
            if self.pending:
                if self.ready:
                    self._lateness = max(POLL, self._lateness // 2)
                self._land(self.rng.randrange(len(self.pending)))
            elif self.can_start():
                self.start_next()
            elif not self.resident:
                return
            elif self.ready:
                self._spun = self.steps
            elif not self.time_out():
                raise self.deadlock()

    def _spinning(self) -> bool:
        """Whether warps have run for long, or changed nothing: perhaps they poll memory for what is pending."""
        if self.events != self._last_events:
            self._last_events = self.events
            self._spun = self.steps
        if self.steps - self._spun > self._patience:
            self._patience = max(POLL, self._patience // 2)
            return True
        return self.steps - self.moved > self._lateness

    def _pick(self) -> R:
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
