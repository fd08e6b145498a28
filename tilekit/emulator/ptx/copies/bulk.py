"""Bulk copies in flight: TMA loads, stores and reductions, and plain bulk copies (PTX ISA 9.7.9.25 to 9.7.9.27).

A load lands when the scheduler says so: data, then ``complete_tx`` on the mbarrier of each destination CTA. A store
reads its source at the latest when ``wait_group.read`` asks for it, and writes its destination at the latest when
``wait_group`` does; each of the two may land earlier at the scheduler's pleasure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import active_bytes
from tilekit.emulator.core.checks.agents import ALL_LANES
from tilekit.emulator.core.errors import EmulatorError, MemoryFault, ProtocolError, Where
from tilekit.emulator.core.memory.memory import OFFSET_MASK, RANK_SHIFT, Allocation
from tilekit.emulator.ptx.checks.exits import ended, visit
from tilekit.emulator.ptx.synchronisation.mbarriers import barrier_at, changed

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp
    from tilekit.emulator.ptx.language.syntax import Instruction
    from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Value = int | Array
Combine = Callable[[Array, Array], Array]
"""From (the bytes in memory, those that arrive) to the new bytes in memory."""


class InFlight:
    """An asynchronous operation with the place it was issued from."""

    __slots__ = ("cluster", "done", "instruction", "warp")

    def __init__(self, warp: Warp, instruction: Instruction | None = None) -> None:
        self.done = False
        self.warp = warp
        self.cluster = warp.cta.cluster
        self.instruction = instruction or warp.program.code[warp.at].instruction
        self.cluster.pending += 1

    @property
    def where(self) -> Where:
        """The place."""
        return Where(self.warp.program.name, self.warp.actor, self.instruction)

    def finish(self) -> None:
        """Note that nothing remains to be done."""
        if not self.done:
            self.done = True
            cluster = self.cluster
            cluster.pending -= 1
            cluster.launch.machine.events += 1
            if not cluster.live_warps:
                cluster.dissolve()


class Load(InFlight):
    """A copy into shared memory that completes on mbarriers, or a reduction when there is a ``combine``.

    ``asynchronous`` says whether it is the async proxy's; ``st.async`` and ``red.async`` are not. Theirs may be the
    copies of several ``lanes`` at once, one behind the other: each is ordered after what its own lane did.
    """

    __slots__ = ("barriers", "combine", "fetch", "lanes", "offset", "operations", "size", "targets", "told", "written")

    def __init__(
        self,
        warp: Warp,
        lane: int,
        targets: list[Cta],
        offset: int,
        barriers: list[Mbarrier],
        size: int,
        fetch: Callable[[], Array],
        told: Callable[[Any], None],
        unit: str,
        written: npt.NDArray[np.bool_] | None = None,
        *,
        combine: Combine | None = None,
        asynchronous: bool = True,
        lanes: int = 0,
    ) -> None:
        super().__init__(warp)
        self.written = written
        self.lanes = range(lane, lane + lanes)
        self.combine = combine
        self.targets = targets
        self.offset = offset
        self.barriers = barriers
        self.size = size
        self.fetch = fetch
        self.told = told
        hb = warp.cta.launch.order
        self.operations = []
        if hb is not None:
            issuers = ALL_LANES if lanes else 1 << lane
            how: dict[str, Any] = {"asynchronous": asynchronous, "lanes": issuers}
            self.operations = [hb.issue(warp.agent, unit, self.instruction, b.arriving, **how) for b in barriers]
            if lanes:
                self.operations = [operation.of_each_lane() for operation in self.operations]
        for cta, barrier, operation in zip(targets, barriers, self.operations, strict=False):
            what = f"a copy that completes on {barrier.name}"
            visit(cta, warp, operation.identity, operation.epoch, what)
            owner = self.cluster.ctas[barrier.address >> RANK_SHIFT]
            if owner is not cta:
                visit(owner, warp, operation.identity, operation.epoch, what)

    def _put(self, place: Array, image: Array) -> None:
        """Write the data to its place in one destination."""
        if self.combine is not None:
            place[:] = self.combine(place, image)
        elif self.written is None:
            place[:] = image
        else:
            place[self.written] = image[self.written]

    def _tell(self, shadow: Any, operation: Any, end: int) -> None:
        """Report the write to one destination."""
        atomic = self.combine is not None  # Reductions may overlap each other.
        first, after = shadow.base + self.offset, shadow.base + end
        if not self.lanes:
            shadow.span(operation, first, after, write=True, atomic=atomic)
            return
        width = (after - first) // len(self.lanes)
        active = active_bytes(self.lanes)
        shadow.lanes(operation, np.arange(first, after, width), width, write=True, atomic=atomic, active=active)

    def land(self) -> bool:
        """Write the data into every destination and complete the transactions."""
        image = self.fetch()
        launch = self.cluster.launch
        hb = launch.order
        by, instruction = self.warp.actor, self.instruction
        for index, (cta, barrier) in enumerate(zip(self.targets, self.barriers, strict=True)):
            shared = cta.shared
            if ended(cta, f"a copy that completes on {barrier.name}"):
                continue
            end = self.offset + len(image)
            if shared.barriers:
                launch_base = shared.start
                self.cluster.mbarriers.check_store(
                    launch_base + self.offset, launch_base + end, by=by, instruction=instruction
                )
            self._put(shared.data[self.offset : end], image)
            if hb is not None:
                operation = self.operations[index]
                if shared.shadow is not None:
                    self._tell(shared.shadow, operation, end)
                self.told(operation)
                hb.release(operation, barrier.arriving)
            phase = barrier.phase
            barrier.complete_tx(self.size, by=by, instruction=instruction)
            changed(self.cluster, barrier, phase)
        launch.counters.bytes_loaded += self.size
        self.finish()
        return True


class Store(InFlight):
    """A copy or reduction out of shared memory that completes in a bulk group."""

    __slots__ = ("awaited", "image", "offset", "operations", "read_done", "shared", "size", "write")

    def __init__(
        self, warp: Warp, lane: int, shared: Allocation, offset: int, size: int, write: Callable[[Array, Any], None]
    ) -> None:
        super().__init__(warp)
        self.shared = shared
        self.offset = offset
        self.size = size
        self.write = write
        self.image: Array | None = None
        self.read_done = False
        self.awaited = False
        """Whether its warp has waited for the read at least."""
        queue = bulk_queue(warp)
        self.operations = queue.groups.issue(self.instruction, 1 << lane) if queue.groups is not None else None
        queue.open.append(self)

    def read(self) -> None:
        """Read the source, unless that has been done."""
        if self.read_done:
            return
        self.image = self.shared.data[self.offset : self.offset + self.size].copy()
        self.read_done = True
        if self.operations is not None and self.shared.shadow is not None:
            base = self.shared.shadow.base
            self.shared.shadow.span(self.operations[0], base + self.offset, base + self.offset + self.size, write=False)

    def land(self) -> bool:
        """The next of the two steps."""
        if not self.read_done:
            self.read()
            return False
        self.finish_write()
        return True

    def finish_write(self) -> None:
        """Read if need be, and write the destination."""
        if self.done:
            return
        self.read()
        assert self.image is not None
        self.write(self.image, self.operations[1] if self.operations is not None else None)
        self.cluster.launch.counters.bytes_stored += self.size
        self.finish()


class BulkQueue:
    """The bulk groups of one warp."""

    __slots__ = ("committed", "groups", "open")

    def __init__(self, groups: Any) -> None:
        self.open: list[Store] = []
        self.committed: list[list[Store]] = []
        self.groups = groups


def bulk_queue(warp: Warp) -> BulkQueue:
    """The warp's bulk groups, made on first use."""
    if warp.bulk is None:
        hb = warp.cta.launch.order
        warp.bulk = BulkQueue(hb.bulk_groups(warp.agent) if hb is not None else None)
    queue: BulkQueue = warp.bulk
    return queue


