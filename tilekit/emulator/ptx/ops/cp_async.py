"""``cp.async``: copies of 4, 8 or 16 bytes to shared memory, by the issuing thread (PTX ISA 9.7.9.24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import Array, active_bytes
from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.copies import bulk
from tilekit.emulator.ptx.copies.bulk import InFlight
from tilekit.emulator.ptx.language.forms import Decoded, form
from tilekit.emulator.ptx.language.syntax import Immediate, RegisterOperand
from tilekit.emulator.ptx.memory.access import misaligned, resolve
from tilekit.emulator.ptx.ops.barrier import space_of, where_is
from tilekit.emulator.ptx.ops.memory import array_address
from tilekit.emulator.ptx.synchronisation.mbarriers import barrier_at, changed, each, shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

Mask = npt.NDArray[np.bool_]


class Copy(InFlight):
    """The ``cp.async`` of a warp's lanes: each with its destination, its source, and the bytes of it that are read."""

    __slots__ = ("lanes", "operation", "pieces", "width")

    def __init__(
        self,
        warp: Warp,
        width: int,
        lanes: list[int],
        pieces: list[tuple[Allocation, int, Allocation | None, int, int]],
    ) -> None:
        super().__init__(warp)
        self.width = width
        self.lanes = lanes
        self.pieces = pieces
        queue = copy_queue(warp)
        self.operation = queue.groups.issue(self.instruction).of_each_lane() if queue.groups is not None else None
        queue.open.append(self)

    def land(self) -> bool:
        """Copy, and fill with zeros what the source size leaves out."""
        if self.done:
            return True
        width = self.width
        for shared, offset, source, start, size in self.pieces:
            region = shared.data[offset : offset + width]
            if size and source is not None:
                region[:size] = source.data[start : start + size]
            region[size:] = 0
        if self.operation is not None:
            self._tell()
        self.finish()
        return True

    def _tell(self) -> None:
        active = active_bytes(self.lanes)
        shadow = self.pieces[0][0].shadow
        if shadow is not None:
            places = np.array([offset for _, offset, _, _, _ in self.pieces], np.int64) + shadow.base
            shadow.lanes(self.operation, places, self.width, write=True, active=active)
        for _, _, source, start, size in self.pieces:
            if source is not None and size and source.shadow is not None:
                base = source.shadow.base + start
                source.shadow.span(self.operation, base, base + size, write=False)


class CopyQueue:
    """The ``cp.async`` groups of one warp."""

    __slots__ = ("committed", "groups", "open")

    def __init__(self, groups: Any) -> None:
        self.open: list[Copy] = []
        self.committed: list[list[Copy]] = []
        self.groups = groups


def copy_queue(warp: Warp) -> CopyQueue:
    """The warp's groups, made on first use."""
    if warp.copies is None:
        hb = warp.cta.launch.order
        groups = None
        if hb is not None:
            groups = hb.groups(warp.agent, "cp.async", waits_with="cp.async.wait_group", asynchronous=False)
        warp.copies = CopyQueue(groups)
    queue: CopyQueue = warp.copies
    return queue


def copy_async(
    warp: Warp, space: str, destination: Array, source: Array, width: int, sizes: Array | None, mask: Mask | None
) -> None:
    """Issue the copies of the active lanes."""
    pieces: list[tuple[Allocation, int, Allocation | None, int, int]] = []
    lanes = bulk.active_lanes(warp, mask)
    for lane in lanes:
        target = shared_address(space, int(destination[lane]))
        origin = int(source[lane])
        size = width if sizes is None else min(int(sizes[lane]), width)
        if target % width:
            raise misaligned(target, width, "cp.async")
        shared, offset = resolve(warp, "shared", target, width, "cp.async")
        memory, start = None, 0
        if size:
            if origin % width:
                raise misaligned(origin, width, "cp.async")
            memory, start = resolve(warp, "global", origin, size, "cp.async")
        pieces.append((shared, offset, memory, start, size))
    warp.cta.launch.machine.submit(Copy(warp, width, lanes, pieces))


