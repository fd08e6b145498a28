"""The warp-specialised driver: a load role fills a ring of stages, an mma role empties it and stores the result.

The role loops stand here once, for every kernel family; what a stage holds, how it is fetched, which instruction
multiplies it, which tile is next and how a tile is stored are the components' business. On sm_90a the mma role's
warpgroups hold the accumulators in registers, so they run the epilogue themselves and no ring lies between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tile_pipeline.payload import Stage
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.static import StaticScheduler, Tile

WARPS_PER_GROUP = 4
MAX_THREAD_REGISTERS = 255


class BoundEpilogue(Protocol):
    """An epilogue in a role: stores accumulators, and drains what it started."""

    def store(self, w: Writer, accumulators: list[RegisterTile], tile: Tile) -> None:
        """Convert and store this warpgroup's part of `tile`."""

    def finish(self, w: Writer) -> None:
        """Wait for everything in flight."""


class Epilogue(Protocol):
    """What the driver asks of an epilogue."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def bind(self, w: Writer, thread: Value, warpgroup: Value) -> BoundEpilogue:
        """Prepare a thread's addresses; once a role."""


class StageLoader(Protocol):
    """Fills one stage of a payload: the family's loaders, bound to their operands."""

    def prefetch(self, w: Writer) -> None:
        """Bring descriptors close."""

    def load(self, w: Writer, stage: Stage, tile: Tile, k_block: Value) -> None:
        """Start every copy that `stage` needs for `tile` at `k_block`."""


@dataclass(frozen=True)
class WarpPlan:
    """Which warps do what.

    Attributes
    ----------
    load
        Warpgroup 0; one thread of its first warp issues every copy.
    mma
        The consumer warpgroups.
    """

    load: Role
    mma: Role

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * (len(self.load.warps) + len(self.mma.warps))

    def launch_registers(self, registers: int) -> int:
        """Registers a thread is launched with, of the `registers` of a multiprocessor."""
        return _launch_registers(self.threads // 128, registers)

    @classmethod
    def of(cls, *, consumers: int, accumulators: int, registers: int) -> WarpPlan:
        """Plan for `consumers` warpgroups holding `accumulators` a thread, on a chip of so many `registers`.

        The load warpgroup gives registers up to the consumers (``setmaxnreg``). Its share is 24 where the consumers
        hold 208 accumulators or more, or there are three of them, else 40; what the launch granted beyond that goes
        to the consumers, in steps of 8 and at most 240 each. Two warpgroups have 255 each from the start, and nothing
        to give.
        """
        groups = 1 + consumers
        launch = _launch_registers(groups, registers)
        load_share: int | None = None
        mma_share: int | None = None
        if launch < MAX_THREAD_REGISTERS // 8 * 8:
            load_share = 24 if accumulators >= 208 or consumers == 3 else 40
            mma_share = min(240, (launch * groups - load_share) // consumers // 8 * 8)
        return cls(
            load=Role("load", range(WARPS_PER_GROUP), frozenset({"load", "sync", "wait"}), load_share),
            mma=Role(
                "mma",
                range(WARPS_PER_GROUP, WARPS_PER_GROUP * groups),
                frozenset({"mma", "sync", "wait", "store", "memory"}),
                mma_share,
            ),
        )


def _launch_registers(groups: int, registers: int) -> int:
    return min(MAX_THREAD_REGISTERS, registers // (groups * 128) // 8 * 8)


@contextmanager
def one_thread(w: Writer, warp: Value, role: Role) -> Iterator[None]:
    """Enter with one thread of the role's first warp; the warp reconverges at the end, other warps jump over."""
    with w.when(warp == role.warps.start):
        with w.when(w.ptx.warp.elect()):
            yield
        w.ptx.barrier.warp_sync()


@dataclass(frozen=True)
class WarpSpecialized:
    """A kernel's components, ready to trace.

    Attributes
    ----------
    warps, cluster
        The role plan and this CTA's place in its cluster.
    inputs, loader, op, scheduler, epilogue
        The components.
    k_blocks
        K-blocks of the problem, u32.
    in_flight
        Groups of matrix instructions kept running while the next stage is awaited.
    """

    warps: WarpPlan
    cluster: ClusterPosition
    inputs: TilePipeline
    loader: StageLoader
    op: Wgmma
    scheduler: StaticScheduler
    epilogue: Epilogue
    k_blocks: Value
    in_flight: int

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        warp = w.ptx.special.warp_index()
        self._set_up(w, warp)
        with w.role(self.warps.load, warp):
            self._set_registers(w, self.warps.load)
            with one_thread(w, warp, self.warps.load):
                self._load(w)
        with w.role(self.warps.mma, warp):
            self._set_registers(w, self.warps.mma)
            self._multiply(w, warp)
        self._tear_down(w)

    # -- roles --------------------------------------------------------------------------------------------------------

    def _load(self, w: Writer) -> None:
        producer = self.inputs.producer(w)
        for tile in self.scheduler.tiles(w):
            for k_block in w.range(self.k_blocks, name="k_block"):
                with producer.acquire() as stage:
                    self.loader.load(w, stage, tile, k_block)

    def _multiply(self, w: Writer, warp: Value) -> None:
        thread = w.ptx.special.thread_index() & (32 * WARPS_PER_GROUP - 1)
        warpgroup = (warp - self.warps.mma.warps.start) >> 2
        accumulators = self.op.accumulators(w)
        op = self.op.bind(w, self.inputs.tiles, warpgroup)
        consumer = self.inputs.consumer(w, op, in_flight=self.in_flight)
        epilogue = self.epilogue.bind(w, thread, warpgroup)
        for tile in self.scheduler.tiles(w):
            for k_block in w.range(self.k_blocks, name="k_block"):
                with consumer.acquire() as stage:
                    op.multiply(w, accumulators, stage, accumulate=k_block != 0)
            consumer.finish()
            # An empty sum is zero. Here, after the last wait, ptxas does not mind; before the loop it serialises every
            # wgmma (C7515).
            with w.when(self.k_blocks == 0):
                self.op.clear(w, accumulators)
            epilogue.store(w, accumulators, tile)
        epilogue.finish(w)

    # -- around them --------------------------------------------------------------------------------------------------

    def _set_up(self, w: Writer, warp: Value) -> None:
        # The set-up touches nothing that another kernel writes, so it may run while the kernel before this one ends;
        # and the next one's may run while this one does. What follows the wait may read and write global memory.
        w.ptx.grid.launch_dependents()
        with one_thread(w, warp, self.warps.load):
            self.loader.prefetch(w)
            self.epilogue.prefetch(w)
            self.inputs.initialise(w)
        self.cluster.meet(w, self.warps.threads)
        w.ptx.grid.wait()

    def _tear_down(self, w: Writer) -> None:
        # Peers multicast into this CTA's shared memory and arrive on its barriers: nobody leaves before everybody is
        # done.
        if self.cluster.size > 1:
            self.cluster.meet(w, self.warps.threads)

    def _set_registers(self, w: Writer, role: Role) -> None:
        if role.registers is not None:
            if role is self.warps.load:
                w.ptx.warp.release_registers(count=role.registers)
            else:
                w.ptx.warp.acquire_registers(count=role.registers)
