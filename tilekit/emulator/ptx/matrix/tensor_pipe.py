"""The tensor core's queue: what ``tcgen05`` issues executes in order; here ``cp``, ``shift`` and ``commit``.

What one thread issues runs in order and lands when the scheduler says so; a commit arrives on its mbarrier when
everything before it has landed. Consecutive mmas on one accumulator become one matrix product.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.errors import MemoryFault, ProtocolError, Where
from tilekit.emulator.core.memory.memory import OFFSET_MASK
from tilekit.emulator.ptx.checks.exits import too_late, visit
from tilekit.emulator.ptx.copies.bulk import InFlight, Mask, Value, active_lanes, at_lane
from tilekit.emulator.ptx.matrix.operand_chunks import OperandOutside, outside
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import (
    OperandLayout,
    SharedDescriptor,
    gather,
    operand_extents,
    shared_descriptor_problems,
)
from tilekit.emulator.ptx.matrix.tensor_order import TensorUnit, tensor_memory, tensor_unit
from tilekit.emulator.ptx.matrix.tmem import Region, TensorMemory, split_address
from tilekit.emulator.ptx.synchronisation import mbarrier
from tilekit.emulator.ptx.synchronisation.mbarriers import barrier_at, changed, shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp
    from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

__all__ = [
    "CopyForm",
    "TensorIssue",
    "group_of",
    "issue_commit",
    "issue_copy",
    "issue_shift",
    "one_lane",
    "read_shared",
    "submit",
]


class TensorPipe:
    """The queue of one warp, as the scheduler sees it: each landing executes what is next."""

    __slots__ = ("queue",)
    done = False

    def __init__(self, queue: deque[Any]) -> None:
        self.queue = queue

    @property
    def where(self) -> Where:
        """Where the next operation was issued."""
        where: Where = self.queue[0].where
        return where

    def land(self) -> bool:
        """Execute the next operation, or run of mmas; True when nothing is left."""
        queue = self.queue
        first = queue[0]
        run = [first]
        for other in itertools.islice(queue, 1, None):
            if not other.joins(first):
                break
            run.append(other)
        with np.errstate(all="ignore"):
            first.execute(run)
        for operation in run:
            queue.popleft()
            operation.finish()
        return not queue


def submit(unit: TensorUnit, operation: Any) -> None:
    """Put an operation into the queue of the warp that issues it."""
    unit.queue.append(operation)
    if len(unit.queue) == 1:
        operation.cluster.launch.machine.submit(TensorPipe(unit.queue))


def group_of(warp: Warp, group: int) -> list[Cta]:
    """The CTAs that a tcgen05 instruction of this warp works on, the even one first.

    Raises
    ------
    ProtocolError
        If a pair is needed and the cluster has none here.
    """
    cta = warp.cta
    if group == 1:
        return [cta]
    even = cta.rank & ~1
    if even + 1 >= len(cta.cluster.ctas):
        raise ProtocolError(
            f"cta_group::2 needs a pair of CTAs; CTA {cta.rank} of a cluster of {len(cta.cluster.ctas)} has no peer",
            hint="launch with a cluster of an even number of CTAs",
        )
    return cta.cluster.ctas[even : even + 2]


def one_lane(warp: Warp, mask: Mask | None, what: str) -> int | None:
    """The lane that issues an instruction; None when no lane does.

    Raises
    ------
    ProtocolError
        If several lanes would issue it, each once.
    """
    lanes = active_lanes(warp, mask)
    if len(lanes) > 1:
        raise ProtocolError(
            f"{what} is executed by {len(lanes)} lanes, and each of them issues it",
            hint="elect one lane of one warp (elect.sync), and branch or predicate on it",
            details={"lanes": len(lanes)},
        )
    return lanes[0] if lanes else None


class TensorIssue(InFlight):
    """An operation in the tensor core's queue."""

    __slots__ = ("ctas", "operations", "unit")

    def __init__(self, warp: Warp, group: int, unit: str) -> None:
        super().__init__(warp)
        self.unit = unit
        self.ctas = group_of(warp, group)
        side = tensor_unit(warp)
        side.issued = True
        self.operations = side.pipelined(unit, self.instruction)
        if self.operations is not None:
            shared = self.operations[0]
            for cta in self.ctas:
                visit(cta, warp, shared.identity, shared.epoch, f"a {unit} that works on it")

    def joins(self, first: object) -> bool:
        """Whether it can be executed together with the operations before it, of which ``first`` is the first."""
        return False

    @property
    def known(self) -> tuple[int, int]:
        """The same for operations that are ordered after the same, and published together."""
        if self.operations is None:
            return 0, 0
        shared = self.operations[0]
        return id(shared.clock), shared.epoch

    def memories(self, what: str) -> list[tuple[Cta, TensorMemory]]:
        """The tensor memories it works on, whose CTAs must be alive."""
        for cta in self.ctas:
            if cta.live_warps == 0:
                raise too_late(cta.rank, f"a {what} that works on it")
        return [(cta, tensor_memory(cta)) for cta in self.ctas]

    def tell(self, memory: TensorMemory, regions: Sequence[Region], *, write: bool) -> None:
        """Report accesses to tensor memory."""
        if self.operations is not None and memory.shadow is not None:
            for region in regions:
                memory.shadow.region(self.operations[1], region, write=write)

    def tell_shared(self, cta: Cta, extents: npt.NDArray[np.int64]) -> None:
        """Report reads of a CTA's shared memory."""
        shadow = cta.shared.shadow
        if self.operations is not None and shadow is not None:
            shadow.extents(self.operations[0], (extents + shadow.base).tolist(), write=False)


