"""Which operation is ordered before which: vector clocks over warps and asynchronous operations.

A warp is one agent; its lanes are not told apart, so a race between two lanes of one warp is out of scope. Every
asynchronous operation is an agent of its own, because it is ordered with its issuer only at its two ends: it starts
after everything the issuer did before issuing it, and a thread that learns of its completion (a wait on the mbarrier it
completes, a wait for its group) is ordered after it. Its accesses are compared with the clock at issue and recorded
with the epoch of its completion, which is right whenever in between they take place.

Clocks hold an entry an agent. A TMA request needs an entry until its issuer knows of its completion; after that the
entry serves the issuer's next request, so a ring of stages costs as many entries as it has requests in flight and not
one a request.

Generic accesses and the async proxy are kept apart by a second clock, the *fenced* frontier: `fence.proxy.async` moves
the issuing warp's own frontier up to now, releases and acquires carry it along, and an async access needs the frontier,
not only the clock, to cover the generic writes it meets (PTX ISA, memory consistency model, proxies). The fence must
be the writer's, before the release that publishes the write. Completion of an async operation needs no fence.

Scopes are not modelled: a `.cta` release is taken to be visible to every thread that acquires it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tilekit.emulator.core.checks.agents import (
    ALL_LANES,
    Agent,
    Groups,
    Operation,
    Snapshot,
    Sync,
    join,
    lane_identity,
)
from tilekit.emulator.core.errors import Actor, InstructionLike

__all__ = ["HappensBefore", "Order"]

Order = Literal["relaxed", "acquire", "release", "acq_rel"]


class HappensBefore:
    """The order of one launch: creates agents and moves knowledge between them."""

    def __init__(self) -> None:
        self._identities = 0
        self._atomics: dict[int, Sync] = {}

    def _identity(self) -> int:
        self._identities += 1
        return self._identities

    def warp(self, actor: Actor) -> Agent:
        """Create the agent of a warp, ordered after nothing in this launch."""
        return Agent(self._identity(), self._identity(), actor)

    def groups(self, agent: Agent, unit: str, *, waits_with: str, asynchronous: bool = True) -> Groups:
        """Create a queue of groups of `agent`.

        Parameters
        ----------
        unit
            What executes its operations, for messages, such as `wgmma`.
        waits_with
            The instruction that waits for a group, for hints, such as `wgmma.wait_group`.
        asynchronous
            Whether its accesses are in the async proxy; False for cp.async.
        """
        return Groups(agent, unit, self._identity(), asynchronous=asynchronous, waits_with=waits_with)

    def issue(
        self,
        agent: Agent,
        unit: str,
        instruction: InstructionLike | None,
        completes: Sync | None = None,
        *,
        asynchronous: bool = True,
        lanes: int = ALL_LANES,
    ) -> Operation:
        """Start an operation that completes on its own, on an mbarrier: one for each destination CTA.

        It is ordered after everything that `lanes` of `agent` did so far. When its data has landed, tell the memories
        of its accesses and then release it to the barrier's phase: once, as that is the end of it.
        """
        free = agent._free_entries
        if free and agent.clock.get(free[0][0], 0) >= free[0][1]:
            identity, epoch = free.popleft()
            epoch += 1
        else:
            identity, epoch = self._identity(), 1
        free.append((identity, epoch))
        return Operation(
            agent, unit, instruction, identity, epoch, asynchronous=asynchronous, completes=completes, lanes=lanes
        )

    def release(self, agent: Agent | Operation, sync: Sync, *, relaxed: bool = False, lanes: int = ALL_LANES) -> None:
        """Publish to `sync` all that these lanes of `agent` did; for an operation, its completion.

        With `relaxed` only what the agent's last fences covered is published (a relaxed arrive or store after a fence).
        """
        if isinstance(agent, Operation):
            sync.add(agent.snapshot())
            return
        if not relaxed:
            snapshot = agent.snapshot() if lanes == ALL_LANES else agent.share(lanes)
            sync.add(snapshot)
            agent.remember(sync, snapshot, lanes)
            return
        agent.relaxed.append((agent.epoch, sync))
        for identity, snapshot in agent.fence_snapshots.items():
            sync.add(snapshot)
            if identity == agent.identity:
                agent.remember(sync, snapshot, agent.fence_lanes)

    def acquire(self, agent: Agent, sync: Sync) -> None:
        """Order `agent`'s next instructions after everything released to `sync`."""
        clock = agent.clock
        _meet_own(agent, sync.releases.get(agent.identity))
        news = [s for s in sync.releases.values() if clock.get(s.identity, 0) < s.epoch]
        if news:
            agent.hear(sync)
        if len(news) > 2:
            merged, fenced = sync.merged()
            if sync.releases.get(agent.identity) is agent.published and agent.published is not None:
                # It came to this barrier and did nothing since: what was released includes all that it knows.
                agent.clock, agent.fenced = merged.copy(), fenced.copy()
                agent.touch()
            else:
                agent.touch()
                join(clock, merged)
                join(agent.fenced, fenced)
        elif news:
            _learn(agent, news)

    def collective(self, agent: Agent, operations: Sequence[Operation]) -> None:
        """Order `agent`, which has waited for one operation of several warps, after what each did before it took part.

        A kernel whose warps read A of a wgmma from shared memory gives the stage back by one of them (CUTLASS, mixed
        input).
        """
        known = agent.clock
        news = [operation for operation in operations if known.get(operation.agent.identity, 0) < operation.issued]
        _learn(agent, [Snapshot(o.agent.identity, o.issued, o.clock, o.fenced) for o in news])

    def fence(self, agent: Agent, lanes: int = ALL_LANES) -> None:
        """Execute a thread fence (`fence.acq_rel`, `fence.sc`, `membar`) in these lanes.

        Earlier relaxed reads become acquires, later relaxed writes become releases of what these lanes did.
        """
        if agent.acquirable:
            _meet_own(agent, agent.acquirable.get(agent.identity))
            _meet_speakers(agent, agent.acquirable, lanes)
            _learn(agent, [s for s in agent.acquirable.values() if agent.clock.get(s.identity, 0) < s.epoch])
            agent.acquirable.clear()
        agent.fence_snapshots = {
            agent.identity: agent.snapshot() if lanes == ALL_LANES else agent.share(lanes),
        }
        agent.fence_lanes = lanes

    def atomic(
        self, agent: Agent, address: int, order: Order, *, reads: bool, writes: bool, lanes: int = ALL_LANES
    ) -> None:
        """Execute an atomic or strong access (`atom`, `red`, `ld.acquire`, `st.release`, `.relaxed`, `.volatile`).

        A release publishes what `lanes` did: that of one lane says nothing of the others since they last met.

        Call it after the access took effect on memory; it moves knowledge, the race check is the shadow's.
        """
        sync = self._atomics.get(address)
        if sync is None:
            sync = self._atomics[address] = Sync(f"the atomic variable at {address:#x}")
        if reads and sync.releases:
            if order in ("acquire", "acq_rel"):
                _meet_speakers(agent, sync.releases, lanes)
                self.acquire(agent, sync)
            else:
                _notice(agent, sync.releases)
        if writes:
            self.release(agent, sync, relaxed=order in ("relaxed", "acquire"), lanes=lanes)


