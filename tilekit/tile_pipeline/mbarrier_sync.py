"""Synchronisation by mbarriers: `full` counts what fills a stage, `empty` what gives it back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Literal, cast

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, Whole, illegal, require_sides
from tilekit.assembly.shared import SharedDeclaration, mbarriers
from tilekit.assembly.types import DSMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tile_pipeline.sync import ConsumerSync, ProducerSync
from tilekit.tiles.cluster import Cluster

FilledBy = Literal["engine", "threads"]
"""What completes a stage: the copy engine's bytes alone, or the producer roles' threads, perhaps with such bytes."""

ReleasedBy = Literal["threads", "commit"]
"""What gives a stage back: the consumer roles' warps, or a commit of the tensor core's instructions."""


@component
class MbarrierSync:
    """Two mbarriers a stage: `full` counts the producers and their bytes, `empty` the consumers' releases.

    Arrival counts follow from the declarations: on `full` those of the producer roles (one of a single thread, else one
    a warp), and on `empty` those of the consumer roles and readers (one a warp) in every CTA that receives this CTA's
    loads.

    Parameters
    ----------
    w
        The writer; the barriers are allocated in its shared memory.
    name
        The ring's name in maps and reports.
    stages
        Stages of the ring.
    stage_bytes
        Bytes of a stage that the copy engine brings, from whichever CTA of the cluster; 0 where threads write all.
    producers, consumers
        The roles on either side.
    cluster
        This CTA's place in its cluster.
    filled_by
        With ``"threads"`` each warp of the producers arrives when its part of a stage is written.
    released_by
        With ``"commit"`` the thread that issues matrix instructions has their commit arrive on `empty`. With CTA pairs,
        the bytes of both CTAs then count on the leader's `full` barrier, which only the leader waits for, and its
        commit gives the stage back to both (`blackwell`: PTX ISA, tcgen05.commit and cp.async.bulk.tensor with
        ``.cta_group::2``).
    readers
        Roles whose threads read what a stage holds beside the operands, where a commit says that these are read: their
        warps arrive on `empty`, too, and a stage is given back when both have.

    Raises
    ------
    TraceError
        ``TK-TRACE-013`` where threads are to fill or read the stages of CTA pairs: bytes and arrivals would have to
        count on the leader's barrier, for which the other CTA's threads cannot wait.
    """

    def __init__(
        self,
        w: Writer,
        name: str,
        *,
        stages: Count,
        stage_bytes: Annotated[int, Whole(0)],
        producers: tuple[Role, ...],
        consumers: tuple[Role, ...],
        cluster: Cluster,
        filled_by: FilledBy = "engine",
        released_by: ReleasedBy = "threads",
        readers: tuple[Role, ...] = (),
    ) -> None:
        require_sides("MbarrierSync", producers, consumers)
        if released_by == "commit" and not w.target.has("tensor_memory"):
            raise illegal("MbarrierSync", "released_by", released_by, f"'threads' on {w.target.name}", "threads")
        if not w.target.has("copy_engine") and (filled_by == "engine" or stage_bytes):
            what, given = ("filled_by", filled_by) if filled_by == "engine" else ("stage_bytes", stage_bytes)
            nearest: object = "threads" if filled_by == "engine" else 0
            raise illegal("MbarrierSync", what, given, f"{nearest!r} on {w.target.name}: no copy engine", nearest)
        if filled_by == "threads" and cluster.is_leader is not None:
            raise TraceError(
                f"the stages of {name!r} are filled by the threads of {', '.join(role.name for role in producers)}, "
                f"but those of a CTA pair count on its leader's barrier, where only the copy engine arrives from "
                f"the other CTA; take single CTAs (group=1), or load by TMA",
                code="TK-TRACE-013",
            )
        if readers and released_by != "commit":
            legal = "none where threads give stages back: then they are consumers"
            raise illegal("MbarrierSync", "readers", readers, legal, ())
        if readers and cluster.is_leader is not None:
            raise TraceError(
                f"the stages of {name!r} are read by the threads of {', '.join(role.name for role in readers)}, but "
                f"the bytes of a CTA pair count on its leader's barrier, for which only the leader's threads can wait; "
                f"take single CTAs (group=1)",
                code="TK-TRACE-013",
            )
        self.stage_bytes = stage_bytes
        self.stages = stages
        self.cluster = cluster
        self.filled_by = filled_by
        self.released_by = released_by
        self.first_warp = producers[0].warps.start
        self._consumers, self._readers = tuple(r.name for r in consumers), tuple(r.name for r in readers)
        loads, reads = tuple(r.name for r in producers), (*self._consumers, *self._readers)
        full, empty = self.declared(name, stages)
        filled = sum(role.arrivals for role in producers)
        read = sum(role.arrivals for role in (*consumers, *readers)) * cluster.senders
        self.full = w.shared.place(full, arrive=loads, wait=reads, arrivals=filled)
        self.empty = w.shared.place(empty, arrive=reads, wait=loads, arrivals=read)

    @staticmethod
    def declared(name: str, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the barriers."""
        return mbarriers(name, ("full", "empty"), stages)

    def initialise(self, w: Writer) -> None:
        """Initialise every barrier with its derived count and publish them; run by one thread."""
        for array in (self.full, self.empty):
            for stage in range(self.stages):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + stage * array.stride), count=array.arrivals)
        if w.target.has("copy_engine"):  # threads of the CTA know of them by the barrier that follows
            w.ptx.mbarrier.fence_init()

    def producer(self, w: Writer) -> ProducerSync:
        """One arrival on `full`: with the bytes to expect, or when a warp has written its part.

        Raises
        ------
        TraceError
            ``TK-ROLE-004`` in a role that is none of the producers.
        """
        w.require_role(self.full.arrive, f"the producers' side of {self.full.name!r}")
        if self.filled_by == "threads":
            return ThreadProducer(w, self)
        if self.released_by == "commit" and self.cluster.is_leader is not None:
            return PairProducer(w, self, self.cluster.is_leader)
        return EngineProducer(self)

    def consumer(self, w: Writer) -> ConsumerSync:
        """Waits for `full`, and arrivals on `empty`: a warp's, or those of a commit.

        Raises
        ------
        TraceError
            ``TK-ROLE-004`` in a role that is none of the consumers.
        """
        w.require_role(self._consumers, f"the consumers' side of {self.full.name!r}")
        return CommitConsumer(w, self) if self.released_by == "commit" else ArriveConsumer(w, self)

    def reader(self, w: Writer) -> ConsumerSync:
        """Waits for `full`, and arrivals of a warp on `empty`, beside those of a commit.

        Raises
        ------
        TraceError
            ``TK-ROLE-004`` in a role that is none of the readers.
        """
        w.require_role(self._readers, f"the readers' side of {self.full.name!r}")
        return ArriveConsumer(w, self)