def bulk_commit(warp: Warp) -> None:
    """``cp.async.bulk.commit_group``."""
    queue = bulk_queue(warp)
    queue.committed.append(queue.open)
    queue.open = []
    if queue.groups is not None:
        queue.groups.commit()


def bulk_wait(warp: Warp, keep: int, read: bool) -> None:
    """``cp.async.bulk.wait_group``: all but the youngest groups are read, or read and written."""
    queue = bulk_queue(warp)
    finished = max(0, len(queue.committed) - keep)
    for group in queue.committed[:finished]:
        try:
            for store in group:
                store.awaited = True
                if read:
                    store.read()
                else:
                    store.finish_write()
        except EmulatorError as error:
            raise error.at(store.where) from None
    if not read:
        del queue.committed[:finished]
    if queue.groups is not None:
        queue.groups.wait(keep, read=read)


# -- operands --------------------------------------------------------------------------------------------------------


def active_lanes(warp: Warp, mask: Mask | None) -> list[int]:
    """Lanes that execute an instruction."""
    if mask is None:
        mask = warp.live
    found: list[int] = mask.nonzero()[0].tolist()
    return found


def at_lane(value: Value, lane: int) -> int:
    """A lane's value of an operand that may be uniform."""
    return value if isinstance(value, int) else int(value[lane])


