"""Tensor memory as warps use it: ``tcgen05.alloc`` and ``dealloc``, ``ld``, ``st`` and their waits.

The registers of a load may be used when it has been waited for; a store lands at the latest when it is. With
``cta_group::2`` one warp of each CTA of the pair allocates, and both receive the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.checks.deadlock import GroupWait
from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.ptx.copies.bulk import InFlight
from tilekit.emulator.ptx.matrix.tensor_order import TensorOperation, tensor_memory, tensor_unit
from tilekit.emulator.ptx.matrix.tensor_pipe import group_of
from tilekit.emulator.ptx.matrix.tmem import (
    LANES,
    Region,
    RegisterShape,
    TensorMemory,
    load_registers,
    split_address,
    store_registers,
)
from tilekit.emulator.ptx.matrix.wgmma_queue import Rows
from tilekit.emulator.ptx.memory.access import misaligned, resolve
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = [
    "allocate",
    "check_exit",
    "deallocate",
    "issue_load",
    "issue_store",
    "relinquish",
    "wait_loads",
    "wait_stores",
]


# -- allocation ------------------------------------------------------------------------------------------------------


class PairAllocation:
    """A ``tcgen05.alloc`` under way: the warps that have come, and the columns once there are some."""

    __slots__ = ("requests", "served", "start", "sync")

    def __init__(self) -> None:
        self.requests: dict[int, tuple[int, int]] = {}
        """Columns and destination offset, by CTA rank."""
        self.served: set[int] = set()
        self.start: int | None = None
        self.sync = Sync("tcgen05.alloc")


class ColumnWait:
    """A warp that waits for tensor-memory columns, or for its peer to allocate with it."""

    __slots__ = ("text", "waiters")
    polls = False

    def __init__(self, waiters: list[Any], text: str) -> None:
        self.waiters = waiters
        self.text = text

    def describe(self) -> GroupWait:
        """For the deadlock report."""
        return GroupWait(self.text)


def allocate(warp: Warp, group: int, space: str, destination: int, count: int) -> bool:
    """``tcgen05.alloc``: write the address of free columns to shared memory; False while there are none."""
    members = group_of(warp, group)
    cta, cluster = warp.cta, warp.cta.cluster
    machine, hb = cluster.launch.machine, cluster.launch.order
    pending = cluster.tensor_allocations
    key = (members[0].rank, group)
    meeting = pending.setdefault(key, PairAllocation())
    if cta.rank not in meeting.requests:
        tensor_memory(cta).allocations.check_request(count)
        meeting.requests[cta.rank] = count, destination & 0xFFFFFF
        if hb is not None:
            hb.release(warp.agent, meeting.sync)
        if len(meeting.requests) == len(members):
            _agree(meeting)
            machine.wake(cluster.tensor_waiters)
    if meeting.start is None and len(meeting.requests) == len(members):
        first, *others = (tensor_memory(member).allocations for member in members)
        meeting.start = first.find(*others, count=count)
        if meeting.start is not None:
            for member in members:
                tensor_memory(member).allocations.take(meeting.start, count)
                tensor_memory(member).clear(meeting.start, meeting.start + count)
            # A pair allocates together, so a warp that comes back from it may use the columns of both CTAs (CUTLASS's
            # leader does, with no other barrier between the CTAs).
            if hb is not None:
                hb.acquire(warp.agent, meeting.sync)
            _tell(warp, members, meeting.start, count)
            if hb is not None:
                hb.release(warp.agent, meeting.sync)
            machine.wake(cluster.tensor_waiters)
    if meeting.start is None:
        _wait(warp, members, meeting, count)
        return False
    if hb is not None and group == 2:
        hb.acquire(warp.agent, meeting.sync)
    _deliver(warp, space, destination, meeting.start)
    meeting.served.add(cta.rank)
    if len(meeting.served) == len(members):
        del pending[key]
    return True


def _deliver(warp: Warp, space: str, destination: int, start: int) -> None:
    """Write the address. Compilers let tensor copies overwrite it without a proxy fence, so it is no generic write."""
    launch = warp.cta.launch
    memory, offset = resolve(warp, "shared", shared_address(space, destination), 4, "tcgen05.alloc")
    if offset % 4:
        raise misaligned(destination, 4, "tcgen05.alloc")
    instruction = warp.program.instruction(warp.at)
    if memory.barriers:
        first = memory.start + offset
        warp.cta.cluster.mbarriers.check_store(first, first + 4, by=warp.actor, instruction=instruction)
    memory.views[4][offset // 4] = start
    launch.machine.events += 1
    if launch.order is not None and memory.shadow is not None:
        done = Sync("tcgen05.alloc")
        operation = launch.order.issue(warp.agent, "tcgen05.alloc", instruction, done)
        memory.shadow.span(operation, memory.shadow.base + offset, memory.shadow.base + offset + 4, write=True)
        launch.order.release(operation, done)
        launch.order.acquire(warp.agent, done)


def _agree(meeting: PairAllocation) -> None:
    """Both CTAs of a pair must ask for the same."""
    counts = {count for count, _ in meeting.requests.values()}
    offsets = {offset for _, offset in meeting.requests.values()}
    if len(counts) > 1 or len(offsets) > 1:
        raise ProtocolError(
            "tcgen05.alloc.cta_group::2: the CTAs of the pair ask for different column counts or destination offsets",
            details={"requests": dict(meeting.requests)},
        )


def _wait(warp: Warp, members: list[Cta], meeting: PairAllocation, count: int) -> None:
    if len(meeting.requests) < len(members):
        peer = next(member.rank for member in members if member.rank not in meeting.requests)
        text = f"CTA {peer}, which has not executed the same tcgen05.alloc.cta_group::2"
    else:
        held = sum(tensor_memory(warp.cta).allocations.starts.values())
        text = f"{count} free columns of tensor memory, of which {held} of 512 are allocated"
    waiters = warp.cta.cluster.tensor_waiters
    warp.fragment.blocked = ColumnWait(waiters, text)
    waiters.append((warp, warp.fragment))


def _tell(warp: Warp, ctas: list[Cta], start: int, count: int) -> None:
    """Columns that change hands count as written: their former users must be done.

    The CTAs of a pair give their columns back together: each must know that both have been used for the last time. That
    both do so at once is no race.
    """
    region = Region(0, LANES, start, start + count)
    instruction = warp.program.instruction(warp.at)
    for cta in ctas:
        shadow = tensor_memory(cta).shadow
        if shadow is not None:
            shadow.region(warp.agent, region, write=True, atomic=len(ctas) > 1, instruction=instruction)


def deallocate(warp: Warp, group: int, address: int, count: int) -> None:
    """``tcgen05.dealloc``."""
    members = group_of(warp, group)
    memory = tensor_memory(warp.cta)
    start = memory.allocations.give(address, count)
    _tell(warp, members, start, count)
    memory.clear(start, start + count)
    warp.cta.launch.machine.wake(warp.cta.cluster.tensor_waiters)


def relinquish(warp: Warp, group: int) -> None:
    """``tcgen05.relinquish_alloc_permit``."""
    group_of(warp, group)
    tensor_memory(warp.cta).allocations.permit = False


def check_exit(warp: Warp) -> None:
    """Check, when the last warp of a CTA ends, that its tensor memory has been given back.

    Raises
    ------
    ProtocolError
        If columns are still allocated.
    """
    cta = warp.cta
    if cta.live_warps or cta.tensor_memory is None or not cta.launch.protocol:
        return
    left = tensor_memory(cta).allocations.starts
    if left:
        held = ", ".join(f"{count} at column {start}" for start, count in sorted(left.items()))
        raise ProtocolError(
            f"CTA {cta.rank} ends with tensor memory allocated: {held} columns",
            hint="tcgen05.dealloc every allocation before the CTA ends",
            details={"columns": dict(left)},
        )


# -- ld and st -------------------------------------------------------------------------------------------------------


def _place(warp: Warp, shape: RegisterShape, address: int, what: str) -> tuple[TensorMemory, int, int]:
    """Tensor memory, lane and column of an access by this warp, which may reach one quarter of the lanes only."""
    lane, column = split_address(address)
    quarter = warp.index % 4
    if lane >> 5 not in (0, quarter):
        raise ProtocolError(
            f"{what} of lane {lane} by warp {warp.index}, whose lanes are {32 * quarter} to {32 * quarter + 31}",
            hint="a warp accesses the 32 lanes of its index modulo 4",
            details={"lane": lane, "warp": warp.index},
        )
    legal = (0,) if shape.lanes == 32 else (0, 16)
    if lane & 31 not in legal:
        raise ProtocolError(
            f"{what}.{shape.name} at lane {lane & 31} of its warp's 32; legal: {' or '.join(map(str, legal))}"
        )
    memory = tensor_memory(warp.cta)
    place = 32 * quarter + (lane & 31)
    for region in shape.regions(place, column):
        memory.check(region, what)
    return memory, place, column


def _tell_transfer(
    memory: TensorMemory, shape: RegisterShape, lane: int, column: int, operation: TensorOperation | None, write: bool
) -> None:
    if operation is not None and memory.shadow is not None:
        for region in shape.regions(lane, column):
            memory.shadow.region(operation, region, write=write)


class Store(InFlight):
    """One ``tcgen05.st``."""

    __slots__ = ("column", "lane", "memory", "operation", "shape", "values")

    def __init__(
        self,
        warp: Warp,
        shape: RegisterShape,
        place: tuple[TensorMemory, int, int],
        values: npt.NDArray[np.uint32],
    ) -> None:
        super().__init__(warp)
        self.shape = shape
        self.memory, self.lane, self.column = place
        self.values = values
        unit = tensor_unit(warp)
        self.operation = unit.transfer(unit.st, "tcgen05.st", warp.program.instruction(warp.at))

    def land(self) -> bool:
        """Write the cells."""
        if not self.done:
            for region in self.shape.regions(self.lane, self.column):
                self.memory.check(region, "tcgen05.st")
            _tell_transfer(self.memory, self.shape, self.lane, self.column, self.operation, True)
            store_registers(self.memory, self.shape, self.lane, self.column, self.values)
            self.finish()
        return True


def issue_load(warp: Warp, shape: RegisterShape, address: int, rows: Rows, bits: int) -> None:
    """``tcgen05.ld``: its registers may not be used until it has been waited for."""
    memory, lane, column = _place(warp, shape, address, "tcgen05.ld")
    for region in shape.regions(lane, column):
        if not memory.written[region.first : region.last, region.left : region.right].any():
            raise MemoryFault(
                f"tcgen05.ld of {region}, of which nothing was ever written",
                hint=f"wait for {_announcing(warp)}the mma's tcgen05.commit first; check the column and the lane",
            )
    unit = tensor_unit(warp)
    operation = unit.transfer(unit.ld, "tcgen05.ld", warp.program.instruction(warp.at))
    _tell_transfer(memory, shape, lane, column, operation, False)
    warp.tile[rows if isinstance(rows, slice) else list(rows)] = load_registers(memory, shape, lane, column)
    warp.in_flight |= bits


def _announcing(warp: Warp) -> str:
    """The barriers that tell this warp's role of matrix instructions, where the text declares them."""
    multiplies = {
        d.instruction.provenance.partition(" ")[0]
        for d in warp.program.code
        if d.instruction.opcode == "tcgen05" and "mma" in d.instruction.modifiers
    }
    symbols, role = warp.cta.launch.symbols, warp.actor.role
    names = dict.fromkeys(s.name for other in sorted(multiplies) for s in symbols.barriers_between(other, role))
    return f"{' or '.join(names)}, for " if names else ""


def issue_store(warp: Warp, shape: RegisterShape, address: int, values: tuple[npt.NDArray[np.uint32], ...]) -> None:
    """``tcgen05.st``."""
    place = _place(warp, shape, address, "tcgen05.st")
    store = Store(warp, shape, place, np.stack(values))
    tensor_unit(warp).stores.append(store)
    warp.cta.launch.machine.submit(store)


def wait_loads(warp: Warp) -> None:
    """``tcgen05.wait::ld``: every load of the warp is complete."""
    warp.in_flight = 0
    unit = tensor_unit(warp)
    if unit.ld is not None:
        unit.ld.wait()


def wait_stores(warp: Warp) -> None:
    """``tcgen05.wait::st``: every store of the warp is complete."""
    unit = tensor_unit(warp)
    for store in unit.stores:
        store.land()
    unit.stores.clear()
    if unit.st is not None:
        unit.st.wait()
