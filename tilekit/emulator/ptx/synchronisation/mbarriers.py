"""mbarrier instructions of a warp, on the objects of :mod:`.mbarrier` (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import ONE_LANE, ballot
from tilekit.emulator.core.checks.agents import ALL_LANES
from tilekit.emulator.core.checks.deadlock import PhaseWait
from tilekit.emulator.core.checks.findings import Unheeded
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import BarrierFault, MemoryFault, describe
from tilekit.emulator.core.memory.memory import OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW, WINDOW, Allocation
from tilekit.emulator.ptx.checks.exits import arrivals_unseen, visited
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.synchronisation.mbarrier import BYTES

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cluster
    from tilekit.emulator.ptx.execution.warp import Fragment, Warp
    from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


_WAITS_REMEMBERED = 256
"""Waits that gave up and were not repeated: each keeps its warp."""


class Polling:
    """A fragment blocked in a try_wait or test_wait on an mbarrier."""

    __slots__ = ("barrier", "key", "parity", "waiters")
    polls = True

    def __init__(self, barrier: Mbarrier, parity: int, key: tuple[int, int], waiters: list[Any]) -> None:
        self.barrier = barrier
        self.parity = parity
        self.key = key
        self.waiters = waiters

    def describe(self) -> PhaseWait:
        """For the deadlock report."""
        return PhaseWait(self.barrier, self.parity, self.barrier.address >> RANK_SHIFT, self.key)


def shared_address(space: str, address: int) -> int:
    """Address in the cluster's shared window of an operand that may be generic."""
    if space == "generic" and address // WINDOW == SHARED_WINDOW // WINDOW:
        return address - SHARED_WINDOW
    return address


def _find(warp: Warp, space: str, address: int, *, waits: bool = False) -> Mbarrier:
    """The barrier of an instruction; of a peer's, where the instruction reaches it."""
    address = shared_address(space, address)
    barrier = warp.cta.cluster.mbarriers.get(address)
    if barrier is None:
        resolve(warp, "shared::cluster", address, 8, "mbarrier access")
        barrier = barrier_at(warp, address)
    owner = warp.cta.cluster.ctas[barrier.address >> RANK_SHIFT]
    if owner is not warp.cta and (waits or space == "shared"):
        what = "a wait for" if waits else "an access with .shared::cta to"
        raise MemoryFault(
            f"{what} {barrier.name} of CTA {owner.rank}, from CTA {warp.cta.rank}",
            hint="a thread waits on barriers of its own CTA only: let the peer arrive on one of those"
            if waits
            else "reach another CTA's shared memory with .shared::cluster",
        )
    if owner is not warp.cta:
        visited(owner, warp, "an operation on its mbarrier", barrier, barrier.phase)
    _require_initialised(warp, barrier)
    return barrier


def _require_initialised(warp: Warp, barrier: Mbarrier) -> None:
    """Fault unless a barrier's initialisation is ordered before what the warp does now."""
    hb = warp.cta.launch.order
    if hb is None or barrier.stamp is None or hb.knows(warp.agent, barrier.stamp):
        return
    owner, first = barrier.address >> RANK_SHIFT, barrier.initialised_by
    peer = owner != warp.cta.rank
    whose = f" of CTA {owner}" if peer else ""
    raise BarrierFault(
        f"{barrier.name}{whose} is used by a warp that its initialisation is not ordered before",
        hint="after mbarrier.init: fence.mbarrier_init.release.cluster, then barrier.cluster.arrive and wait, which "
        "every thread of both CTAs passes before the first use"
        if peer
        else "after mbarrier.init: fence.mbarrier_init (or a barrier of the CTA), then bar.sync or a cluster "
        "barrier that every user passes",
        table=f"initialised by {first.actor or 'a thread'} of CTA {owner}, at {describe(first.instruction)}",
        details={"address": barrier.address},
    )


def barrier_at(warp: Warp, address: int) -> Mbarrier:
    """The live mbarrier at an address of the cluster's shared window, for the instruction that a warp is at."""
    table = warp.cta.cluster.mbarriers
    barrier = table.get(address)
    if barrier is None:
        name = warp.cta.launch.shared_name(address & OFFSET_MASK)
        barrier = table.at(address, by=warp.actor, instruction=warp.program.instruction(warp.at), name=name)
    _require_initialised(warp, barrier)
    return barrier


def each(warp: Warp, addresses: int | Array, mask: Mask | None) -> list[tuple[int, int]]:
    """(address, number of lanes) of an instruction that every active lane executes."""
    if isinstance(addresses, int):
        return [(addresses, warp.fragment.lanes if mask is None else int(np.count_nonzero(mask)))]
    given = (addresses if mask is None else addresses[mask]).tolist()
    return [(address, given.count(address)) for address in sorted(set(given))]


