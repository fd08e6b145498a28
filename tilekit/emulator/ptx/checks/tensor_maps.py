"""Whether a tensor map reached the copy engine as it was written: the order of the tensormap proxy.

The copy engine reads maps through a proxy of its own, so that a map in global memory which has been written must be
handed over (PTX ISA, proxies, causality order; `fence.proxy.tensormap`, `tensormap.cp_fenceproxy`):

1. a thread behind the write releases it, by `fence.proxy.tensormap::generic.release`, or by the copy of
   `tensormap.cp_fenceproxy`, which releases the 128 bytes that it writes and no others;
2. a thread of the CTA that is about to use it acquires these very 128 bytes, behind the release, by
   `fence.proxy.tensormap::generic.acquire`; both scopes must hold the other one's thread;
3. the copy is issued behind that acquire, by the same thread or by one of the same CTA that a barrier orders behind it:
   proxies other than the generic one keep their order within a CTA only, so that each CTA acquires for itself.

A map that lay in global memory before the launch needs the acquire too, as the start of a kernel does not take it over
(PTX ISA, memory synchronization, API synchronization); one among the parameters comes with the launch.

A fence is kept with what its warp knew then. Whether an acquire is good is decided when it is executed, for the writes
that the map's bytes then hold; a later write makes it worthless, whatever thread executed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilekit.emulator.core.arithmetic.lanes import lane_mask
from tilekit.emulator.core.checks.agents import ALL_LANES, Agent, Clock, lane_identity
from tilekit.emulator.core.checks.lane_order import have_met, lanes_of
from tilekit.emulator.core.checks.shadow import Access, Memory, Race
from tilekit.emulator.core.checks.shadow_pages import ATOMIC, Record, known_by_lane
from tilekit.emulator.core.errors import Actor, InstructionLike
from tilekit.emulator.core.memory.footprint import PAGE_BITS

__all__ = ["MAP_BYTES", "Scope", "TensorMapOrder"]

MAP_BYTES = 128
Scope = Literal["cta", "cluster", "gpu", "sys"]
_REACH = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 3}
_ACQUIRE = "fence.proxy.tensormap::generic.acquire"
_RELEASE = "fence.proxy.tensormap::generic.release"

Written = tuple[Record, int, int, int]
"""A record of a write to a map, with the page, the units of it that are the map's, and log2 of their size."""
Version = tuple[tuple[int, int, int, int], ...]
"""The writes that a map's bytes hold: what changes when one of them is written again."""
Missing = tuple[str, str]
"""The edge that is missing, and what would add it."""


class _Moment:
    """What some lanes of a warp knew when they executed a fence, or issued a copy."""

    __slots__ = ("agent", "clock", "epoch", "lanes", "met", "since")

    def __init__(self, agent: Agent, lanes: int, clock: Clock) -> None:
        self.agent = agent
        self.epoch = agent.epoch
        self.clock = clock
        self.lanes = lanes
        self.since = agent.apart[agent.identity]
        self.met = agent.met.copy()

    def precedes(self, other: _Moment) -> bool:
        """Whether this comes before another moment, of this warp or of another, in causality order."""
        known = other.clock.get(self.agent.identity, 0) >= self.epoch
        if not known:
            own = self.agent.identity
            return any(other.clock.get(lane_identity(own, lane), 0) >= self.epoch for lane in _each(self.lanes))
        if self.agent is not other.agent or self.epoch < other.since or self.lanes & other.lanes:
            return True
        return any(have_met(other.met, a, b, self.epoch) for a in _each(self.lanes) for b in _each(other.lanes))

    def follows(self, written: Written) -> bool:
        """Whether this comes after a write."""
        record, page, mask, shift = written
        own = self.agent.identity
        if self.clock.get(record.identity, 0) < record.epoch:
            return known_by_lane(record, mask, page, shift, self.clock)
        if record.identity != own or record.epoch < self.since:
            return True
        wrote = 0
        for lanes in record.lanes:
            wrote |= lanes_of(lanes[3])
        return all(
            any(have_met(self.met, lane, mine, record.epoch) for mine in _each(self.lanes))
            for lane in _each(wrote & ~self.lanes)
        )