def destinations_of(warp: Warp, address: int, multicast: int | None) -> tuple[list[Cta], int]:
    """The CTAs that a load writes to, and the offset in their shared memory."""
    cluster = warp.cta.cluster
    owner = cluster.ctas[0].shared_of(address)
    if owner is None:
        raise MemoryFault(f"destination {address:#x} is not in shared memory of this cluster")
    if multicast is None:
        return [owner], address & OFFSET_MASK
    ranks = [rank for rank in range(16) if multicast >> rank & 1]
    if not ranks or ranks[-1] >= len(cluster.ctas):
        raise ProtocolError(
            f"multicast mask {multicast:#x} in a cluster of {len(cluster.ctas)} CTAs",
            hint=f"legal: 1 to {(1 << len(cluster.ctas)) - 1:#x}, one bit for each destination CTA",
        )
    return [cluster.ctas[rank] for rank in ranks], address & OFFSET_MASK


def barriers_of(warp: Warp, address: int, targets: list[Cta], multicast: bool, group: int = 1) -> list[Mbarrier]:
    """The mbarrier on which the copy completes in each destination.

    With ``cta_group::2`` it may lie in the destination's peer; a multicast then signals the CTA of each pair whose rank
    is even or odd like that of the CTA in the address.
    """
    rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
    if rank >= len(warp.cta.cluster.ctas):
        raise MemoryFault(f"the mbarrier address {address:#x} is not in shared memory of this cluster")
    if multicast:
        ranks = [cta.rank & ~1 | rank & 1 if group == 2 else cta.rank for cta in targets]
        return [barrier_at(warp, peer << RANK_SHIFT | offset) for peer in ranks]
    (target,) = targets
    if rank != target.rank and (group == 1 or rank ^ 1 != target.rank):
        raise ProtocolError(
            f"the mbarrier of a copy to CTA {target.rank} lies in CTA {rank}",
            hint="it must lie in the destination CTA, or with .cta_group::2 in its peer",
        )
    return [barrier_at(warp, address)]


def check_room(targets: list[Cta], offset: int, size: int, what: str) -> None:
    """Fault when a destination does not fit into shared memory."""
    for cta in targets:
        shared = cta.shared
        if not shared.low <= offset <= shared.size - size:
            raise MemoryFault(
                f"{what} of {size} bytes at offset {offset:#x} is out of bounds of {shared.name}, "
                f"{shared.low:#x} to {shared.size:#x}"
            )
