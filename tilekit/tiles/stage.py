"""One stage of a ring, as the roles that fill and read it see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


@dataclass(frozen=True)
class Stage:
    """One stage in the hands of a role.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    full
        Address of the barrier that the stage's bytes count on.
    leader
        In a role of many threads: the one that starts what one thread does for all, a predicate.
    """

    index: Value
    full: Value
    leader: Value | None = None


@dataclass
class HeldStage:
    """A stage whose asynchronous reads are done, until it is given back.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    full
        Address of the barrier that the stage's bytes counted on.
    """

    index: Value
    full: Value
    _give_back: Callable[[], None] | None

    def release(self) -> None:
        """Give the stage back; what its holder does not give back earlier goes when the k-block ends."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


Promote = Callable[[Writer, HeldStage], None]
"""What accumulators do with a k-block whose reads are done, while its stage is held."""


class AsyncReader(Protocol):
    """Something that reads stages asynchronously: a matrix unit.

    Where the sync strategy's release itself waits for the reads (`CommitSync`), both methods do nothing.
    """

    def commit(self, w: Writer) -> None:
        """Close the group of reads issued since the last commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups still read."""


class AsyncWriter(Protocol):
    """Something that writes stages asynchronously, by the producer role's own threads."""

    def joined(self, other: Any) -> AsyncWriter:
        """The writes of both, which are of one kind: a thread has one group of them open."""

    def commit(self, w: Writer) -> None:
        """Close the group of writes started since the last commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are still landing."""

    def settle(self, w: Writer, stage: Value) -> None:
        """Finish a stage whose writes have landed."""
