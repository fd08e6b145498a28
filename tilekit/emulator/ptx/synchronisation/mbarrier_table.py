"""The live mbarriers of a cluster, and the bytes of shared memory that belong to them."""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.emulator.core.errors import Actor, BarrierFault, InstructionLike, Where, describe
from tilekit.emulator.ptx.synchronisation.mbarrier import BYTES, Mbarrier

__all__ = ["MbarrierTable"]


class MbarrierTable:
    """All live mbarriers of a cluster, by address.

    The table stands beside memory: a barrier's eight bytes belong to it from init to inval, and :meth:`check_store`
    says who may not write them.
    """

    def __init__(self) -> None:
        self._barriers: dict[int, Mbarrier] = {}
        self._low = self._high = 0

    def __iter__(self) -> Iterator[Mbarrier]:
        return iter(self._barriers.values())

    def __len__(self) -> int:
        return len(self._barriers)

    def initialise(
        self,
        address: int,
        count: int,
        name: str = "",
        *,
        by: Actor | None = None,
        instruction: InstructionLike | None = None,
        stamp: tuple[int, int] | None = None,
    ) -> Mbarrier:
        """Execute `mbarrier.init`.

        Raises
        ------
        BarrierFault
            If the address or count is illegal, or the bytes already hold a live mbarrier.
        """
        barrier = Mbarrier(address, count, name, by=by, instruction=instruction, stamp=stamp)
        known = self._barriers.get(address)
        if known is not None:
            first = known.initialised_by
            raise known.fault(
                f"initialised again while live; it was initialised by {first.actor or 'a thread'} at "
                f"{describe(first.instruction)}",
                by,
                instruction,
                hint="initialise a barrier once, or mbarrier.inval it when every thread is done with it",
            )
        self._barriers[address] = barrier
        self._low = min(self._low, address) if len(self._barriers) > 1 else address
        self._high = max(self._high, address + BYTES) if len(self._barriers) > 1 else address + BYTES
        return barrier

    def invalidate(self, address: int, *, by: Actor | None = None, instruction: InstructionLike | None = None) -> None:
        """Execute `mbarrier.inval`: the bytes may be used again.

        Raises
        ------
        BarrierFault
            If there is no barrier, a thread waits on it, or expected bytes are still to arrive.
        """
        barrier = self.at(address, by=by, instruction=instruction)
        if barrier.waiters:
            who = next(iter(barrier.waiters.values()))
            raise barrier.fault(
                f"invalidated while {who.actor or 'a warp'} waits on it ({describe(who.instruction)})", by, instruction
            )
        if barrier.tx:
            raise barrier.fault(f"invalidated with {barrier.tx} bytes still to arrive", by, instruction)
        del self._barriers[address]

    def get(self, address: int) -> Mbarrier | None:
        """Return the barrier at `address`, or None."""
        return self._barriers.get(address)

    def at(
        self, address: int, *, by: Actor | None = None, instruction: InstructionLike | None = None, name: str = ""
    ) -> Mbarrier:
        """Return the barrier at `address`, which the kernel's author calls `name`.

        Raises
        ------
        BarrierFault
            If no live barrier is there; names the nearest one that is.
        """
        barrier = self._barriers.get(address)
        if barrier is not None:
            return barrier
        close = min(self._barriers.values(), key=lambda b: abs(b.address - address), default=None)
        if close is None:
            hint = "no mbarrier has been initialised yet: is the init executed, and a barrier passed after it?"
        elif all(b.address >> 24 != address >> 24 for b in self._barriers.values()):
            hint = (
                f"only CTA {close.address >> 24 & 0xFF} of the cluster has initialised mbarriers so far: no CTA may "
                "reach a peer's before both have passed a cluster barrier behind the init"
            )
        else:
            hint = f"the nearest initialised one is {close.name} at {close.address:#x}"
        known_as = f", {name} of CTA {address >> 24 & 0xFF}" if name else ""
        raise BarrierFault(
            f"no mbarrier has been initialised at {address:#x}{known_as}",
            where=Where(actor=by, instruction=instruction),
            hint=hint,
            details={"address": address},
        )

    def check_store(
        self, low: int, high: int, *, by: Actor | None = None, instruction: InstructionLike | None = None
    ) -> None:
        """Check that an ordinary write of [low, high) overwrites no live barrier.

        Raises
        ------
        BarrierFault
            If it does.
        """
        barrier = self.overlapping(low, high)
        if barrier is not None:
            raise barrier.fault(
                f"its bytes are overwritten by a write to {low:#x} .. {high:#x}",
                by,
                instruction,
                hint="the barrier's eight bytes belong to it until mbarrier.inval; does a tile overlap it?",
            )

    def overlapping(self, low: int, high: int) -> Mbarrier | None:
        """Return a live barrier with bytes in [low, high), or None."""
        if high <= self._low or low >= self._high:
            return None
        return next((b for b in self._barriers.values() if b.address < high and low < b.address + BYTES), None)

    def unfinished(self) -> list[Mbarrier]:
        """Return the barriers in the middle of a phase: arrivals have come to it and not all, or not its bytes.

        A phase without arrivals is none, and neither is one that threads have only left (arrive_drop).
        """
        return [barrier for barrier in self._barriers.values() if barrier.tx or barrier.pending != barrier.expected]