def mbarrier_init(warp: Warp, space: str, addresses: int | Array, count: int | Array, mask: Mask | None) -> None:
    """``mbarrier.init``."""
    cta = warp.cta
    hb = cta.launch.order
    instruction = warp.program.instruction(warp.at)
    counts: dict[int, list[int]] = {}
    lanes: dict[int, int] = {}
    for lane in np.flatnonzero(warp.live if mask is None else mask).tolist():
        given = addresses if isinstance(addresses, int) else int(addresses[lane])
        counts.setdefault(given, []).append(count if isinstance(count, int) else int(count[lane]))
        lanes[given] = lane
    for given, (number, *others) in counts.items():
        address = shared_address(space, given)
        memory, offset = resolve(warp, "shared", address, BYTES, "mbarrier.init")
        name = cta.launch.shared_name(offset)
        if others:
            raise BarrierFault(
                f"{len(others) + 1} lanes of a warp initialise {name or f'the mbarrier at {address:#x}'} at once",
                hint="let one thread execute mbarrier.init: on memory that holds a barrier it is undefined",
            )
        stamp = hb.initialise(warp.agent) if hb is not None else None
        cta.cluster.mbarriers.initialise(address, number, name, by=warp.actor, instruction=instruction, stamp=stamp)
        memory.barriers[offset] = cta.cluster.mbarriers.get(address)
        _write(warp, memory, offset, ONE_LANE[lanes[given]])
    cta.launch.machine.events += 1


def mbarrier_inval(warp: Warp, space: str, addresses: int | Array, mask: Mask | None) -> None:
    """``mbarrier.inval``."""
    active = warp.live if mask is None else mask
    for given, _ in each(warp, addresses, mask):
        address = shared_address(space, given)
        memory, offset = resolve(warp, "shared", address, BYTES, "mbarrier.inval")
        instruction = warp.program.instruction(warp.at)
        table = warp.cta.cluster.mbarriers
        ended = table.get(address)
        table.invalidate(address, by=warp.actor, instruction=instruction)
        if ended is not None and warp.cta.launch.protocol:
            arrivals_unseen(warp.cta, ended, "mbarrier.inval is executed")
        del memory.barriers[offset]
        _write(warp, memory, offset, active if isinstance(addresses, int) else active & (addresses == given))


def _write(warp: Warp, memory: Allocation, offset: int, lanes: Mask) -> None:
    """Tell the race check that these lanes wrote a barrier's bytes, in the generic proxy."""
    if memory.shadow is not None:
        start = memory.shadow.base + offset
        instruction = warp.program.instruction(warp.at)
        by = uniform(start, BYTES, lanes.tobytes())
        memory.shadow.span(warp.agent, start, start + BYTES, write=True, instruction=instruction, lanes=by)


def changed(cluster: Cluster, barrier: Mbarrier, phase: int) -> None:
    """After an operation on a barrier: wake its waiters when the phase has completed."""
    machine = cluster.launch.machine
    machine.events += 1
    if barrier.phase != phase:
        waiters = cluster.mbarrier_waiters.get(barrier.address)
        if waiters:
            machine.wake(waiters)


def mbarrier_arrive(
    warp: Warp,
    space: str,
    addresses: int | Array,
    count: int,
    expect: int,
    drop: bool,
    no_complete: bool,
    release: bool,
    mask: Mask | None,
) -> int:
    """``mbarrier.arrive`` and ``arrive_drop``, with or without expect_tx; returns the state token of the last one."""
    token = 0
    hb = warp.cta.launch.order
    cluster = warp.cta.cluster
    instruction = warp.program.instruction(warp.at)
    speakers = ALL_LANES if mask is None or hb is None else ballot(mask)
    for address, lanes in each(warp, addresses, mask):
        barrier = _find(warp, space, address)
        phase = barrier.phase
        # Lanes arrive in some order. Where the phase is full before all have, any of them may be one that comes later:
        # of what a lane did itself its completion tells nothing. Lanes that met in parts are not followed so far.
        spread = hb is not None and lanes * count > barrier.pending and not warp.agent.met
        if hb is not None:
            hb.release(warp.agent, barrier.arriving, relaxed=not release, lanes=0 if spread else speakers)
        operation = barrier.arrive_drop if drop else barrier.arrive
        by = warp.actor
        if not expect and lanes * count <= barrier.pending:
            token = operation(lanes * count, by=by, instruction=instruction, no_complete=no_complete)
        else:
            try:
                for left in range(lanes, 0, -1):
                    if hb is not None and spread and left == 1:
                        # Behind the phase in which the last one counts, all have arrived.
                        hb.release(warp.agent, barrier.arriving, relaxed=not release, lanes=speakers)
                    token = operation(count, expect_tx=expect, by=by, instruction=instruction, no_complete=no_complete)
            except BarrierFault as fault:
                if lanes > 1:
                    fault.hint = f"{lanes} lanes of the warp execute this instruction: should one of them be elected?"
                raise
        changed(cluster, barrier, phase)
    return token


