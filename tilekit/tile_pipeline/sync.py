"""What a ring asks of its synchronisation: four verbs and a tail, offered to each side as a handle.

A role that fills stages has a `ProducerSync`, one that reads them a `ConsumerSync`. What lies between the two, barriers
that count bytes, named barriers or counters, is the strategy's.
"""

from __future__ import annotations

from typing import Protocol

from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_pipeline.position import RingPosition


class ProducerSync(Protocol):
    """A role's side of a ring that it fills."""

    @property
    def leader(self) -> Value | None:
        """In a role of many threads: the one that starts what one thread does for all, a predicate."""

    @property
    def commits(self) -> bool:
        """Whether the role's threads commit stages, or what they start completes these without them."""

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value | None:
        """Wait until `stage` may be filled, and return the barrier on which copies count their bytes, if there is one.

        `phase` is 1 on the first lap: there is nothing to wait for.
        """

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Hand `stage` over: what this role's threads wrote to it has landed."""

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Wait, from `position` on, for releases that are still on their way when the consumers are done."""


class ConsumerSync(Protocol):
    """A role's side of a ring that it reads."""

    @property
    def active(self) -> Value | None:
        """The lanes that give a stage back, a predicate; None where all of them do it together."""

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> Value | None:
        """Wait until `stage` is full, and return the barrier on which its bytes counted, if there is one."""

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> Value | None:
        """Whether `stage` is full, a predicate, without waiting; None where that cannot be told."""

    def ticket(self, stage: Value) -> Value:
        """What gives `stage` back: a ring may keep it while reads run on."""

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Give the stage of `ticket` back: the reads issued before are done, or what is released waits for them.

        `active` stands for this handle's own: a register that holds them, or is false where no stage is owed.
        """


class SyncStrategy(Protocol):
    """How the roles on both sides of a ring wait for each other and signal each other."""

    def initialise(self, w: Writer) -> None:
        """Prepare what lies in shared memory; one thread of the CTA, before any role waits."""

    def producer(self, w: Writer) -> ProducerSync:
        """Prepare a role that fills stages; once a role, by all of its threads that do so."""

    def consumer(self, w: Writer) -> ConsumerSync:
        """Prepare a role that reads stages; once a role, by all of its threads that do so."""


class ReadStrategy(SyncStrategy, Protocol):
    """One whose stages further roles read, beside the consumers that multiply them."""

    def reader(self, w: Writer) -> ConsumerSync:
        """Prepare a role that reads stages which others multiply; once a role, by all of its threads that do so."""
