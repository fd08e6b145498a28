"""Sync strategies: how a ring's producers and consumers wait for and signal each other."""

from __future__ import annotations

from typing import Protocol

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import DSMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tiles.cluster import Cluster


class Releaser(Protocol):
    """A consumer role's way of giving stages back."""

    def release(self, w: Writer, stage: Value) -> None:
        """Signal that `stage` may be filled again once the reads issued before are done with it."""


class Filler(Protocol):
    """A producer role's way of taking stages."""

    @property
    def leader(self) -> Value | None:
        """In a role of many threads: the one that starts what one thread does for all, a predicate."""

    def wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until `stage` may be filled."""

    def acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` may be filled, announce its bytes, and return the barrier they count on.

        `phase` is 1 on the first lap: there is nothing to wait for.
        """


class SyncStrategy(Protocol):
    """What a ring asks of its synchronisation."""

    @property
    def releases_late(self) -> bool:
        """Whether a stage's release may still be on its way here when the role that released it is done."""

    def initialise(self, w: Writer) -> None:
        """Prepare the barriers; one thread of the CTA runs this before anybody waits."""

    def filler(self, w: Writer) -> Filler:
        """Prepare a producer role's fills; once a role."""

    def consumer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` is full, and return the barrier its bytes counted on."""

    def releaser(self, w: Writer) -> Releaser:
        """Prepare a consumer role's releases; once a role."""


class MbarrierSync:
    """Two mbarriers a stage: `full` counts the load role and its bytes, `empty` the consumers' releases.

    Arrival counts follow from the declarations: on `full` those of the producer roles (one of a single thread, else one
    a warp), and on `empty` those of the consumer roles (one a warp) in every CTA that receives this CTA's loads.

    Parameters
    ----------
    w
        The writer; the barriers are allocated in its shared memory.
    name
        The ring's name in maps and reports.
    stages
        Stages of the ring.
    stage_bytes
        Bytes that complete a stage, whoever in the cluster sends them.
    producers, consumers
        The roles on either side.
    cluster
        This CTA's place in its cluster.
    """

    STAGE_BYTES = 16
    """Shared memory of one stage's barriers."""

    def __init__(
        self,
        w: Writer,
        name: str,
        *,
        stages: int,
        stage_bytes: int,
        producers: tuple[Role, ...],
        consumers: tuple[Role, ...],
        cluster: Cluster,
    ) -> None:
        self.stage_bytes = stage_bytes
        self.stages = stages
        self.cluster = cluster
        self.first_warp = producers[0].warps.start
        loads, reads = tuple(r.name for r in producers), tuple(r.name for r in consumers)
        self.full = w.shared.allocate(
            f"{name}.full",
            size=8,
            count=stages,
            alignment=8,
            kind="mbarrier",
            arrive=loads,
            wait=reads,
            arrivals=sum(role.arrivals for role in producers),
        )
        self.empty = w.shared.allocate(
            f"{name}.empty",
            size=8,
            count=stages,
            alignment=8,
            kind="mbarrier",
            arrive=reads,
            wait=loads,
            arrivals=sum(role.arrivals for role in consumers) * cluster.senders,
        )

    @property
    def releases_late(self) -> bool:
        """Never: a warp releases what it has read, and that is ordered before its end."""
        return False

    def initialise(self, w: Writer) -> None:
        """Initialise every barrier with its derived count and publish them; run by one thread."""
        for array in (self.full, self.empty):
            for stage in range(self.stages):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + stage * array.stride), count=array.arrivals)
        w.ptx.mbarrier.fence_init()

    def filler(self, w: Writer) -> Filler:
        """One arrival on `full` that expects the stage's bytes."""
        return MbarrierFiller(self)

    def consumer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until the bytes of `stage` have landed."""
        full = self.full.at(w, stage)
        w.ptx.mbarrier.wait_parity(bar=full, parity=phase)
        return full

    def releaser(self, w: Writer) -> Releaser:
        """One arrival a warp on the `empty` barrier of every sender: lane i serves the CTA of rank i."""
        return MbarrierReleaser(w, self.empty, self.cluster)


class CommitSync(MbarrierSync):
    """Two mbarriers a stage, where the tensor core itself gives stages back: `empty` counts its commits.

    With CTA pairs, the bytes of both CTAs count on the leader's `full` barrier, which only the leader waits for, and
    the leader's commit gives the stage back to both (`blackwell`: PTX ISA, tcgen05.commit and cp.async.bulk.tensor
    with ``.cta_group::2``).
    """

    @property
    def releases_late(self) -> bool:
        """Always: the thread that commits does not wait for the arrivals, not even for those in its own CTA."""
        return True

    def filler(self, w: Writer) -> Filler:
        """One arrival on `full`: with CTA pairs the leader's, which expects the bytes of both."""
        return MbarrierFiller(self) if self.cluster.is_leader is None else PairFiller(w, self, self.cluster.is_leader)

    def releaser(self, w: Writer) -> Releaser:
        """The commits of the one thread that issues matrix instructions."""
        return CommitReleaser(w, self.empty, self.cluster)


class CopySync(MbarrierSync):
    """Two mbarriers a stage, where the load role's warps write at least a part of the stages with their own hands.

    Each of them arrives on `full` when its part is written. What the copy engine brings beside that are the
    `stage_bytes`, 0 if nothing.
    """

    def filler(self, w: Writer) -> CopyFiller:
        """One arrival a warp, when the stage is handed over."""
        return CopyFiller(w, self)


class MbarrierFiller:
    """Takes stages of an `MbarrierSync`."""

    leader: Value | None = None

    def __init__(self, sync: MbarrierSync) -> None:
        self._sync = sync

    def wait(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until `stage` has been released."""
        w.ptx.mbarrier.wait_parity(bar=self._sync.empty.at(w, stage), parity=phase)

    def acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, then expect its bytes."""
        sync = self._sync
        self.wait(w, stage, phase)
        full = sync.full.at(w, stage)
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=sync.stage_bytes)
        return full


LEADER_MASK = 0xFEFF_FFFF
"""Clears the lowest bit of the CTA rank, which a shared address carries from bit 24 up: the pair's leader has it clear.

(CUTLASS, Sm100MmaPeerBitMask.)
"""


class PairFiller(MbarrierFiller):
    """Takes stages of a CTA pair's `CommitSync`: the bytes of both CTAs count on the leader's barrier."""

    def __init__(self, w: Writer, sync: CommitSync, leads: Value) -> None:
        super().__init__(sync)
        self._leads = leads
        self._leader = w.shared_base & LEADER_MASK

    def acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, have the leader expect the pair's bytes, and return its barrier."""
        sync = self._sync
        self.wait(w, stage, phase)
        full = sync.full.at(w, stage, base=self._leader)
        with w.when(self._leads):
            w.ptx.mbarrier.arrive_expect(bar=full, bytes=2 * sync.stage_bytes)
        return full


class CopyFiller(MbarrierFiller):
    """Takes stages of a `CopySync`, in a role whose threads write them, and hands them over."""

    def __init__(self, w: Writer, sync: CopySync) -> None:
        super().__init__(sync)
        self._speaks = w.lane() == 0
        if sync.stage_bytes:
            self.leader = w.thread() == 32 * sync.first_warp

    def acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, then expect what the copy engine brings."""
        sync = self._sync
        self.wait(w, stage, phase)
        full = sync.full.at(w, stage)
        if self.leader is not None:
            with w.when(self.leader):
                w.ptx.mbarrier.expect(bar=full, bytes=sync.stage_bytes)
        return full

    def hand_over(self, w: Writer, stage: Value) -> None:
        """Arrive on the barrier of `stage`, which this warp's lanes have written.

        Their writes are ordinary ones, the tensor cores' reads are not: the fence lies between.
        """
        w.ptx.tma.fence_shared()
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=self._sync.full.at(w, stage), active=self._speaks)


class CommitReleaser:
    """Commits of matrix instructions to `empty`: each arrives when the instructions before it have read their stage."""

    def __init__(self, w: Writer, empty: SharedArray, cluster: Cluster) -> None:
        self._empty = empty
        self._group = cluster.group
        self._mask = cluster.senders_mask(w) if cluster.size > 1 else None

    def release(self, w: Writer, stage: Value) -> None:
        """Have the matrix instructions issued so far arrive, once they have read, in every CTA that filled `stage`."""
        bar = self._empty.at(w, stage)
        if self._mask is None:
            w.ptx.tcgen05.commit(bar=bar, group=self._group)
        else:
            w.ptx.tcgen05.commit_multicast(bar=bar, mask=self._mask, group=self._group)


class MbarrierReleaser:
    """Arrivals on `empty`, prepared once a role: which lanes arrive, and where."""

    def __init__(self, w: Writer, empty: SharedArray, cluster: Cluster) -> None:
        lane = w.lane()
        local = w.shared_base + empty.offset
        self._stride = empty.stride
        self._remote = cluster.m * cluster.n > 1
        if self._remote:
            self.active = cluster.sends_here(lane)
            rank = w.minimum(lane, cluster.size - 1)
            self._first: Value = w.ptx.cluster.map_address(address=local, rank=rank)
        else:
            self.active = lane == 0
            self._first = local

    def release(self, w: Writer, stage: Value) -> None:
        """Arrive on the barrier of `stage`."""
        self.signal(w, self.address(stage), self.active)

    def address(self, stage: Value) -> Value:
        """Address of the barrier of `stage` that this lane arrives on."""
        return self._first + stage * self._stride

    def signal(self, w: Writer, address: Value, active: Value) -> None:
        """Arrive in the lanes where `active` holds."""
        if self._remote:
            w.ptx.mbarrier.arrive_remote(bar=address.retyped(DSMEM), active=active)
        else:
            w.ptx.mbarrier.arrive(bar=address, active=active)
