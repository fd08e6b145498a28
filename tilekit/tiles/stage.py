"""One stage of a ring, as the roles that fill and read it see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer


@dataclass(frozen=True)
class Stage:
    """One stage in the hands of a role.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    barrier
        Address of the barrier that the stage's bytes count on; None where the ring's synchronisation counts no bytes.
    sync
        What the ring's synchronisation is called.
    leader
        In a role of many threads: the one that starts what one thread does for all, a predicate.
    """

    index: Value
    barrier: Value | None
    sync: str
    leader: Value | None = None

    @property
    def full(self) -> Value:
        """The barrier that the stage's bytes count on."""
        return self.counting("a copy")

    def counting(self, copy: str) -> Value:
        """The barrier that the bytes of `copy`, as an error calls it, count on.

        Raises
        ------
        TraceError
            ``TK-TRACE-014`` where the ring has none.
        """
        if self.barrier is None:
            raise TraceError(
                f"{copy} counts its bytes on the stage's barrier, but the ring's {self.sync} has none that "
                "counts bytes; take MbarrierSync, or a loader whose threads write the stage",
                code="TK-TRACE-014",
            )
        return self.barrier


@dataclass
class HeldStage:
    """A stage whose asynchronous reads are done, until it is given back.

    Attributes
    ----------
    index
        Its number in the ring, u32.
    """

    index: Value
    _give_back: Callable[[], None] | None

    def release(self) -> None:
        """Give the stage back; what its holder does not give back earlier goes when the k-block ends."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


Promote = Callable[[Writer, HeldStage], None]
"""What accumulators do with a k-block whose reads are done, while its stage is held."""


Step = Callable[[], None]
"""Emits one load, read or product: a schedule that has the order of a k-tile's instructions calls them in it."""


class AsyncReader(Protocol):
    """Something that reads stages asynchronously: a matrix unit.

    Where the sync strategy's release itself waits for the reads (a commit of the tensor core), both methods do nothing,
    and an attribute `committed` is true. One `synchronous` is true where reads are done in the order of the threads'
    instructions: loads to registers.
    """

    def commit(self, w: Writer) -> None:
        """Close the group of reads issued since the last commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups of any lane of the warp still read."""


class AsyncWriter(Protocol):
    """Something that writes stages asynchronously, by the producer role's own threads."""

    def joined(self, other: Any) -> AsyncWriter:
        """The writes of both, which are of one kind: a thread has one group of them open."""

    def commit(self, w: Writer) -> None:
        """Close the group of writes started since the last commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are still landing."""

    def complete(self, w: Writer, stage: Value) -> None:
        """Do what is left with a stage whose writes have landed."""