class EngineProducer:
    """Takes stages that the copy engine completes, whose bytes it announces."""

    leader: Value | None = None
    commits = False

    def __init__(self, sync: MbarrierSync) -> None:
        self._sync = sync

    def await_release(self, w: Writer, stage: Value, phase: Value) -> None:
        """Wait until `stage` has been released."""
        w.ptx.mbarrier.wait_parity(bar=self._sync.empty.at(w, stage), parity=phase)

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, then expect its bytes."""
        sync = self._sync
        self.await_release(w, stage, phase)
        full = sync.full.at(w, stage)
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=sync.stage_bytes)
        return full

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Nothing: the bytes complete the stage."""

    def tail(self, w: Writer, position: RingPosition) -> None:
        """Wait for the commits of the last lap.

        The thread that commits does not wait for the arrivals, not even for those in its own CTA; one that arrived
        after the CTA's end would write to memory that is no longer its own. A warp's arrivals are ordered before its
        end, and need no tail.
        """
        if self._sync.released_by == "commit":
            for _ in w.range(self._sync.stages, name="drain"):
                self.await_release(w, position.stage, position.phase)
                position.advance()


LEADER_MASK = 0xFEFF_FFFF
"""Clears the lowest bit of the CTA rank, which a shared address carries from bit 24 up: the pair's leader has it clear.

(CUTLASS, Sm100MmaPeerBitMask.)
"""


