"""Mutations that nothing notices, and why that is as it should be, or not yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .mutation import Mutation

SINGLE, CLUSTER, DIRECT, PINGPONG = "two consumers", "cluster 2x1", "direct, cluster 1x2", "pingpong"
LAYERED, STREAMED = "sum in a cluster", "streamed"
EVERYWHERE = (SINGLE, CLUSTER, DIRECT, PINGPONG, LAYERED, STREAMED)


ORDER = (
    *("wait", "arrive", "expect_tx", "init", "fence", "wgmma", "group", "barrier", "cluster"),
    *("ring", "elect", "registers"),
)
"""Families about order and protocol: the emulator must say what is wrong, whatever the result is."""


@dataclass(frozen=True)
class Unnoticed:
    """Mutations that neither a report nor the result shows.

    Attributes
    ----------
    pattern
        Of their names, as a regular expression.
    launches
        Where they go unnoticed.
    harmless
        Whether the mutated kernel is still right; otherwise the emulator has a gap.
    why
        The reason.
    """

    pattern: str
    launches: tuple[str, ...]
    harmless: bool
    why: str

    def covers(self, launch: str, mutation: Mutation) -> bool:
        """Whether this is about a mutation of a launch."""
        return launch in self.launches and re.fullmatch(self.pattern, mutation.name) is not None


UNNOTICED = (
    Unnoticed(
        r"(?!mma BoundDsmemReduction).*: bar\.warp( #\d)?: removed",
        EVERYWHERE,
        True,
        "nothing passes between the lanes before the next barrier, and at the end of a branch they run together again: "
        "PTX does not promise that, but nvcc relies on it and puts `bar.sync` right behind a branch of one lane",
    ),
    Unnoticed(
        r"mma BoundTmaStorer\.store: cp\.async\.bulk\.tensor\.2d\.global( #\d)?: doubled",
        (SINGLE, CLUSTER, PINGPONG, LAYERED, STREAMED),
        True,
        "the same bytes are stored twice: stores that change nothing race with no other store",
    ),
    Unnoticed(
        r".*setmaxnreg\.inc: removed",
        EVERYWHERE,
        False,
        "PTX has virtual registers: how many a role needs is known to ptxas only, which refuses a kernel that needs "
        "more",
    ),
    Unnoticed(
        r".*fence\.mbarrier_init\.release\.cluster: removed",
        EVERYWHERE,
        True,
        "the barrier that follows has release semantics and publishes the initialised barriers too; the fence is there "
        "for a relaxed one (removing it and relaxing the barrier is caught)",
    ),
    Unnoticed(
        r"mma BoundStagedEpilogue\._leave: fence\.proxy\.async( #\d)?: behind the barrier",
        (SINGLE, CLUSTER, PINGPONG, LAYERED, STREAMED),
        True,
        "the thread that starts the copy executes the fence as well, and a proxy fence may stand anywhere on the path "
        "from the writes to the copy (PTX ISA, proxy-preserved base causality order)",
    ),
    Unnoticed(
        r".*Cluster\.sync: barrier\.cluster\.arrive\.release: relaxed",
        (CLUSTER, DIRECT, LAYERED),
        True,
        "`fence.mbarrier_init` before it publishes all that must be published there",
    ),
    Unnoticed(
        r".*Cluster\.sync: barrier\.cluster\.arrive\.release #2: relaxed",
        (CLUSTER, DIRECT, LAYERED),
        True,
        "the last cluster barrier keeps CTAs alive while peers reach them; no data passes through it",
    ),
    Unnoticed(
        r"mma BoundWgmma\.wait: wgmma\.wait_group #2: (removed|one group weaker)",
        (SINGLE,),
        True,
        "with `in_flight=0` every k-block has waited for its group already",
    ),
    Unnoticed(
        r"mma (BoundStagedEpilogue\.(_claim|store|_leave)|BoundWorkspace\.meet): bar( #\d)?: barrier 0",
        (CLUSTER, LAYERED, STREAMED),
        True,
        "no other role uses barrier 0 there: with one consumer warpgroup any number will do (with two it is caught)",
    ),
    Unnoticed(
        r"mma BoundStagedEpilogue\.(store: bra|(_claim|finish): bra( #\d)?): never taken",
        (SINGLE, CLUSTER, PINGPONG, LAYERED, STREAMED),
        True,
        "threads without bulk stores of their own wait for nothing",
    ),
    Unnoticed(
        r"(load|mma) (StaticScheduler\.tiles|WarpSpecialized\._load|WarpSpecialized\._multiply): bra: never taken",
        EVERYWHERE,
        True,
        "it skips loops of zero iterations, and these launches have none",
    ),
    Unnoticed(
        r"mma Consumer\._awaited: bra: never taken",
        (CLUSTER, DIRECT, LAYERED, STREAMED),
        True,
        "a stage that is known to be full is waited for all the same",
    ),
    Unnoticed(
        r"mma Slot\.take: bra: never taken",
        (STREAMED,),
        False,
        "every thread says that the share is kept, when all have kept theirs; only one that says so after the reader "
        "has set the counter back leaves it wrong, for the next launch, and few schedules have one",
    ),
    Unnoticed(
        r"mma _Storing\._tile: bra: always taken",
        EVERYWHERE,
        True,
        "it clears the accumulators of an empty sum (K = 0), and these launches have none",
    ),
    Unnoticed(
        r"setup trace_roles: bra: never taken",
        EVERYWHERE,
        True,
        "the other warps enter the load role, whose own test of the warp sends them on",
    ),
    Unnoticed(
        r"mma BoundFixup\._add_others: setp\.lt: one iteration fewer",
        (STREAMED,),
        True,
        "where ranges are longer than a tile, none has more than one other share, and the loop runs once",
    ),
    Unnoticed(
        r"mma ArriveConsumer\.consumer_release: mbarrier\.arrive #2: guard dropped",
        (CLUSTER, DIRECT),
        True,
        "a stage is always owed at the end of a tile unless K = 0",
    ),
    Unnoticed(
        r"mma ArriveConsumer\.consumer_release: mbarrier\.arrive #2: guard inverted",
        (PINGPONG, LAYERED),
        True,
        "31 lanes of each of four warps complete 31 phases of a barrier of four: an odd number, so that it looks as "
        "after one",
    ),
    Unnoticed(
        r"mma BoundWgmma\._issue: wgmma\.mma_async( #\d)?: [AB]: leading byte offset 16 more",
        EVERYWHERE,
        True,
        "a K-major operand whose rows are one swizzle span has no leading byte offset (PTX ISA, wgmma, strides)",
    ),
    Unnoticed(
        r"host: k: one more",
        EVERYWHERE,
        True,
        "the copy engine fills what lies beyond K with zeros",
    ),
    Unnoticed(
        r"host: tile_count: one more",
        (DIRECT, PINGPONG, LAYERED),
        True,
        "the tile lies below the last row, where every store is predicated off or clipped",
    ),
)


def explanation(launch: str, mutation: Mutation) -> Unnoticed | None:
    """Why a mutation goes unnoticed; None where it must not."""
    return next((entry for entry in UNNOTICED if entry.covers(launch, mutation)), None)
