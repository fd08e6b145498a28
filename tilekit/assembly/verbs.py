"""Neutral verbs: what a component says to any chip.

A component that serves several instruction sets speaks these verbs and places fragments of `NEUTRAL` files through
``w.isa``; one that is an instruction set's own may use all of its fragments (``w.ptx``). What a chip lacks is said
here alone: it degrades to nothing, or to a fallback fragment under the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.fragment import fragments_of

if TYPE_CHECKING:
    from tilekit.assembly.library import FragmentLibrary
    from tilekit.assembly.values import Value

NEUTRAL = frozenset({"barrier", "convert", "elementwise", "memory", "profile", "semaphore", "special", "warp"})
"""Fragment files whose names and operands are the same for every instruction set."""


class Verbs:
    """Mixed into `Writer`."""

    target: str
    ptx: FragmentLibrary
    isa: FragmentLibrary

    def has(self, group: str, name: str) -> bool:
        """Whether the target has the instructions of a fragment."""
        return fragments_of(self.target)[group][name].runs_on(self.target)

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
        return result

    # -- meeting ------------------------------------------------------------------------------------------------------

    def barrier(self, *, id: Value | int, threads: int) -> None:  # noqa: A002  the instruction's name for it
        """Wait at a barrier of the CTA for so many threads."""
        self.isa.barrier.sync(id=id, threads=threads)

    def barrier_arrive(self, *, id: Value | int, threads: int) -> None:  # noqa: A002
        """Arrive at a barrier of the CTA and go on."""
        self.isa.barrier.arrive(id=id, threads=threads)

    def warp_sync(self) -> None:
        """Wait for the warp's lanes; what they wrote before can be seen."""
        self.isa.barrier.warp_sync()

    # -- clusters, where a chip has them ------------------------------------------------------------------------------

    def cluster_rank(self) -> Value:
        """Rank of the CTA in its cluster, u32."""
        value: Value = self.ptx.cluster.cta_rank()
        return value

    def cluster_arrive(self) -> None:
        """Arrive at the barrier of the cluster; what was written before can be seen behind `cluster_wait`."""
        self.ptx.cluster.arrive()

    def cluster_wait(self) -> None:
        """Wait at the barrier of the cluster."""
        self.ptx.cluster.wait()

    # -- grids and registers ------------------------------------------------------------------------------------------

    def launch_dependents(self) -> None:
        """Let the next kernel of the stream start; nothing on a chip whose kernels do not overlap."""
        if self.has("grid", "launch_dependents"):
            self.ptx.grid.launch_dependents()

    def wait_for_prerequisites(self) -> None:
        """Wait until the kernels before this one are complete; nothing on a chip whose kernels do not overlap."""
        if self.has("grid", "wait"):
            self.ptx.grid.wait()

    def set_registers(self, count: int, *, raised: bool) -> None:
        """Have each thread of the warpgroup hold `count` registers; nothing where the count is fixed at launch.

        Parameters
        ----------
        count
            Registers a thread.
        raised
            Whether that is more than it holds: then wait until they are free.
        """
        name = "acquire_registers" if raised else "release_registers"
        if self.has("warp", name):
            getattr(self.ptx.warp, name)(count=count)
