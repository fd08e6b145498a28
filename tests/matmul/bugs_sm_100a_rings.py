"""Bugs of the ring of inputs, of the claims of further tiles, and of the cluster's barrier."""

from __future__ import annotations

from tests.matmul.broken_sm_100a import (
    Broken,
    Change,
    Edits,
    branches,
    every,
    half,
    hoisted,
    masked,
    moved,
    no_throttle,
    not_waiting,
    one,
    operand,
    removed,
    replaced,
    spelled,
    waits_removed,
    without,
)
from tests.matmul.matmul_reports import at, phase, stuck, unwaited
from tests.mutations.mutation import Edit, instead
from tests.mutations.statements import Program

LOADS, EXPECTS = "cp.async.bulk.tensor", "mbarrier.arrive.expect_tx"


def _expected_by_both(program: Program) -> Edits:
    expect = one(program, "load", EXPECTS)
    return without([s for s in branches(program, "load") if s.index < expect.index][-1])


def _end_too_early(program: Program) -> Edits:
    return not_waiting(every(program, "load", "mbarrier.try_wait", "inputs.empty")[-1])


def _released_before_last_mma(program: Program) -> Edits:
    last = every(program, "mma", "tcgen05.mma")[-1]
    return moved(last, one(program, "mma", "tcgen05.commit", "inputs.empty"))


def _to_leader_only(program: Program) -> Edits:
    s = one(program, "mma", "tcgen05.commit", "inputs.empty")
    return instead(s, s.written(s.opcode.replace(".multicast::cluster", ""), s.operands[:1]))


def _guard_removed(role: str) -> Change:
    """The branch behind the election: which of the CTAs do a role's work."""
    return lambda program: without(branches(program, role)[1])


def _every_lane(program: Program) -> Edits:
    s = one(program, "mma", "elect.sync")
    predicate = s.operands[0].split("|")[1]
    return (Edit(s.end, s.end, f" setp.eq.u32 {predicate}, 0, 0;"),)


def _slot_released_before_read(program: Program) -> Edits:
    arrive = one(program, "mma", "mbarrier.arrive", "clc.empty")
    return hoisted(program, (arrive,), one(program, "mma", "ld.shared.b128"))


def _asks_after_refusal(program: Program) -> Edits:
    loop = [s for s in every(program, "scheduler", "bra") if program.jumps_back(s)][-1]
    return (*instead(loop, loop.written(guard="")), *no_throttle(program))


def _told_to_one(program: Program) -> Edits:
    s = one(program, "scheduler", "clusterlaunchcontrol.try_cancel")
    return instead(s, s.written(s.opcode.replace(".multicast::cluster::all", "")))


def _not_meeting(number: int) -> Change:
    """Without the cluster's barrier at the start (0) or at the end (-1)."""

    def change(program: Program) -> Edits:
        return without(*(every(program, "setup", f"barrier.cluster.{what}")[number] for what in ("arrive", "wait")))

    return change


