"""``bar``, ``barrier`` and ``barrier.cluster``: threads that meet (PTX ISA 9.7.13.1 to 9.7.13.4).

A waiting instruction is entered again when its warp wakes; the ticket it took on arrival tells it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.checks.deadlock import Meeting
from tilekit.emulator.core.errors import Actor, BarrierFault, describe

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Fragment, Warp
    from tilekit.emulator.ptx.language.syntax import Instruction

Mask = npt.NDArray[np.bool_]


class Rendezvous:
    """A barrier at which threads are counted: one of a CTA's sixteen (``bar``, ``barrier``), or the cluster's.

    Attributes
    ----------
    arrived, expected
        Threads that have come in this generation, and the number it needs (0 until one of them says).
    present, last
        Who came to this generation and to the one before, and at which instruction, for messages.
    sync
        What the threads of this generation learn from each other.
    came
        What those knew who came without releasing it: their memory is not ordered, but they are.
    whole
        Whether it waits for the CTA, however many warps are left of it, rather than for a number of threads.
    reduction
        Count, conjunction and disjunction of the predicates given to ``bar.red``.
    """

    __slots__ = (
        "arrived",
        "came",
        "expected",
        "generation",
        "last",
        "name",
        "present",
        "reduction",
        "results",
        "sync",
        "waiters",
        "whole",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.arrived = 0
        self.expected = 0
        self.whole = False
        self.present: list[tuple[Actor, Instruction]] = []
        self.last: list[tuple[Actor, Instruction]] = []
        self.sync = Sync(name)
        self.came = Sync(name)
        self.reduction = (0, True, False)
        self.results: dict[int, tuple[int, bool, bool]] = {}
        self.waiters: list[tuple[Warp, Fragment]] = []

    def complete(self) -> Sync:
        """Start the next generation; returns what the finished one carries."""
        finished = self.sync
        self.results = {self.generation: self.reduction}
        self.generation += 1
        self.arrived = self.expected = 0
        self.last, self.present = self.present, []
        self.sync = Sync(self.name)
        self.came = Sync(self.name)
        self.reduction = (0, True, False)
        return finished


class Barriers(dict[int, Rendezvous]):
    """The barriers of a CTA by number, each made when it is first used."""

    def __missing__(self, number: int) -> Rendezvous:
        made = self[number] = Rendezvous(f"bar {number}")
        return made


class Ticket:
    """A warp's arrival at a rendezvous that it still has to leave."""

    __slots__ = ("barrier", "came", "generation", "identity", "result", "sync", "waiters")
    polls = False

    def __init__(self, barrier: Rendezvous, identity: tuple[int, ...]) -> None:
        self.barrier = barrier
        self.generation = barrier.generation
        self.sync: Sync = barrier.sync
        self.came: Sync = barrier.came
        self.identity = identity
        self.waiters = barrier.waiters

    @property
    def passed(self) -> bool:
        """Whether all have come."""
        return self.barrier.generation != self.generation

    def describe(self) -> Meeting:
        """For the deadlock report."""
        barrier = self.barrier
        present = tuple(actor for actor, _ in barrier.present)
        return Meeting(barrier.name, self.identity, barrier.expected, barrier.arrived, present, tuple(barrier.last))


def _threads(warp: Warp, aligned: bool) -> int:
    """Threads that an arrival counts for: a warp's barrier count is that of a whole warp."""
    fragment = warp.fragment
    if aligned:
        return 32
    lanes = fragment.lanes
    return 32 if lanes == warp.live_threads else lanes


