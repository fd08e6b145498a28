"""What ends with a CTA: shared memory and mbarriers, which peers and asynchronous units may still be about to reach.

A CTA's shared memory lives as long as the CTA, and a thread that reaches a peer's must make sure that it has not exited
before that is complete (PTX ISA, "Memory hierarchy" and "Cluster of cooperative thread arrays"). So what others do to a
CTA must be ordered before its end: some thread of it has learnt, or has met at a cluster barrier who knew, that it is
complete. Whether it happens to be complete in one order of events decides nothing.

The arrival of a ``tcgen05.commit`` is known through the phase it falls into and in no other way: commits form no pair
of pipelined instructions (PTX ISA, "tcgen05 memory consistency model"), so a later one's phase tells that the matrix
instructions are done and not that the earlier arrival is. docs/hardware-facts.md says what follows from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilekit.emulator.core.checks.agents import lane_identity
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.errors import Actor, InstructionLike, ProtocolError, Where, describe

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp
    from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

__all__ = ["Visit", "arrivals_unseen", "check_visits", "left_in_a_phase", "visit", "visited"]


@dataclass(slots=True)
class Visit:
    """Something that another CTA or an asynchronous unit does to a CTA.

    Attributes
    ----------
    identity, epoch
        What a clock says once it is known to be complete.
    what
        In the reader's words, such as `a copy into its shared memory`.
    kernel, actor, instruction
        Where it comes from.
    barrier, phase
        For an arrival of a peer's thread: where, and the phase that it counts in, which tells of it as well.
    """

    identity: int
    epoch: int
    what: str
    kernel: str
    actor: Actor
    instruction: InstructionLike
    barrier: Mbarrier | None = None
    phase: int = 0

    def fault(self, rank: int) -> ProtocolError:
        """The error when CTA `rank` may have exited before."""
        return too_late(rank, self.what).at(Where(self.kernel, self.actor, self.instruction))


def too_late(rank: int, what: str) -> ProtocolError:
    """The error when a CTA ends, or may end, before something that reaches it is complete."""
    return ProtocolError(
        f"CTA {rank} exited before {what} was complete",
        hint="whether it is in time is luck: before its end a CTA must wait for all that reaches its memory, or meet "
        "those who have at a cluster barrier",
    )


def ended(cta: Cta, what: str) -> bool:
    """Whether a CTA that is reached now has ended: where order is checked that has been noted.

    Raises
    ------
    ProtocolError
        If it has, and order is not checked.
    """
    if cta.live_warps:
        return False
    if cta.launch.order is None:
        raise too_late(cta.rank, what)
    return True


def visit(
    cta: Cta, warp: Warp, identity: int, epoch: int, what: str, barrier: Mbarrier | None = None, phase: int = 0
) -> None:
    """Note what `warp` does to `cta` from now on."""
    key = identity if barrier is None else (identity, barrier.address)
    made = cta.visits.get(key)
    if made is None:
        instruction = warp.program.code[warp.at].instruction
        made = Visit(identity, epoch, what, warp.program.name, warp.actor, instruction, barrier, phase)
        cta.visits[key] = made
    elif made.epoch != epoch or made.phase != phase:  # Rings make thousands: only the latest counts.
        made.epoch, made.what, made.actor, made.phase = epoch, what, warp.actor, phase
        made.instruction = warp.program.code[warp.at].instruction
    if not cta.live_warps and ended(cta, what):
        cta.launch.findings.late(made.fault(cta.rank))


def visited(cta: Cta, warp: Warp, what: str, barrier: Mbarrier | None = None, phase: int = 0) -> None:
    """Note what a warp of another CTA does to `cta` itself."""
    agent = warp.agent
    if agent is not None:
        agent.touch()
        visit(cta, warp, agent.identity, agent.epoch, what, barrier, phase)
    else:
        ended(cta, what)


def check_visits(warp: Warp) -> None:
    """Check, when the last warp of a CTA ends, that its end comes after all that reaches its memory."""
    cta = warp.cta
    if cta.live_warps:
        return
    known = [other.agent.clock for other in cta.warps if other.agent is not None]
    known += [sync.merged()[0] for sync in cta.met]
    for made in cta.visits.values():
        if not _ordered(made, known):
            cta.launch.findings.late(made.fault(cta.rank))
    if cta.launch.protocol:
        for barrier in cta.cluster.mbarriers:
            if barrier.address >> 24 == cta.rank:
                arrivals_unseen(cta, barrier, "a CTA ends")


def _ordered(made: Visit, known: list[dict[int, int]]) -> bool:
    if any(clock.get(made.identity, 0) >= made.epoch for clock in known):
        return True
    if made.barrier is not None and made.barrier.seen > made.phase:
        return True
    # One lane may have told of it for the lanes that took part.
    lanes = [lane_identity(made.identity, lane) for lane in range(32)]
    return any(clock.get(identity, 0) >= made.epoch for identity in lanes for clock in known)


def arrivals_unseen(cta: Cta, barrier: Mbarrier, end: str) -> None:
    """Note commits whose arrivals on a barrier no thread has waited for when the barrier ends.

    From a peer that is a finding: the machine stops a kernel that reaches a CTA which is gone. In a CTA of its own
    nothing is known to go wrong, and compilers leave so: a remark.
    """
    for actor, commit in barrier.commits.items():
        if commit.phase is not None and barrier.seen > commit.phase:
            continue
        peer = actor.cta != cta.rank
        launch = cta.launch
        note = launch.findings.add if peer else launch.findings.remark
        whose = "a tcgen05.commit of another CTA" if peer else "a tcgen05.commit"
        note(
            Finding(
                "protocol",
                f"{end} before any of its threads has seen {whose} arrive on an mbarrier",
                (
                    f"{barrier.name} of CTA {cta.rank}, in phase {barrier.phase}",
                    f"committed by {actor} of CTA {actor.cta} at {describe(commit.instruction)}",
                ),
                "wait for the last phase of every mbarrier that commits arrive on: a later commit's phase tells that "
                "the matrix instructions are done, not that this arrival is",
                Where(launch.program.name, actor, commit.instruction),
            )
        )


def left_in_a_phase(barrier: Mbarrier, kernel: str) -> Finding:
    """The finding for a barrier that ends in the middle of a phase: some have come to it, and it never completes."""
    came = barrier.expected - barrier.pending
    state = [f"{came} of {barrier.expected} arrivals have come"]
    if barrier.tx:
        bytes_missing = f"{barrier.tx} of {barrier.bytes_expected} bytes have not"
        state.append(bytes_missing if barrier.tx > 0 else f"{-barrier.tx} bytes arrived that nothing expected")
    first = barrier.initialised_by
    return Finding(
        "barrier",
        f"{barrier.name} is left in the middle of phase {barrier.phase}: {' and '.join(state)}",
        (
            f"initialised by {first.actor or 'a thread'} at {describe(first.instruction)}",
            *list(dict.fromkeys(barrier.history().splitlines()))[:4],
        ),
        "a phase completes with as many arrivals as mbarrier.init says, and as many bytes as were expected",
        Where(kernel, first.actor, first.instruction),
    )
