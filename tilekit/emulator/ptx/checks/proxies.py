"""The order of a launch of PTX: what the proxies, mbarriers and bulk groups add to it."""

from __future__ import annotations

from tilekit.emulator.core.checks.agents import ALL_LANES, NOTHING, Agent, Groups, Operation, Snapshot, join
from tilekit.emulator.core.checks.happens_before import HappensBefore
from tilekit.emulator.core.errors import InstructionLike
from tilekit.emulator.ptx.checks.tensor_maps import TensorMapOrder

__all__ = ["BulkGroups", "ProxyOrder"]


class BulkGroups:
    """A warp's bulk stores: one queue of groups, each finishing twice, when its source is read and when it is written.

    `cp.async.bulk.wait_group.read` learns of the first, `cp.async.bulk.wait_group` of both.
    """

    __slots__ = ("reads", "writes")

    def __init__(self, reads: Groups, writes: Groups) -> None:
        self.reads = reads
        self.writes = writes

    def issue(self, instruction: InstructionLike | None, lanes: int = ALL_LANES) -> tuple[Operation, Operation]:
        """Start a store: (the operation that reads the source, the operation that writes the destination)."""
        return self.reads.issue(instruction, lanes), self.writes.issue(instruction, lanes)

    def commit(self) -> None:
        """Close the open group."""
        self.reads.commit()
        self.writes.commit()

    def wait(self, keep: int = 0, *, read: bool = False) -> None:
        """Order the warp after all but the `keep` youngest groups; with `read`, only after their source reads."""
        self.reads.wait(keep)
        if not read:
            self.writes.wait(keep)

    def outstanding(self) -> int:
        """Return the number of committed groups whose writes were not waited for."""
        return self.writes.outstanding()


class ProxyOrder(HappensBefore):
    """The order of one launch.

    Attributes
    ----------
    maps
        The tensormap proxy's part of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maps = TensorMapOrder()

    def bulk_groups(self, agent: Agent, unit: str = "TMA store") -> BulkGroups:
        """Create the queue of bulk stores of `agent`."""
        return BulkGroups(
            self.groups(agent, unit, waits_with="cp.async.bulk.wait_group.read"),
            self.groups(agent, unit, waits_with="cp.async.bulk.wait_group"),
        )

    def fence_proxy_async(self, agent: Agent) -> None:
        """Execute `fence.proxy.async`: the async proxy may touch what `agent` wrote so far or has been told of.

        The fence may stand anywhere on the path from a write to the asynchronous access (PTX ISA, proxy-preserved base
        causality order): in the writing warp, or in one that has synchronised with it.
        """
        agent.touch()
        join(agent.fenced, agent.clock)
        agent.fenced[agent.identity] = agent.epoch
        # What the warp writes from here on belongs to an epoch the fence does not cover.
        agent.snapshot()

    def initialise(self, agent: Agent) -> tuple[int, int]:
        """Execute `mbarrier.init`: return the stamp to compare with :meth:`knows` before each use of the barrier.

        Initialisations are counted apart from the warp's other writes, as `fence.mbarrier_init` publishes only them.
        """
        agent.touch()
        epoch = agent.clock.get(agent.initialiser, 0) + 1
        agent.clock[agent.initialiser] = epoch
        return agent.initialiser, epoch

    def knows(self, agent: Agent, stamp: tuple[int, int]) -> bool:
        """Return whether what `stamp` names is ordered before `agent`'s next instruction."""
        return agent.clock.get(stamp[0], 0) >= stamp[1]

    def fence_mbarrier_init(self, agent: Agent) -> None:
        """Execute `fence.mbarrier_init.release.cluster`: a later relaxed arrive publishes the initialised mbarriers."""
        initialised = agent.clock.get(agent.initialiser, 0)
        agent.fence_snapshots[agent.initialiser] = Snapshot(agent.initialiser, initialised, NOTHING, NOTHING)