def read_shared(
    issues: Sequence[TensorIssue], cta: Cta, layout: OperandLayout, descriptors: Sequence[int], operand: str
) -> npt.NDArray[np.uint8]:
    """An operand of consecutive operations from a CTA's shared memory, see `gather`.

    Raises
    ------
    MemoryFault
        If it lies outside: names the operation, and its descriptor in words.
    """
    try:
        return gather(cta.shared.data, layout, descriptors, cta.shared.bounds)
    except OperandOutside:
        for issue, bits in zip(issues, descriptors, strict=True):
            descriptor = SharedDescriptor.decode(bits)
            start = cta.launch.shared_name(descriptor.start)
            extents = operand_extents(layout, [bits])
            fault = outside(issue.unit, operand, extents, cta.shared, bits, descriptor, start, issue.where)
            if fault is not None:
                raise fault from None
        raise


# -- cp and shift ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CopyForm:
    """A shape of ``tcgen05.cp``.

    Attributes
    ----------
    rows, chunks
        Rows of the source, and 16-byte chunks of each.
    places
        The first source row of each 32-lane quarter; a source of four rows has one for each.
    expansion
        Bits of the packed elements that are spread to a byte each: 0, 4 or 6.
    """

    rows: int
    chunks: int
    places: tuple[int, ...]
    group: int
    expansion: int = 0

    @property
    def layout(self) -> OperandLayout:
        """How the source lies in shared memory."""
        return OperandLayout(False, self.rows, self.chunks)

    def regions(self, lane: int, column: int) -> list[Region]:
        """Cells that are written, in the order of `places`."""
        first, height = (lane, 1) if self.rows < 32 else (0, 32)
        right = column + 4 * self.chunks
        return [Region(first + 32 * q, first + 32 * q + height, column, right) for q in range(4)]


class Copy(TensorIssue):
    """One ``tcgen05.cp``."""

    __slots__ = ("address", "descriptor", "form")

    def __init__(self, warp: Warp, form: CopyForm, address: int, descriptor: int) -> None:
        super().__init__(warp, form.group, "tcgen05.cp")
        self.form = form
        self.address = address
        self.descriptor = descriptor

    def execute(self, run: Sequence[Copy]) -> None:
        """Copy, in each CTA of the group from its own shared to its own tensor memory."""
        form = self.form
        lane, column = split_address(self.address)
        for cta, memory in self.memories("tcgen05.cp"):
            data = read_shared(run, cta, form.layout, [self.descriptor], "its source")[:, 0]
            self.tell_shared(cta, operand_extents(form.layout, [self.descriptor]))
            words = np.ascontiguousarray(_expanded(data, form.expansion)).view(np.uint32)
            regions = form.regions(lane, column)
            for region, first in zip(regions, form.places, strict=True):
                memory.check(region, "tcgen05.cp")
                memory.write(region, words[first : first + region.last - region.first])
            self.tell(memory, regions, write=True)