class PairProducer(EngineProducer):
    """Takes stages of a CTA pair: the bytes of both CTAs count on the leader's barrier."""

    def __init__(self, w: Writer, sync: MbarrierSync, is_leader: Value) -> None:
        super().__init__(sync)
        self._is_leader = is_leader
        self._leader_base = w.shared_base & LEADER_MASK

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, have the leader expect the pair's bytes, and return its barrier."""
        sync = self._sync
        self.await_release(w, stage, phase)
        full = sync.full.at(w, stage, base=self._leader_base)
        with w.when(self._is_leader):
            w.ptx.mbarrier.arrive_expect(bar=full, bytes=2 * sync.stage_bytes)
        return full


class ThreadProducer(EngineProducer):
    """Takes stages in a role whose threads write them, and hands them over."""

    commits = True

    def __init__(self, w: Writer, sync: MbarrierSync) -> None:
        super().__init__(sync)
        self._first_lane = w.lane() == 0
        if sync.stage_bytes:
            self.leader = w.thread() == w.lanes * sync.first_warp

    def producer_acquire(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until `stage` has been released, then expect what the copy engine brings."""
        sync = self._sync
        self.await_release(w, stage, phase)
        full = sync.full.at(w, stage)
        if self.leader is not None:
            with w.when(self.leader):
                w.ptx.mbarrier.expect(bar=full, bytes=sync.stage_bytes)
        return full

    def producer_commit(self, w: Writer, stage: Value) -> None:
        """Arrive on the barrier of `stage`, which this warp's lanes have written.

        Their writes are ordinary ones, the tensor cores' reads are not: the fence lies between.
        """
        w.publish_shared()
        w.warp_sync()
        w.ptx.mbarrier.arrive(bar=self._sync.full.at(w, stage), active=self._first_lane)


class MbarrierConsumer:
    """Waits for stages to be full."""

    def __init__(self, sync: MbarrierSync) -> None:
        self._sync = sync

    def consumer_wait(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Wait until what fills `stage` has landed."""
        full = self._sync.full.at(w, stage)
        w.ptx.mbarrier.wait_parity(bar=full, parity=phase)
        return full

    def consumer_ready(self, w: Writer, stage: Value, phase: Value) -> Value:
        """Whether what fills `stage` has landed."""
        return cast(Value, w.ptx.mbarrier.test_parity(bar=self._sync.full.at(w, stage), parity=phase))


class CommitConsumer(MbarrierConsumer):
    """Gives stages back by commits: each arrives when the matrix instructions before it have read their stage."""

    active: Value | None = None
    commits = True

    def __init__(self, w: Writer, sync: MbarrierSync) -> None:
        super().__init__(sync)
        self._mask = sync.cluster.senders_mask(w) if sync.cluster.size > 1 else None

    def ticket(self, stage: Value) -> Value:
        """Its number."""
        return stage

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Have the instructions issued so far arrive, once they have read, in every CTA that filled the stage."""
        group = self._sync.cluster.group
        with nullcontext() if active is None else w.when(active):
            bar = self._sync.empty.at(w, ticket)
            if self._mask is None:
                w.ptx.tcgen05.commit(bar=bar, group=group)
            else:
                w.ptx.tcgen05.commit_multicast(bar=bar, mask=self._mask, group=group)


class ArriveConsumer(MbarrierConsumer):
    """Gives stages back by arrivals, prepared once a role: which lanes arrive, and where.

    One arrival a warp on the `empty` barrier of every sender: lane i serves the CTA of rank i.
    """

    def __init__(self, w: Writer, sync: MbarrierSync) -> None:
        super().__init__(sync)
        empty, cluster = sync.empty, sync.cluster
        lane = w.lane()
        local = w.shared_base + empty.offset
        self._stride = empty.stride
        self._remote = cluster.m * cluster.n > 1
        if self._remote:
            self.active: Value | None = cluster.sends_here(lane)
            rank = w.minimum(lane, cluster.size - 1)
            self._first: Value = w.cluster_address(local, rank)
        else:
            self.active = lane == 0
            self._first = local

    def ticket(self, stage: Value) -> Value:
        """Address of the barrier of `stage` that this lane arrives on."""
        return self._first + stage * self._stride

    def consumer_release(self, w: Writer, ticket: Value, active: Value | None = None) -> None:
        """Arrive in the lanes where `active` holds."""
        active = self.active if active is None else active
        if self._remote:
            w.ptx.mbarrier.arrive_remote(bar=ticket.retyped(DSMEM), active=active)
        else:
            w.ptx.mbarrier.arrive(bar=ticket, active=active)
