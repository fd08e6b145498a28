"""The order of a launch of PTX: what the proxies, mbarriers and bulk groups add to it."""

from __future__ import annotations

from tilekit.emulator.core.checks.agents import NOTHING, Agent, BulkGroups, Snapshot, join
from tilekit.emulator.core.checks.happens_before import HappensBefore
from tilekit.emulator.ptx.checks.tensor_maps import TensorMapOrder

__all__ = ["ProxyOrder"]


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