def _expanded(data: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Spread sixteen packed elements of 4 or 6 bits to a byte each: e2m1 to bits 5:2, the others to bits 5:0."""
    if not bits:
        return data
    groups = data.reshape(len(data), -1, 16)
    fields = np.unpackbits(groups[:, :, : 2 * bits], axis=-1, bitorder="little").reshape(len(data), -1, bits)
    codes = np.packbits(fields, axis=-1, bitorder="little")[..., 0]
    return codes << np.uint8(2) if bits == 4 else codes


def issue_copy(warp: Warp, form: CopyForm, address: Value, descriptor: Value, mask: Mask | None) -> None:
    """``tcgen05.cp``: check the descriptor and queue it."""
    lane = one_lane(warp, mask, "tcgen05.cp")
    if lane is None:
        return
    target, bits = at_lane(address, lane), at_lane(descriptor, lane)
    first = split_address(target)[0]
    if first and (form.rows >= 32 or first >= 32):
        raise ProtocolError(f"tcgen05.cp to lane {first}; legal: {'0' if form.rows >= 32 else '0 to 31'}")
    problems = shared_descriptor_problems(form.layout, bits) if warp.cta.launch.protocol else ()
    if problems:
        raise ProtocolError(f"descriptor of tcgen05.cp: {problems[0]}", table="\n".join(problems[1:]))
    submit(tensor_unit(warp), Copy(warp, form, target, bits))


class Shift(TensorIssue):
    """One ``tcgen05.shift``: every lane takes the 32 bytes of the next one; the last keeps its own."""

    __slots__ = ("address",)

    def __init__(self, warp: Warp, group: int, address: int) -> None:
        super().__init__(warp, group, "tcgen05.shift")
        self.address = address

    def execute(self, run: Sequence[Shift]) -> None:
        """Shift the rows in each CTA of the group."""
        lane, column = split_address(self.address)
        region = Region(lane, 128, column, column + 8)
        for _, memory in self.memories("tcgen05.shift"):
            memory.check(region, "tcgen05.shift")
            cells = memory.read(region)
            cells[:-1] = cells[1:].copy()
            self.tell(memory, [region], write=True)


def issue_shift(warp: Warp, group: int, address: Value, mask: Mask | None) -> None:
    """``tcgen05.shift.down``: queue it."""
    lane = one_lane(warp, mask, "tcgen05.shift")
    if lane is None:
        return
    target = at_lane(address, lane)
    first = split_address(target)[0]
    if first not in (0, 32, 64, 96):
        nearest = min(first // 32 * 32, 96)
        raise ProtocolError(f"tcgen05.shift at lane {first}: must be 0, 32, 64 or 96; nearest {nearest}")
    submit(tensor_unit(warp), Shift(warp, group, target))


# -- commit ----------------------------------------------------------------------------------------------------------


class Commit(InFlight):
    """One ``tcgen05.commit``: an arrival when everything before it has landed."""

    __slots__ = ("arrivals", "snapshot")

    def __init__(self, warp: Warp, barriers: list[tuple[Cta, Mbarrier]]) -> None:
        super().__init__(warp)
        self.snapshot = snapshot = tensor_unit(warp).committed()
        self.arrivals = [Arrival(self, cta, barrier) for cta, barrier in barriers]
        if snapshot is not None:
            for cta, _ in barriers:
                visit(cta, warp, snapshot.identity, snapshot.epoch, "a tcgen05.commit that arrives on its mbarrier")

    def joins(self, first: object) -> bool:
        """Commits arrive one after another."""
        return False

    def execute(self, run: Sequence[Commit]) -> None:
        """Arrive once on each barrier: here now, in other CTAs whenever the message gets there."""
        for arrival in self.arrivals:
            if arrival.target is self.warp.cta:
                arrival.land()
            else:
                self.cluster.launch.machine.submit(arrival)


class Arrival(InFlight):
    """The arrival of a ``tcgen05.commit`` on one mbarrier."""

    __slots__ = ("barrier", "committed", "snapshot", "target")

    def __init__(self, commit: Commit, cta: Cta, barrier: Mbarrier) -> None:
        super().__init__(commit.warp, commit.instruction)
        self.target = cta
        self.barrier = barrier
        self.snapshot = commit.snapshot
        self.committed = barrier.commits[self.warp.actor] = mbarrier.Commit(self.instruction)

    def land(self) -> bool:
        """Arrive; on the barrier of a CTA that has ended, which has been noted, nothing is left to arrive on."""
        if self.target.live_warps == 0:
            self.finish()
            return True
        self.committed.phase = phase = self.barrier.phase
        if self.snapshot is not None:
            self.barrier.arriving.add(self.snapshot)
        self.barrier.arrive(1, by=self.warp.actor, instruction=self.instruction)
        changed(self.cluster, self.barrier, phase)
        self.finish()
        return True


def issue_commit(
    warp: Warp, group: int, space: str, address: Value, multicast: Value | None, mask: Mask | None
) -> None:
    """``tcgen05.commit``: queue an arrival."""
    lane = one_lane(warp, mask, "tcgen05.commit")
    if lane is None:
        return
    group_of(warp, group)
    cluster = warp.cta.cluster
    where = shared_address(space, at_lane(address, lane))
    ranks = [where >> 24]
    if ranks[0] >= len(cluster.ctas):
        raise MemoryFault(f"the mbarrier address {where:#x} is not in shared memory of this cluster")
    if multicast is not None:
        bits = at_lane(multicast, lane) & 0xFFFF
        ranks = [rank for rank in range(16) if bits >> rank & 1]
        if not ranks or ranks[-1] >= len(cluster.ctas):
            raise ProtocolError(
                f"multicast mask {bits:#x} in a cluster of {len(cluster.ctas)} CTAs",
                hint=f"legal: 1 to {(1 << len(cluster.ctas)) - 1:#x}, one bit for each CTA",
            )
    barriers = []
    for rank in ranks:
        cta = cluster.ctas[rank]
        place = cta.shared_base | where & OFFSET_MASK
        barriers.append((cta, barrier_at(warp, place)))
    unit = tensor_unit(warp)
    # Where nothing has been issued, as for an empty sum, a commit that arrives at once may be meant.
    others = any(other.tensor is not None and other.tensor.issued for other in warp.cta.warps)
    if not unit.issued and others and warp.cta.launch.protocol:
        warp.cta.launch.findings.add(
            Finding(
                "protocol",
                "tcgen05.commit by a thread that has issued no mma, cp or shift: it tracks nothing",
                hint="the thread that issues the mmas must commit them",
                where=Where(warp.program.name, warp.actor, warp.program.instruction(warp.at)),
            )
        )
    submit(unit, Commit(warp, barriers))