def copy_commit(warp: Warp) -> None:
    """``cp.async.commit_group``."""
    queue = copy_queue(warp)
    queue.committed.append(queue.open)
    queue.open = []
    if queue.groups is not None:
        queue.groups.commit()


def copy_wait(warp: Warp, keep: int, everything: bool) -> None:
    """``cp.async.wait_group`` and ``wait_all``."""
    if everything:
        copy_commit(warp)
        keep = 0
    queue = copy_queue(warp)
    finished = max(0, len(queue.committed) - keep)
    for group in queue.committed[:finished]:
        for copy in group:
            try:
                copy.land()
            except EmulatorError as error:
                raise error.at(copy.where) from None
    del queue.committed[:finished]
    if queue.groups is not None:
        queue.groups.wait(keep)


class Arrival(InFlight):
    """``cp.async.mbarrier.arrive``: an arrival when the thread's earlier copies have landed."""

    __slots__ = ("barrier", "copies", "count", "groups")

    def __init__(self, warp: Warp, barrier: Any, count: int) -> None:
        super().__init__(warp)
        queue = copy_queue(warp)
        self.copies = [copy for group in (*queue.committed, queue.open) for copy in group]
        self.barrier = barrier
        self.count = count
        self.groups = queue.groups
        if self.groups is not None:
            self.groups.release(barrier.arriving)

    def land(self) -> bool:
        """Land the copies, then arrive."""
        for copy in self.copies:
            copy.land()
        phase = self.barrier.phase
        self.barrier.arrive(self.count, by=self.warp.actor, instruction=self.instruction)
        changed(self.cluster, self.barrier, phase)
        self.finish()
        return True


def copy_arrive(warp: Warp, space: str, addresses: int | Array, keep_count: bool, mask: Mask | None) -> None:
    """Arrive on an mbarrier once the copies so far are done; without ``.noinc`` the pending count rises first."""
    for given, lanes in each(warp, addresses, mask):
        barrier = barrier_at(warp, shared_address(space, given))
        if not keep_count:
            barrier.pending += lanes
        warp.cta.launch.machine.submit(Arrival(warp, barrier, lanes))


_HINTS = "hint=L2::cache_hint? prefetch=L2::64B|L2::128B|L2::256B?"


@form("cp", f"async level=ca|cg dst=shared|shared::cta src=global {_HINTS}", "[a] [a] # a? a?")
def cp_async(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async``."""
    destination, source, size = i.operands[:3]
    assert isinstance(size, Immediate)
    if size.value not in ((16,) if i["level"] == "cg" else (4, 8, 16)):
        raise g.fail(f"a copy of {size.value} bytes; legal: {'16' if i['level'] == 'cg' else '4, 8 or 16'}")
    rest = list(i.operands[3:])
    if i.has("hint"):
        rest.pop()
    sizes = "None"
    if rest and isinstance(rest[0], RegisterOperand) and rest[0].register.type == "pred":
        sizes = f"where({g.array(rest[0], 'pred')}, uint32(0), uint32({size.value}))"  # Ignored: all zeros.
    elif rest:
        sizes = g.array(rest[0], "u32")
    g.place()
    g.effect(
        f"{g.helper(copy_async)}(w, 'shared', {array_address(g, destination)}, {array_address(g, source)}, "
        f"{size.value}, {sizes}, {g.mask()})"
    )


@form("cp", "async commit_group", "")
def commit(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.commit_group``."""
    g.effect(f"{g.helper(copy_commit)}(w)")


@form("cp", "async wait_group", "#")
@form("cp", "async wait_all", "")
def wait(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.wait_group`` and ``wait_all``."""
    count = i.operands[0] if i.operands else Immediate(0)
    assert isinstance(count, Immediate)
    g.place()
    g.effect(f"{g.helper(copy_wait)}(w, {count.value}, {i.has('wait_all')})")


@form("cp", "async object=mbarrier op=arrive noinc? space=shared|shared::cta? type=b64", "[a]")
def arrive(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.mbarrier.arrive``."""
    g.place()
    address = where_is(g, i.operands[0])
    g.effect(f"{g.helper(copy_arrive)}(w, {space_of(i)!r}, {address}, {i.has('noinc')}, {g.mask()})")