def _meet_own(agent: Agent, released: Snapshot | None) -> None:
    """Order a warp's lanes after what its own lanes released: all came here, and then went on."""
    if released is not None and released.epoch >= agent.apart[agent.identity]:
        agent.together(released.epoch + 1)


def _meet_speakers(agent: Agent, releases: Mapping[int, Snapshot], lanes: int) -> None:
    """Order these lanes of a warp after what other lanes of it released: one took the lock that another gave back."""
    said = releases.get(lane_identity(agent.identity, 32))
    if said is not None and said.moment >= agent.apart[agent.identity]:
        together = said.lanes | lanes
        if together & (together - 1):
            agent.meet(together)


def _notice(agent: Agent, releases: Mapping[int, Snapshot]) -> None:
    """Remember what a relaxed read has seen until a fence comes: of one who released several times, the latest."""
    seen = agent.acquirable
    if not seen:
        seen.update(releases)
        return
    for identity, snapshot in releases.items():
        known = seen.get(identity)
        if known is None or known.epoch < snapshot.epoch:
            seen[identity] = snapshot


def _learn(agent: Agent, news: list[Snapshot]) -> None:
    if not news:
        return
    agent.touch()
    clock = agent.clock
    for snapshot in news:
        if clock.get(snapshot.origin, 0) < snapshot.origin_epoch:
            join(clock, snapshot.clock)
            join(agent.fenced, snapshot.fenced)
        if clock.get(snapshot.identity, 0) < snapshot.epoch:
            clock[snapshot.identity] = snapshot.epoch
