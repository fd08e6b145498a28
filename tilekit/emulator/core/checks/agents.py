"""The agents whose order matters in a launch, and the objects that carry knowledge between them.

A warp is one agent (:class:`Agent`); its lanes are not told apart. An asynchronous operation (:class:`Operation`) is an
agent of its own between its issue and its completion. What an agent knows is a clock: the latest epoch of each other
agent that is ordered before its next instruction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tilekit.emulator.core.checks.lane_order import COLLECTIVE, lanes_of
from tilekit.emulator.core.errors import Actor, InstructionLike

__all__ = [
    "ALL_LANES",
    "Agent",
    "Clock",
    "Groups",
    "Operation",
    "Snapshot",
    "Sync",
    "join",
    "lane_identity",
]

Clock = dict[int, int]

NOTHING: Clock = {}
ALL_LANES = 0xFFFFFFFF
_RELEASES_REMEMBERED = 16
_MEETINGS_REMEMBERED = 64
"""Meetings of some lanes; who meets more often than that without the others is taken to have met them too."""


def lane_identity(warp: int, lane: int) -> int:
    """Where a clock says what of one lane's accesses is known, when that is more than of its warp's.

    "Lane" 32 counts how often some lanes published what not all had.
    """
    return -(warp * 33 + lane)


def join(into: Clock, other: Clock) -> None:
    """Raise every entry of `into` to that of `other`."""
    get = into.get
    for identity, epoch in other.items():
        if get(identity, 0) < epoch:
            into[identity] = epoch


class Snapshot:
    """What an agent knew at one moment: its own epoch, and the clocks it had.

    `moment` is the epoch of the warp that published it, whatever `identity` and `epoch` count; `lanes` spoke for it.
    """

    __slots__ = ("clock", "epoch", "fenced", "identity", "lanes", "moment", "origin", "origin_epoch")

    def __init__(
        self,
        identity: int,
        epoch: int,
        clock: Clock,
        fenced: Clock,
        origin: int | None = None,
        origin_epoch: int = 0,
        moment: int | None = None,
        lanes: int = ALL_LANES,
    ) -> None:
        self.identity = identity
        self.epoch = epoch
        self.clock = clock
        self.fenced = fenced
        # The agent whose clock this is: the issuer, when an operation publishes its completion.
        self.origin = identity if origin is None else origin
        self.origin_epoch = epoch if origin is None else origin_epoch
        self.moment = self.origin_epoch if moment is None else moment
        self.lanes = lanes


class Sync:
    """Something that carries knowledge from those who release to those who acquire.

    One phase of an mbarrier, one generation of a named or cluster barrier, one atomic variable. What was released is
    remembered per agent, so releasing costs one entry and acquiring costs nothing when there is no news.

    Parameters
    ----------
    label
        Name for messages, called only when a message is made.
    carried
        The previous generation of the same object, whose releases this one includes (each arrival is a
        read-modify-write of the same word, so it continues the release sequence).
    """

    __slots__ = ("_fenced", "_merged", "label", "releases")

    def __init__(self, label: Callable[[], str] | str = "", carried: Sync | None = None) -> None:
        self.label = label
        self.releases: dict[int, Snapshot] = dict(carried.releases) if carried is not None else {}
        self._merged: Clock | None = None
        self._fenced: Clock = NOTHING

    @property
    def name(self) -> str:
        """The label as text."""
        return self.label if isinstance(self.label, str) else self.label()

    def add(self, snapshot: Snapshot) -> None:
        """Release `snapshot` into this object."""
        known = self.releases.get(snapshot.identity)
        if known is None or known.epoch < snapshot.epoch:
            self.releases[snapshot.identity] = snapshot
            self._merged = None

    def merged(self) -> tuple[Clock, Clock]:
        """Return the joined clocks of every release: (clock, fenced frontier)."""
        if self._merged is None:
            clock: Clock = {}
            fenced: Clock = {}
            for snapshot in self.releases.values():
                if not clock:
                    clock, fenced = snapshot.clock.copy(), snapshot.fenced.copy()
                elif clock.get(snapshot.origin, 0) < snapshot.origin_epoch:
                    join(clock, snapshot.clock)
                    join(fenced, snapshot.fenced)
                if clock.get(snapshot.identity, 0) < snapshot.epoch:
                    clock[snapshot.identity] = snapshot.epoch
            self._merged, self._fenced = clock, fenced
        return self._merged, self._fenced


class Agent:
    """A warp.

    Attributes
    ----------
    actor
        Who it is, for messages.
    epoch
        Counts what it has published; accesses are recorded with the current one.
    clock
        Latest epoch of each agent that is ordered before this one's next instruction.
    fenced
        Latest epoch of each agent whose generic writes the async proxy may touch from here.
    fence_snapshots, fence_lanes
        What its last fence covered, by whose accesses, and the lanes that executed the fence.
    published
        What it published last, while nothing has been added to it.
    releases
        The last few (number, epoch, sync object) it released to, for explaining what edge is missing.
    released
        How many there were in all.
    relaxed
        (epoch, sync object) of the last few arrivals and stores that released nothing but what its last fence covered.
    alone
        (epoch, lanes, sync object) of the last few releases by some lanes, which others had not met before.
    acquired
        The last few (number, sync object) it learnt something from.
    learnt
        How often it did.
    apart
        By identity, the first epoch whose accesses no meeting of all lanes has followed: the warp's own, and that of
        copies it has waited for since.
    met
        (epoch, lanes) of each meeting of some of its lanes since all met.
    active
        The active lanes of its accesses since all lanes met, as in :data:`.lane_order.Lanes`.
    """

    __slots__ = (
        "_free_entries",
        "acquirable",
        "acquired",
        "active",
        "actor",
        "alone",
        "apart",
        "clock",
        "epoch",
        "fence_lanes",
        "fence_snapshots",
        "fenced",
        "identity",
        "initialiser",
        "learnt",
        "met",
        "published",
        "relaxed",
        "released",
        "releases",
    )

    asynchronous = False
    unit = ""

    def __init__(self, identity: int, initialiser: int, actor: Actor) -> None:
        self.identity = identity
        self.initialiser = initialiser
        self.actor = actor
        self.epoch = 1
        self.clock: Clock = {identity: 1}
        self.fenced: Clock = {}
        self.fence_snapshots: dict[int, Snapshot] = {}
        self.fence_lanes = ALL_LANES
        self.acquirable: dict[int, Snapshot] = {}
        self.releases: deque[tuple[int, int, Sync]] = deque(maxlen=_RELEASES_REMEMBERED)
        self.released = 0
        self.relaxed: deque[tuple[int, Sync]] = deque(maxlen=_RELEASES_REMEMBERED)
        self.alone: deque[tuple[int, int, Sync]] = deque(maxlen=_RELEASES_REMEMBERED)
        self.acquired: deque[tuple[int, Sync]] = deque(maxlen=_RELEASES_REMEMBERED)
        self.learnt = 0
        self.apart: dict[int, int] = {identity: 1}
        self.met: list[tuple[int, int]] = []
        self.active: set[bytes | None] = set()
        self.published: Snapshot | None = None
        self._free_entries: deque[tuple[int, int]] = deque()

    @property
    def issuer(self) -> Agent:
        """The warp behind this agent: itself."""
        return self

    def __str__(self) -> str:
        return str(self.actor)

    def remember(self, sync: Sync, snapshot: Snapshot, lanes: int = ALL_LANES) -> None:
        """Note a release of what this agent did, or of what `lanes` of it did."""
        if snapshot.identity == self.identity:
            self.releases.append((self.released, snapshot.epoch, sync))
        else:
            self.releases.append((self.released, snapshot.clock[self.identity], sync))
            self.alone.append((snapshot.moment, lanes, sync))
        self.released += 1

    def hear(self, sync: Sync) -> None:
        """Note that something was learnt from an object."""
        self.acquired.append((self.learnt, sync))
        self.learnt += 1

    def touch(self) -> None:
        """Start a new epoch if the current one has been published; called before anything that must not be in it."""
        if self.published is not None:
            self.published = None
            self.epoch += 1
            self.clock[self.identity] = self.epoch

    def meet(self, lanes: int = ALL_LANES, live: int = ALL_LANES) -> None:
        """Order what these lanes do from here on after what they did before (`bar.warp.sync`)."""
        if not self.active and len(self.apart) == 1:
            return
        if self.published is None:
            self.epoch += 1
            self.clock[self.identity] = self.epoch
        else:
            self.touch()
        if live & ~lanes and len(self.met) < _MEETINGS_REMEMBERED:
            self.met.append((self.epoch, lanes))
        else:
            self.together(self.epoch)

    def together(self, epoch: int) -> None:
        """Note that all lanes have met since the accesses of earlier epochs than this."""
        self.apart = {self.identity: epoch}
        self.met.clear()
        self.active.clear()

    def share(self, lanes: int) -> Snapshot:
        """Publish what some lanes may speak for: what all did before they last met, and what these did since."""
        known = self.snapshot()
        if not any(lanes_of(active) & ~lanes for active in self.active if active != COLLECTIVE):
            return known
        before, fenced_to = self.apart[self.identity] - 1, self.fenced.get(self.identity, 0)
        for lane in range(32):
            if lanes >> lane & 1:
                self.clock[lane_identity(self.identity, lane)] = known.epoch
                self.fenced[lane_identity(self.identity, lane)] = fenced_to
        voice = lane_identity(self.identity, 32)
        self.clock[voice] = self.fenced[voice] = self.clock.get(voice, 0) + 1
        heard = lanes
        for epoch, met in reversed(self.met):  # what others did before some of these met them
            if met & heard:
                for lane in range(32):
                    if met & ~lanes & 1 << lane:
                        name = lane_identity(self.identity, lane)
                        self.clock[name] = max(self.clock.get(name, 0), epoch - 1)
                        self.fenced[name] = max(self.fenced.get(name, 0), min(fenced_to, epoch - 1))
                heard |= met
        clock, fenced = self.clock.copy(), self.fenced.copy()
        clock[self.identity] = before
        fenced[self.identity] = min(fenced_to, before)
        return Snapshot(voice, clock[voice], clock, fenced, moment=known.epoch, lanes=lanes)

    def snapshot(self) -> Snapshot:
        """Publish all that this agent knows and did so far."""
        if self.published is None:
            self.published = Snapshot(self.identity, self.epoch, self.clock.copy(), self.fenced.copy())
        return self.published


class Operation:
    """One asynchronous operation: a TMA request, a group of wgmma or cp.async, a bulk store.

    Attributes
    ----------
    agent
        The warp that issued it.
    unit
        What executes it, in the reader's words, such as `TMA load` or `wgmma`.
    instruction
        The instruction that issued it.
    clock, fenced
        The issuer's at issue: what the operation is ordered after. Gone once its completion has been published.
    issued
        The issuer's epoch at issue.
    preceding
        How often the issuer had released before.
    learnt
        How often the issuer had learnt something before.
    asynchronous
        Whether its accesses are the async proxy's (cp.async is asynchronous, yet in the generic proxy).
    completes
        The object whose completion tells of this operation, for messages.
    groups
        The queue it waits in, for operations that complete by wait_group.
    lanes
        Those that issued it.
    beyond
        Says why it wrote a byte, by its address, that is no part of what it was asked to; empty where it was.
    apart, met
        The issuer's at issue, where each lane has an operation of its own (cp.async); else empty.
    """

    __slots__ = (
        "agent",
        "apart",
        "asynchronous",
        "beyond",
        "clock",
        "completes",
        "epoch",
        "fenced",
        "groups",
        "identity",
        "instruction",
        "issued",
        "lanes",
        "learnt",
        "met",
        "preceding",
        "unit",
    )

    def __init__(
        self,
        agent: Agent,
        unit: str,
        instruction: InstructionLike | None,
        identity: int,
        epoch: int,
        *,
        asynchronous: bool,
        completes: Sync | None = None,
        groups: Groups | None = None,
        lanes: int = ALL_LANES,
    ) -> None:
        issued = agent.snapshot() if lanes == ALL_LANES else agent.share(lanes)
        self.agent = agent
        self.unit = unit
        self.instruction = instruction
        self.identity = identity
        self.epoch = epoch
        self.issued = issued.moment
        self.preceding = agent.released
        self.learnt = agent.learnt
        self.clock = issued.clock
        self.fenced = issued.fenced
        self.asynchronous = asynchronous
        self.completes = completes
        self.groups = groups
        self.lanes = lanes
        self.beyond: Callable[[int], str] | None = None
        self.apart: Clock = NOTHING
        self.met: list[tuple[int, int]] = []

    @property
    def actor(self) -> Actor:
        """The issuer's name."""
        return self.agent.actor

    @property
    def issuer(self) -> Agent:
        """The warp behind this agent: the one that issued it."""
        return self.agent

    def of_each_lane(self) -> Operation:
        """Note that every lane issued its own part of it: their order with the issuer's other lanes matters."""
        self.apart = self.agent.apart.copy()
        self.met = self.agent.met.copy()
        return self

    def __str__(self) -> str:
        return f"{self.unit} issued by {self.agent.actor}"

    def touch(self) -> None:
        """Operations have one epoch: nothing to do."""

    def snapshot(self) -> Snapshot:
        """Publish the operation's completion, with what its issuer knew at issue."""
        agent = self.agent
        published = Snapshot(
            self.identity, self.epoch, self.clock, self.fenced, origin=agent.identity, origin_epoch=self.issued
        )
        # Reports remember operations for the rest of the launch; what they knew is no longer needed.
        self.clock = self.fenced = NOTHING
        return published