class _Fence(_Moment):
    """A release, or an acquire: of all that was written, or of the map at an address."""

    __slots__ = ("address", "instruction", "missing", "scope", "version")

    def __init__(
        self, agent: Agent, lanes: int, scope: Scope, instruction: InstructionLike, address: int | None
    ) -> None:
        # What comes before the fence and what comes behind it must not share an epoch.
        agent.touch()
        super().__init__(agent, lanes, agent.snapshot().clock)
        agent.active.add(None if lanes == ALL_LANES else lane_mask(lanes).tobytes())
        self.scope = scope
        self.instruction = instruction
        self.address = address
        self.version: Version = ()
        self.missing: Missing | None = None

    def __str__(self) -> str:
        return f"the one of {_who(self.agent.actor)} at line {self.instruction.line}"

    def reaches(self, other: _Fence) -> bool:
        """Whether this fence's scope holds the other one's threads."""
        return _REACH[self.scope] >= _distance(self.agent.actor, other.agent.actor)


class TensorMapOrder:
    """The fences of the tensormap proxy in one launch."""

    def __init__(self) -> None:
        self._releases: dict[int, list[_Fence]] = {}
        self._acquires: dict[tuple[int, int], dict[int, list[_Fence]]] = {}

    def release(
        self, agent: Agent, lanes: int, scope: Scope, instruction: InstructionLike, address: int | None = None
    ) -> None:
        """Hand over what was written before to the tensormap proxy: everything, or the map at an address."""
        fence = _Fence(agent, lanes, scope, instruction, address)
        self._releases.setdefault(agent.identity, []).append(fence)

    def acquire(
        self, agent: Agent, lanes: int, scope: Scope, instruction: InstructionLike, address: int, memory: Memory
    ) -> None:
        """Let the copies that this CTA issues from here on read a map as it is now."""
        fence = _Fence(agent, lanes, scope, instruction, address)
        written = list(memory.written(address, address + MAP_BYTES))
        fence.version = _version(written)
        fence.missing = next(filter(None, (self._not_taken_over(fence, write) for write in written)), None)
        actor = agent.actor
        known = self._acquires.setdefault((actor.cluster, actor.cta), {}).setdefault(address, [])
        known[:] = [other for other in known if other.version == fence.version]
        # Who comes behind a second acquire comes behind the first one too.
        same = (other for other in known if other.agent is agent and other.lanes == lanes and other.missing is None)
        if next(same, None) is None:
            known.append(fence)

    def use(self, agent: Agent, lane: int, instruction: InstructionLike, address: int, memory: Memory) -> Race | None:
        """Check the read of a map by a copy that a lane issues; return what the map's last write has not gone through.

        Writes that are not ordered before the copy at all are the shadow's business.
        """
        use = _Moment(agent, 1 << lane, agent.clock)
        written = list(memory.written(address, address + MAP_BYTES))
        version = _version(written)
        acquires = self._acquires.get((agent.actor.cluster, agent.actor.cta), {}).get(address, [])
        if any(a.version == version and a.missing is None and a.precedes(use) for a in acquires):
            return None
        for write in written:
            record, _, mask, shift = write
            if not use.follows(write):
                continue
            missing = self._missing(use, address, write, version, acquires)
            earlier = Access(
                record.party, record.epoch, True, bool(record.kind & ATOMIC), record.instruction_at(mask, shift)
            )
            later = Access(agent, agent.epoch, False, False, instruction)
            return Race(memory, address, address + MAP_BYTES, earlier, later, True, None, missing)
        return None

    def given(self, agent: Agent, lane: int, address: int, memory: Memory) -> bool:
        """Whether a map that lay in memory before the launch is used by a CTA that has not acquired it."""
        if next(memory.written(address, address + MAP_BYTES), None) is not None:
            return False
        acquires = self._acquires.get((agent.actor.cluster, agent.actor.cta), {}).get(address, [])
        use = _Moment(agent, 1 << lane, agent.clock)
        return not any(fence.precedes(use) for fence in acquires)

    def _releases_of(self, write: Written, first: int) -> Iterator[_Fence]:
        """The releases behind a write, those of one agent first."""
        place = (write[1] << PAGE_BITS) + (((write[2] & -write[2]).bit_length() - 1) << write[3])
        lists = [self._releases.get(first, []), *(found for own, found in self._releases.items() if own != first)]
        for found in lists:
            for fence in reversed(found):
                if not fence.follows(write):
                    if fence.clock.get(write[0].identity, 0) < write[0].epoch:
                        break
                    continue
                if fence.address is None or fence.address <= place < fence.address + MAP_BYTES:
                    yield fence

    def _not_taken_over(self, acquire: _Fence, write: Written) -> Missing | None:
        """What is missing between a write and an acquire, or None."""
        narrow: _Fence | None = None
        unordered: _Fence | None = None
        for release in self._releases_of(write, write[0].identity):
            if not release.precedes(acquire):
                unordered = unordered or release
            elif not release.reaches(acquire) or not acquire.reaches(release):
                narrow = narrow or release
            else:
                return None
        if narrow is not None:
            return _too_narrow(narrow, acquire)
        if not acquire.follows(write):
            return (
                f"the {_ACQUIRE} of {_who(acquire.agent.actor)} at line {acquire.instruction.line} is not ordered "
                "behind the write",
                "put the barrier, or the flag that is stored with .release and loaded with .acquire, between the "
                "release of the map and the acquire",
            )
        if unordered is not None:
            return (
                f"the {_ACQUIRE} at line {acquire.instruction.line} is not ordered behind the release at line "
                f"{unordered.instruction.line}",
                "release the map first, then arrive on the barrier or set the flag that leads to the acquire",
            )
        return _unreleased(write)

    def _missing(self, use: _Moment, address: int, write: Written, version: Version, acquires: list[_Fence]) -> Missing:
        """What is missing between a write and a copy that no good acquire precedes."""
        actor = use.agent.actor
        here = [fence for fence in acquires if fence.version == version]
        before = [fence for fence in here if fence.precedes(use)]
        if before:
            known = self._not_taken_over(before[-1], write) or before[-1].missing
            assert known is not None
            return known
        if here:
            return (
                f"nothing orders {actor} behind the {_ACQUIRE} of {_who(here[-1].agent.actor)} at line "
                f"{here[-1].instruction.line}",
                "acquire in the thread that issues the copy, or put a barrier (bar.warp.sync within a warp) between "
                "the acquire and the copy",
            )
        released = next(self._releases_of(write, write[0].identity), None)
        if released is None:
            edge, hint = _unreleased(write)
            return f"{edge}, and no {_ACQUIRE} of it by CTA {actor.cta} behind that", hint
        if acquires:
            edge = f"the {_ACQUIRE} at line {acquires[-1].instruction.line} comes before the write, not behind it"
        else:
            edge = f"no {_ACQUIRE} of these {MAP_BYTES} bytes by a thread of CTA {actor.cta}"
            edge += self._elsewhere(actor, address)
        scope = ("cta", "cluster", "gpu")[_distance(released.agent.actor, actor)]
        return (
            edge,
            f"behind the release at line {released.instruction.line}, and a barrier if it is another thread's, each "
            f"CTA that uses the map must execute {_ACQUIRE}.{scope} [map], {MAP_BYTES} before its copies",
        )

    def _elsewhere(self, actor: Actor, address: int) -> str:
        """Whether another place was acquired, or by another CTA."""
        own = self._acquires.get((actor.cluster, actor.cta), {})
        near = next((other for other in own if abs(other - address) < MAP_BYTES), None)
        if near is not None:
            return f": the one at line {own[near][-1].instruction.line} names {near:#x}, the map lies at {address:#x}"
        for found in self._acquires.values():
            if found.get(address):
                return f": {found[address][-1]} holds for its own CTA only"
        return ""


