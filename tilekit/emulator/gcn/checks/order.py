"""Which access is ordered before which: what each wave knows to be complete.

A wave has two queues of memory operations, one for each wait counter. The operations of a queue take place in order;
between the queues, and between waves, nothing is ordered but what a wait has seen complete and a barrier, or an atomic
operation, has passed on. So an access belongs to its queue and its number there, and a clock holds for each queue the
number up to which all is known to be complete.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from tilekit.emulator.core.checks.agents import NOTHING, Clock, join

if TYPE_CHECKING:
    from tilekit.emulator.gcn.errors import Wave

__all__ = ["Queue", "WaveOrder"]

_EVER = 1 << 60


class Queue:
    """One queue of a wave, as the race check's party.

    Attributes
    ----------
    identity, epoch
        Its name in clocks, and the number of the operation under way.
    clock
        What its next operation comes after: all of this queue, and of others what the wave knows.
    """

    __slots__ = ("clock", "counter", "epoch", "identity", "wave")

    asynchronous = False
    apart = NOTHING
    fenced = NOTHING

    def __init__(self, wave: WaveOrder, identity: int, counter: str) -> None:
        self.wave = wave
        self.identity = identity
        self.counter = counter
        self.epoch = 1
        self.clock: Clock = {identity: _EVER}

    def touch(self) -> None:
        """Operations are numbered one by one: nothing to do."""

    def __str__(self) -> str:
        return str(self.wave.actor)


class WaveOrder:
    """What one wave knows.

    Attributes
    ----------
    known
        By queue, the last operation that is known to be complete.
    assumed
        By queue, the last operation that a barrier came after, complete or not.
    queues
        Of vmcnt and of lgkmcnt.
    """

    __slots__ = ("actor", "assumed", "known", "queues")

    def __init__(self, actor: Wave, identities: count[int]) -> None:
        self.actor = actor
        self.known: Clock = {}
        self.assumed: Clock = {}
        self.queues = (Queue(self, next(identities), "vmcnt"), Queue(self, next(identities), "lgkmcnt"))

    def waited(self, done: tuple[int, int]) -> None:
        """Note how many operations of each queue are complete."""
        for queue, number in zip(self.queues, done, strict=True):
            if number:
                self.known[queue.identity] = number
        self._tell()

    def learn(self, known: Clock, assumed: Clock) -> None:
        """Know, and assume, what others do."""
        join(self.known, known)
        join(self.assumed, assumed)
        self._tell()

    def tell(self, known: Clock, assumed: Clock) -> None:
        """Let others know."""
        join(known, self.known)
        join(assumed, self.assumed)

    def _tell(self) -> None:
        for queue in self.queues:
            queue.clock = self.known.copy()
            queue.clock[queue.identity] = _EVER
