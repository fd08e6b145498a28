"""Neutral verbs: what a component says to any chip.

A component that serves several instruction sets speaks these verbs and places fragments of `NEUTRAL` files through
``w.isa``; one that is an instruction set's own may use all of its fragments (``w.ptx``). What a chip lacks is said
here alone: it degrades to nothing, or to a fallback fragment under the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.legal import Whole, illegal, require_whole
from tilekit.assembly.provenance import origin
from tilekit.assembly.types import DSMEM, U32

if TYPE_CHECKING:
    from tilekit.assembly.library import FragmentFiles, FragmentLibrary
    from tilekit.assembly.types import RegisterType
    from tilekit.assembly.values import Operand, Value
    from tilekit.targets import Target

NEUTRAL = frozenset(
    {"barrier", "convert", "counter", "elementwise", "memory", "profile", "semaphore", "special", "warp"}
)
"""Fragment files whose names and operands are the same for every instruction set."""


class Verbs:
    """Mixed into `Writer`."""

    target: Target
    threads: int
    fragments: FragmentFiles
    isa: FragmentLibrary
    broadcasts: set[str]
    warp_indices: set[str]

    if TYPE_CHECKING:

        def constant(self, type_: RegisterType, value: Operand) -> Value: ...

    @property
    def ptx(self) -> FragmentFiles:
        """Every fragment of PTX, for components that are PTX's own.

        Raises
        ------
        FragmentError
            ``TK-FRAG-005`` where the target's instruction set is another.
        """
        return self._fragments_of("ptx")

    @property
    def gcn(self) -> FragmentFiles:
        """Every fragment of GCN, for components that are GCN's own.

        Raises
        ------
        FragmentError
            ``TK-FRAG-005`` where the target's instruction set is another.
        """
        return self._fragments_of("gcn")

    def _fragments_of(self, isa: str) -> FragmentFiles:
        if self.target.isa != isa:
            raise FragmentError(
                f"{origin()} places fragments of {isa.upper()}; this kernel is for {self.target.name}, whose "
                f"instruction set is {self.target.isa}",
                code="TK-FRAG-005",
            )
        return self.fragments

    @property
    def lanes(self) -> int:
        """Threads of a warp."""
        return self.target.lanes

    # -- who a thread is ----------------------------------------------------------------------------------------------

    def thread(self) -> Value:
        """Index of the thread within its CTA, u32."""
        value: Value = self.isa.special.thread_index()
        return value

    def lane(self) -> Value:
        """Index of the thread within its warp, u32."""
        value: Value = self.isa.special.lane_index()
        return value

    def warp(self) -> Value:
        """Index of the warp within its CTA, u32 and known to be uniform."""
        value: Value = self.isa.special.warp_index()
        self.warp_indices.add(value.text)
        return value

    def cta(self) -> Value:
        """Index of the CTA in the grid, u32."""
        value: Value = self.isa.special.cta_index()
        return value

    def cta_count(self) -> Value:
        """CTAs of the grid, u32."""
        value: Value = self.isa.special.cta_count()
        return value

    def elect(self) -> Value:
        """True in exactly one lane of the warp."""
        value: Value = self.isa.warp.elect()
        return value

    def broadcast(self, value: Value, *, lane: int) -> Value:
        """The u32 `value` of one lane in all lanes of the warp, and known to be uniform."""
        result: Value = self.isa.warp.broadcast(value=value, lane=lane)
        result.uniform = True
        self.broadcasts.add(result.text)
        return result

    # -- meeting ------------------------------------------------------------------------------------------------------

    def barrier(self, *, id: Value | int, threads: int) -> None:  # noqa: A002  the instruction's name for it
        """Wait at a barrier of the CTA for so many threads.

        Without named barriers the only one is that of the whole CTA.

        Raises
        ------
        TraceError
            ``TK-TARGET-003`` for some of the threads, on a chip without named barriers; ``TK-PART-001`` for a barrier
            or a number of threads that the CTA does not have.
        """
        self._require_meeting("w.barrier", id, threads)
        if self.target.has("named_barriers"):
            self.isa.barrier.sync(id=id, threads=threads)
        elif threads == self.threads:
            self.isa.barrier.sync_cta()
        else:
            raise self._lacking(f"a barrier of {threads} of {self.threads} threads", "named barriers", self.threads)

    def barrier_arrive(self, *, id: Value | int, threads: int) -> None:  # noqa: A002
        """Arrive at a barrier of the CTA and go on.

        Raises
        ------
        TraceError
            ``TK-TARGET-003`` on a chip without named barriers: to arrive is to wait there; ``TK-PART-001`` as for
            `barrier`.
        """
        self._require_meeting("w.barrier_arrive", id, threads)
        if not self.target.has("named_barriers"):
            raise self._lacking("an arrival that does not wait", "named barriers", "w.barrier(...)")
        self.isa.barrier.arrive(id=id, threads=threads)

    def _require_meeting(self, verb: str, barrier: Value | int, threads: int) -> None:
        """Check that the CTA has a barrier, where that is known, and so many threads, whole warps of them."""
        if isinstance(barrier, int) and self.target.has("named_barriers"):
            require_whole(verb, "id", barrier, Whole(0, self.target.named_barriers - 1))
        if threads == self.threads:
            return
        legal = Whole(self.lanes, self.threads, self.lanes)
        if isinstance(threads, int) and threads > self.threads:
            more = f"the threads of the kernel; or kernel(threads={threads}), where its plan has so many"
            raise illegal(verb, "threads", threads, f"{legal.words}, {more}", self.threads)
        require_whole(verb, "threads", threads, legal)

    def barrier_shared(self) -> None:
        """Wait for all threads of the CTA; what they wrote to shared memory before can be seen."""
        self.isa.barrier.sync_cta_shared()

    def publish_shared(self) -> None:
        """Order what this thread wrote to shared memory before what matrix instructions read there by themselves.

        Those of whole warpgroups and of tensor memory read by the async proxy, which ordinary barriers do not order
        (PTX ISA, Async proxy); nothing on a chip whose threads read operands into registers.
        """
        if self.target.has("warpgroup_matrix") or self.target.has("tensor_memory"):
            self.fragments.tma.fence_shared()

    def warp_sync(self) -> None:
        """Wait for the warp's lanes; what they wrote before can be seen."""
        self.isa.barrier.warp_sync()

    def warp_sync_shared(self) -> None:
        """Wait for the warp's lanes; what they wrote to shared memory before can be seen."""
        self.isa.barrier.warp_sync_shared()

    # -- clusters: a CTA is alone in its own on a chip that has none ---------------------------------------------------

    def cluster_rank(self) -> Value:
        """Rank of the CTA in its cluster, u32."""
        if not self.target.has("clusters"):
            return self.constant(U32, 0)
        value: Value = self.fragments.cluster.cta_rank()
        return value

    def cluster_address(self, address: Value, rank: Operand) -> Value:
        """Where the CTA of `rank` has what lies at `address` of this CTA's shared memory, dsmem."""
        if not self.target.has("clusters"):
            return address.retyped(DSMEM)
        value: Value = self.fragments.cluster.map_address(address=address, rank=rank)
        return value

    def cluster_arrive(self) -> None:
        """Arrive at the barrier of the cluster; what was written before can be seen behind `cluster_wait`."""
        if self.target.has("clusters"):
            self.fragments.cluster.arrive()

    def cluster_wait(self) -> None:
        """Wait at the barrier of the cluster."""
        if self.target.has("clusters"):
            self.fragments.cluster.wait()

    # -- grids and registers ------------------------------------------------------------------------------------------

    def launch_dependents(self) -> None:
        """Let the next kernel of the stream start; nothing on a chip whose kernels do not overlap."""
        if self.target.has("dependent_launch"):
            self.fragments.grid.launch_dependents()

    def wait_for_prerequisites(self) -> None:
        """Wait until the kernels before this one are complete; nothing on a chip whose kernels do not overlap."""
        if self.target.has("dependent_launch"):
            self.fragments.grid.wait()

    def set_registers(self, count: int, *, raised: bool) -> None:
        """Have each thread of the warpgroup hold `count` registers; nothing where the count is fixed at launch.

        Parameters
        ----------
        count
            Registers a thread.
        raised
            Whether that is more than it holds: then wait until they are free.
        """
        if self.target.has("register_reallocation"):
            warp = self.fragments.warp
            (warp.acquire_registers if raised else warp.release_registers)(count=count)

    def _lacking(self, what: str, capability: str, nearest: object) -> TraceError:
        return TraceError(
            f"{origin()} asks for {what}, and {self.target.name} has no {capability}; nearest: {nearest}",
            code="TK-TARGET-003",
        )