BUGS_RINGS: tuple[Broken, ...] = (
    # The ring of inputs.
    Broken(
        "bytes of one CTA expected for the pair",
        "pair",
        operand("load", EXPECTS, 2, half),
        "barrier",
        phase("inputs.full", r"all arrivals of phase 0 are in, but \d+ bytes arrived and only 20480 were expected"),
        at("load"),
    ),
    Broken(
        "16 bytes too few expected",
        "one CTA",
        operand("load", EXPECTS, 2, lambda n: str(int(n) - 16)),
        "barrier",
        phase("inputs.full", "all arrivals of phase 0 are in, but 24576 bytes arrived and only 24560 were expected"),
        "expect_tx is 16 bytes short",
        at("load"),
    ),
    Broken(
        "bytes expected by both CTAs of a pair",
        "pair",
        _expected_by_both,
        "memory",
        r"an access with .shared::cta to inputs.full\[\d\] of CTA 0, from CTA 1",
        at("load"),
    ),
    Broken(
        "bytes counted on the CTA's own barrier",
        "pair",
        replaced("load", "and.b32", str(0xFEFF_FFFF), str(0xFFFF_FFFF)),
        "deadlock",
        stuck("mma", "inputs.full"),
        "needs 20480 of 40960 bytes",
    ),
    Broken(
        "a copy that is not the pair's",
        "pair",
        spelled("load", LOADS, ".cta_group::2", ""),
        "protocol",
        "the mbarrier of a copy to CTA 1 lies in CTA 0",
        "with .cta_group::2 in its peer",
        at("load"),
    ),
    Broken(
        "a stage not awaited",
        "pair",
        waits_removed("mma", "inputs.full"),
        "barrier",
        phase("inputs.full", "an arrival too many: all 1 of phase 0 are in"),
        unwaited("mma", "inputs.full"),
    ),
    Broken(
        "a stage filled again too early",
        "pair",
        waits_removed("load", "inputs.empty"),
        "barrier",
        phase("inputs.full", "an arrival too many: all 1 of phase 0 are in"),
        at("load"),
    ),
    Broken(
        "the end before the last stages have been given back",
        "cluster 2x1",
        _end_too_early,
        "protocol",
        "a CTA ends before any of its threads has seen a tcgen05.commit of another CTA arrive on an mbarrier",
        r"committed by role mma .*: tcgen05\.commit.*multicast::cluster",
        r"inputs\.empty\[\d\] of CTA \d",
    ),
    Broken(
        "the end before a single CTA's last stages have been given back",
        "one CTA",
        _end_too_early,
        "protocol",
        "a CTA ends before any of its threads has seen a tcgen05.commit arrive on an mbarrier",
        r"inputs\.empty\[\d\] of CTA 0",
    ),
    Broken(
        "a stage given back before its last instruction",
        "one CTA",
        _released_before_last_mma,
        "race",
        r"race: inputs\.[ab]\[\d\]\+0x60",
        unwaited("mma", "inputs.full"),
    ),
    Broken(
        "a stage never given back",
        "cluster 2x2",
        removed("mma", "tcgen05.commit", "inputs.empty"),
        "deadlock",
        stuck("load", "inputs.empty"),
        "needs 2 of 2 arrivals",
        "no thread has ever arrived",
    ),
    Broken(
        "a stage given back to the leader only",
        "pair",
        _to_leader_only,
        "deadlock",
        stuck("load", "inputs.empty"),
        stuck("mma", "inputs.full"),
    ),
    Broken(
        "a stage given back to one pair of two",
        "cluster 2x2",
        masked("mma", "tcgen05.commit", 1, "and.b16 3", barrier="inputs.empty"),
        "deadlock",
        stuck("load", "inputs.empty"),
        "needs [12] of 2 arrivals",
    ),
    Broken(
        "A sent to one CTA of two",
        "cluster 2x2",
        masked("load", LOADS, 3, "and.b16 3"),
        "deadlock",
        stuck("mma", "inputs.full"),
        stuck("load", "inputs.empty"),
    ),
    Broken(
        "A sent to the other row",
        "cluster 2x2",
        masked("load", LOADS, 3, "xor.b16 15"),
        "wrong result",
        "elements are wrong",
    ),
    Broken(
        "both CTAs of a pair multiply",
        "pair",
        _guard_removed("mma"),
        "deadlock",
        stuck("mma", "inputs.full"),
        "no thread has ever arrived",
    ),
    Broken(
        "every lane multiplies",
        "one CTA",
        _every_lane,
        "protocol",
        "tcgen05.mma is executed by 32 lanes, and each of them issues it",
        at("mma"),
    ),
    # The claims of further tiles.
    Broken(
        "a claim read before it is there",
        "pair",
        waits_removed("load", "clc.full"),
        "race",
        r"race: clc\.response\[\d\]",
        unwaited("load", "clc.full"),
    ),
    Broken(
        "a slot given back before it is read",
        "deep",
        _slot_released_before_read,
        "race",
        r"race: clc\.response\[\d\]",
        "read by role mma",
        "write by cluster launch control issued by role scheduler",
        r"missing edge: .*clc\.empty\[\d\] phase \d",
    ),
    Broken(
        "a slot never given back",
        "pair",
        removed("mma", "mbarrier.arrive", "clc.empty"),
        "deadlock",
        stuck("scheduler", "clc.empty"),
        "needs 1 of 12 arrivals",
    ),
    Broken(
        "a slot asked for before it is free",
        "pair",
        waits_removed("scheduler", "clc.empty"),
        "race",
        r"race: clc\.response\[\d\]",
        unwaited("scheduler", "clc.empty"),
    ),
    Broken(
        "no claim expected in the peer",
        "pair",
        removed("scheduler", EXPECTS, number=1),
        "deadlock",
        stuck("epilogue", "clc.full"),
        "an expect_tx for 16 bytes that arrived unannounced",
    ),
    Broken(
        "a claim told to one CTA of the cluster",
        "pair",
        _told_to_one,
        "deadlock",
        stuck("epilogue", "clc.full"),
        "needs 16 of 16 bytes",
    ),
    Broken(
        "8 bytes of a claim expected",
        "one CTA",
        operand("scheduler", EXPECTS, 2, lambda n: "8"),
        "barrier",
        phase("clc.full", "all arrivals of phase 0 are in, but 16 bytes arrived and only 8 were expected"),
        at("scheduler"),
    ),
    Broken(
        "asking after a refusal",
        "one CTA",
        _asks_after_refusal,
        "protocol",
        "try_cancel after this warp has seen a request fail",
        at("scheduler"),
    ),
    Broken(
        "every CTA of the cluster asks",
        "pair",
        _guard_removed("scheduler"),
        "deadlock",
        stuck("scheduler", "clc.began"),
        "no thread has ever arrived",
    ),
    # The grid ahead.
    Broken(
        "no wait for the grid ahead",
        "pair",
        removed("setup", "griddepcontrol.wait"),
        "race",
        "use by the grid ahead, which is not over before griddepcontrol.wait",
        r"missing edge: no griddepcontrol.wait by role load \(warp 5\)",
    ),
    # The cluster's barrier.
    Broken(
        "no cluster barrier at the end",
        "pair",
        _not_meeting(-1),
        "memory",
        "column 0 has been deallocated",
        "write by role mma .* tcgen05.dealloc",
        at("mma"),
    ),
    Broken(
        "no cluster barrier at the start",
        "pair",
        _not_meeting(0),
        "barrier",
        r"no mbarrier has been initialised at \w+, inputs\.full\[0\] of CTA 0",
        "before both have passed a cluster barrier",
        at("load"),
    ),
)