def _arrive(warp: Warp, number: int, threads: int, aligned: bool, what: str) -> Rendezvous:
    cta = warp.cta
    if not 0 <= number < 16:
        raise BarrierFault(f"{what}: barrier {number}; legal: 0 to 15", hint=f"use {min(max(number, 0), 15)}")
    barrier = cta.barriers[number]
    whole = threads == 0
    expected = threads or 32 * cta.live_warps
    if expected % 32:
        nearest = -(-expected // 32) * 32
        raise BarrierFault(f"{what}: {expected} threads; legal: a multiple of 32", hint=f"use {nearest}")
    if barrier.expected and barrier.expected != expected and not whole:
        raise BarrierFault(
            f"{what}: barrier {number} is used with {expected} threads here, but with {barrier.expected} by those who "
            "arrived before",
            hint="all who meet at a barrier must give the same count",
            table="\n".join(f"arrived: {actor} at {describe(instruction)}" for actor, instruction in barrier.present),
        )
    barrier.expected, barrier.whole = expected, whole
    barrier.arrived += _threads(warp, aligned)
    barrier.present.append((warp.actor, warp.program.instruction(warp.at)))
    hb = cta.launch.order
    if hb is not None:
        hb.release(warp.agent, barrier.sync)
    return barrier


def _complete_if_full(warp: Warp, barrier: Rendezvous) -> None:
    if barrier.arrived > barrier.expected:
        raise BarrierFault(
            f"{barrier.name}: {barrier.arrived} threads arrived, {barrier.expected} expected",
            hint="give a count that includes all who sync and all who arrive",
            table="\n".join(f"arrived: {actor} at {describe(instruction)}" for actor, instruction in barrier.present),
        )
    warp.cta.launch.machine.events += 1
    if barrier.arrived == barrier.expected:
        barrier.complete()
        warp.cta.launch.machine.wake(barrier.waiters)


def bar_sync(warp: Warp, number: int, threads: int, aligned: bool) -> bool:
    """``bar.sync``: arrive and wait; False while a thread is missing."""
    fragment = warp.fragment
    ticket = fragment.ticket
    if ticket is None:
        barrier = _arrive(warp, number, threads, aligned, "bar.sync")
        ticket = fragment.ticket = Ticket(barrier, (warp.cta.cluster.number, warp.cta.rank, number))
        _complete_if_full(warp, barrier)
    return _leave(warp, ticket)


def _leave(warp: Warp, ticket: Ticket) -> bool:
    fragment = warp.fragment
    if not ticket.passed:
        fragment.blocked = ticket
        ticket.waiters.append((warp, fragment))
        return False
    fragment.ticket = None
    hb = warp.cta.launch.order
    if hb is not None:
        hb.acquire(warp.agent, ticket.sync)
    return True


def bar_arrive(warp: Warp, number: int, threads: int, aligned: bool) -> None:
    """``bar.arrive``: count, and go on."""
    _complete_if_full(warp, _arrive(warp, number, threads, aligned, "bar.arrive"))


def bar_reduce(warp: Warp, number: int, threads: int, predicate: Mask, aligned: bool) -> tuple[int, bool, bool] | None:
    """``bar.red``: meet, and learn the count, conjunction and disjunction of all predicates; None while waiting."""
    fragment = warp.fragment
    ticket = fragment.ticket
    if ticket is None:
        barrier = _arrive(warp, number, threads, aligned, "bar.red")
        active = warp.live if fragment.mask is None else fragment.mask
        count, every, some = barrier.reduction
        votes = predicate[active]
        barrier.reduction = (count + int(votes.sum()), every and bool(votes.all()), some or bool(votes.any()))
        ticket = fragment.ticket = Ticket(barrier, (warp.cta.cluster.number, warp.cta.rank, number))
        _complete_if_full(warp, barrier)
    if not _leave(warp, ticket):
        return None
    left: Rendezvous = ticket.barrier
    return left.results[ticket.generation]


def warp_exits(warp: Warp) -> None:
    """A warp that has exited no longer counts for the barriers of the whole CTA and of the cluster."""
    cta = warp.cta
    for barrier in cta.barriers.values():
        if barrier.arrived and barrier.whole:
            barrier.expected -= 32
            _complete_if_full(warp, barrier)
    if cta.cluster.barrier.arrived:
        _complete_cluster(warp)


# -- clusters --------------------------------------------------------------------------------------------------------


def cluster_arrive(warp: Warp, release: bool) -> None:
    """``barrier.cluster.arrive``."""
    fragment = warp.fragment
    barrier = warp.cta.cluster.barrier
    if fragment.cluster_ticket is not None:
        raise BarrierFault(
            "barrier.cluster.arrive twice without a barrier.cluster.wait in between",
            hint="every thread alternates arrive and wait",
        )
    ticket = Ticket(barrier, (warp.cta.cluster.number,))
    hb = warp.cta.launch.order
    if hb is not None:
        hb.release(warp.agent, barrier.sync, relaxed=not release)
        if not release:
            barrier.came.add(warp.agent.snapshot())
    barrier.arrived += fragment.lanes
    barrier.present.append((warp.actor, warp.program.instruction(warp.at)))
    fragment.cluster_ticket = ticket
    warp.cta.launch.machine.events += 1
    _complete_cluster(warp)


def _complete_cluster(warp: Warp) -> None:
    cluster = warp.cta.cluster
    barrier = cluster.barrier
    barrier.expected = sum(w.live_threads for w in cluster.warps if not w.done)
    if barrier.arrived >= barrier.expected:
        barrier.complete()
        cluster.launch.machine.wake(barrier.waiters)


def cluster_wait(warp: Warp, acquire: bool) -> bool:
    """``barrier.cluster.wait``; False while a thread is missing."""
    fragment = warp.fragment
    ticket = fragment.cluster_ticket
    if ticket is None:
        raise BarrierFault(
            "barrier.cluster.wait without a barrier.cluster.arrive before it",
            hint="every thread alternates arrive and wait",
        )
    if not ticket.passed:
        fragment.blocked = ticket
        ticket.waiters.append((warp, fragment))
        return False
    fragment.cluster_ticket = None
    hb = warp.cta.launch.order
    if hb is not None and acquire:
        hb.acquire(warp.agent, ticket.sync)
    if ticket.came.releases and ticket.came not in warp.cta.met[-1:]:
        warp.cta.met.append(ticket.came)
    return True