def mbarrier_transaction(
    warp: Warp, space: str, addresses: int | Array, size: int, complete: bool, mask: Mask | None
) -> None:
    """``mbarrier.expect_tx`` and ``mbarrier.complete_tx``."""
    instruction = warp.program.instruction(warp.at)
    for address, lanes in each(warp, addresses, mask):
        barrier = _find(warp, space, address)
        phase = barrier.phase
        for _ in range(lanes):
            if complete:
                barrier.complete_tx(size, by=warp.actor, instruction=instruction)
            else:
                barrier.expect_tx(size, by=warp.actor, instruction=instruction)
        changed(warp.cta.cluster, barrier, phase)


def mbarrier_test(warp: Warp, space: str, address: int, state: int, parity: bool, acquire: bool) -> bool | None:
    """``test_wait`` and ``try_wait``: True or False, or None when the fragment is suspended on the barrier."""
    barrier = _find(warp, space, address, waits=True)
    fragment = warp.fragment
    key = (warp.cta.rank, warp.index)
    unheeded = warp.cta.launch.findings.unheeded
    place = warp.cta.cluster.number, warp.cta.rank, warp.index, barrier.address
    if unheeded:
        unheeded.pop(place, None)
    if barrier.test(state) if parity else barrier.test_token(state):
        barrier.resume(key)
        fragment.expired = False
        hb = warp.cta.launch.order
        if hb is not None and acquire:
            hb.acquire(warp.agent, barrier.completed)
        return True
    if fragment.expired or warp.cta.launch.machine.wait_fails(warp):
        fragment.expired = False
        barrier.resume(key, observed=False)
        if len(unheeded) < _WAITS_REMEMBERED:
            at, instruction = warp.at, warp.program.instruction(warp.at)
            unheeded[place] = Unheeded(warp.actor, instruction, barrier.name, barrier.phase, lambda: _went_on(warp, at))
        return False
    barrier.suspend(key, warp.actor, warp.program.instruction(warp.at))
    _suspend(warp, fragment, barrier, state & 1 if parity else state >> 63 & 1, key)
    return None


def _went_on(warp: Warp, at: int) -> bool:
    """Whether a warp whose wait gave up has left it, and does not look at the answer later.

    Who asks ahead for the next stage puts the answer by, in another register, and waits in earnest when it gets there.
    Of a wait that should be repeated a branch right behind it reads the answer, or nothing does.
    """
    code = warp.program.code
    answer = code[at].defs
    copies = {copy for decoded in code if any(r in answer for r in decoded.uses) for copy in decoded.defs}
    return warp.at != at and not any(register in copies for decoded in code for register in decoded.uses)


def _suspend(warp: Warp, fragment: Fragment, barrier: Mbarrier, parity: int, key: tuple[int, int]) -> None:
    waiters = warp.cta.cluster.mbarrier_waiters.setdefault(barrier.address, [])
    fragment.blocked = Polling(barrier, parity, key, waiters)
    waiters.append((warp, fragment))


def mbarrier_test_lanes(
    warp: Warp, space: str, addresses: Array, states: Array, parity: bool, acquire: bool, mask: Mask | None
) -> Array | None:
    """A wait whose address or state may differ between lanes: if they do, it is answered at once, lane by lane."""
    result = np.zeros(32, np.bool_)
    hb = warp.cta.launch.order
    active = (warp.live if mask is None else mask).nonzero()[0]
    if (
        active.size
        and (addresses[active] == addresses[active[0]]).all()
        and (states[active] == states[active[0]]).all()
    ):
        done = mbarrier_test(warp, space, int(addresses[active[0]]), int(states[active[0]]), parity, acquire)
        return None if done is None else np.full(32, done)
    for lane in active.tolist():
        barrier = _find(warp, space, int(addresses[lane]), waits=True)
        state = int(states[lane])
        done = barrier.test(state) if parity else barrier.test_token(state)
        result[lane] = done
        if done:
            barrier.seen = barrier.phase
        if done and hb is not None and acquire:
            hb.acquire(warp.agent, barrier.completed)
    return result