class Groups:
    """A warp's queue of operations that complete in groups, in order: cp.async, wgmma, one half of the bulk stores."""

    __slots__ = ("_done", "_ends", "agent", "asynchronous", "epoch", "identity", "unit", "waits_with")

    def __init__(self, agent: Agent, unit: str, identity: int, *, asynchronous: bool, waits_with: str) -> None:
        self.agent = agent
        self.unit = unit
        self.identity = identity
        self.asynchronous = asynchronous
        self.waits_with = waits_with
        self.epoch = 1
        self._ends: deque[int] = deque()
        self._done = 0

    def issue(self, instruction: InstructionLike | None, lanes: int = ALL_LANES) -> Operation:
        """Start an operation of some lanes that belongs to the open group."""
        return Operation(
            self.agent,
            self.unit,
            instruction,
            self.identity,
            self.epoch,
            asynchronous=self.asynchronous,
            groups=self,
            lanes=lanes,
        )

    def commit(self) -> None:
        """Close the open group (commit_group); it may be empty."""
        self._ends.append(self.epoch)
        self.epoch += 1

    def wait(self, keep: int = 0) -> None:
        """Order the warp after all but the `keep` youngest committed groups (wait_group)."""
        done = 0
        while len(self._ends) > keep:
            done = self._ends.popleft()
        if done and self.agent.clock.get(self.identity, 0) < done:
            self.agent.touch()
            self.agent.clock[self.identity] = done
            # Each lane has waited for its own: those of other lanes it must be told of.
            self.agent.apart.setdefault(self.identity, self._done + 1)
            self._done = done

    def outstanding(self) -> int:
        """Return the number of committed groups not waited for."""
        return len(self._ends)

    def release(self, sync: Sync) -> None:
        """Publish the completion of everything issued so far (cp.async.mbarrier.arrive, tcgen05.commit)."""
        issued = self.agent.snapshot()
        sync.add(
            Snapshot(
                self.identity,
                self.epoch,
                issued.clock,
                issued.fenced,
                origin=issued.identity,
                origin_epoch=issued.epoch,
            )
        )
        # Operations issued from here on are not part of what was published, though still of the same open group.
        self.epoch += 1