def _version(written: list[Written]) -> Version:
    return tuple(sorted((record.identity, record.epoch, page, mask) for record, page, mask, _ in written))


def _each(lanes: int) -> Iterator[int]:
    while lanes:
        lowest = lanes & -lanes
        yield lowest.bit_length() - 1
        lanes ^= lowest


def _who(actor: Actor) -> str:
    return f"{actor} of CTA {actor.cta}, cluster {actor.cluster},"


def _distance(one: Actor, other: Actor) -> int:
    """The narrowest scope that holds both: 0 for a CTA, 1 for a cluster, 2 for the device."""
    if one.cluster != other.cluster:
        return 2
    return int(one.cta != other.cta)


def _too_narrow(release: _Fence, acquire: _Fence) -> Missing:
    narrow = release if not release.reaches(acquire) else acquire
    kind = "release" if narrow is release else "acquire"
    needed = ("cta", "cluster", "gpu")[_distance(release.agent.actor, acquire.agent.actor)]
    return (
        f"the {kind} of the map at line {narrow.instruction.line} has scope .{narrow.scope}, which does not hold both "
        f"{_who(release.agent.actor)} and {_who(acquire.agent.actor)} who must meet in it",
        f"give it .{needed}: a scope must hold the threads of both fences",
    )


def _unreleased(write: Written) -> Missing:
    party = write[0].party
    return (
        f"no {_RELEASE} behind the write of {party.issuer.actor}",
        f"execute {_RELEASE} behind the write, or change the map in shared memory and copy it with "
        "tensormap.cp_fenceproxy, before the barrier or the flag that leads to its use",
    )
