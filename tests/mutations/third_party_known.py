"""Mutations of other compilers' kernels that nothing notices, and why that is as it should be."""

from __future__ import annotations

from .known import Unnoticed
from .mutation import Mutation
from .third_party import KERNELS

EVERYWHERE = tuple(KERNELS)
TMA = "triton/matmul_host_maps_128-sm_90a"
RING = "triton/gluon_wgmma_ring-sm_90a"
ROLES = "triton/gluon_warp_specialized-sm_90a"
MULTICAST = "triton/gluon_multicast-sm_90a"
SUM = "triton/gluon_cluster_sum-sm_90a"
TCGEN05 = "triton/gluon_tcgen05-sm_100a"
TCGEN05_ROLES = "triton/gluon_tcgen05_roles-sm_100a"
PAIRS = "triton/gluon_two_ctas-sm_100a"
CANCEL = "triton/gluon_clc-sm_100a"
MATMUL = "triton/matmul_bias_relu-sm_80"
ATTENTION = "triton/attention-sm_80"
PERSISTENT = "triton/matmul_persistent-sm_90a"
COPIES = "nvcc/async_copy_ring-sm_80"
NAMED_BARRIERS = "nvcc/warp_roles-sm_90a"
GROUPED = "triton/matmul_grouped_maps-sm_90a"
MAPS, CLUSTER_MAP = "nvcc/tensor_maps-sm_90a", "nvcc/map_in_cluster-sm_90a"
REUSED = "nvcc/barrier_bytes-sm_90a"
BULK, TILE, CLUSTER_RING = "nvcc/bulk_copies-sm_90a", "nvcc/tma_tile-sm_90a", "nvcc/cluster_ring-sm_90a"

UNNOTICED = (
    Unnoticed(
        r".*: bar\.warp: removed",
        (ROLES, TCGEN05_ROLES),
        True,
        "every lane has waited on the mbarrier itself, and what follows is one elected lane's: nothing passes between "
        "the lanes",
    ),
    Unnoticed(
        r"line (206|269): bar: removed",
        (COPIES,),
        True,
        "this launch copies nothing more into the memory that was read before it",
    ),
    Unnoticed(
        r"line 68: fence\.proxy\.async: (removed|an ordinary fence instead|behind the barrier)",
        (CANCEL,),
        True,
        "before the fence stand only reads of the last response: between a read and a later asynchronous write a "
        "barrier is enough in practice ([what counts as order](emulator.md#what-counts-as-order))",
    ),
    Unnoticed(
        r".*: bar: removed",
        (TMA, GROUPED, RING, MULTICAST, TCGEN05, PAIRS, CANCEL),
        True,
        "Triton puts a barrier between any two mbarrier operations: one elected thread performs both, every thread "
        "waits on the mbarrier itself, or the next barrier on the path gives the same order",
    ),
    Unnoticed(
        r"line 61: bar: removed",
        (TCGEN05_ROLES,),
        True,
        "it protects the word with the tensor memory address, which no thread writes a second time",
    ),
    Unnoticed(
        r"line 398: barrier: removed|line 63: bar: removed",
        (TCGEN05, REUSED),
        True,
        "two barriers stand one behind the other",
    ),
    Unnoticed(
        r"line 350: bar: removed",
        (PERSISTENT,),
        True,
        "all warps have waited for the wgmma before it. A wgmma is one operation of four warps to the emulator: "
        "a thread that waits for it knows that all quarters are done",
    ),
    Unnoticed(
        r"line 314: bar: removed",
        (ROLES,),
        True,
        "a wgmma is one operation of four warps to the emulator: the warp that releases the stage has waited for it",
    ),
    Unnoticed(
        r"line (100|126|577): cp\.async\.commit_group: removed",
        (MATMUL, ATTENTION),
        True,
        "the copies join the next group, and every wait that covers the one covers the other",
    ),
    Unnoticed(
        r"line (249|331|332): cp\.async\.wait_group: .*|line 250: bar: removed",
        (MATMUL,),
        True,
        "lines 331 to 333 repeat the wait and the barrier, with no group committed in between",
    ),
    Unnoticed(
        r"line 550: wgmma\.wait_group: (removed|one group weaker)",
        (GROUPED,),
        True,
        "two k-blocks in a ring of two stages: the loop fills no stage again, and behind it stands a wait for all",
    ),
    Unnoticed(
        r"line (630|453): cp\.async\.wait_group: .*|line (631|454): bar: removed",
        (ATTENTION, PERSISTENT),
        True,
        "behind the loop no thread touches the copies' memory any more",
    ),
    Unnoticed(
        r".*: fence\.proxy\.async: behind the barrier",
        (PERSISTENT, TMA, GROUPED, RING, TCGEN05, TCGEN05_ROLES, BULK, TILE, REUSED),
        True,
        "those who start the asynchronous operation execute the fence as well, and a proxy fence may stand anywhere on "
        "the path from the writes to it (PTX ISA, proxy-preserved base causality order)",
    ),
    Unnoticed(
        r".*: fence\.mbarrier_init\.release\.cluster: removed",
        (BULK, TILE, MAPS, CLUSTER_MAP, REUSED),
        True,
        "only threads of the own CTA use the mbarrier, and `bar.sync` publishes it to them",
    ),
    Unnoticed(
        r".*: cp\.async\.bulk\.wait_group: only the reads",
        (TMA, GROUPED, BULK, TILE),
        True,
        "shared memory must outlive the reads of a bulk store; its writes are complete when the grid is",
    ),
    Unnoticed(
        r"line (357|386): cp\.async\.bulk\.tensor\.2d\.global: doubled",
        (GROUPED, TCGEN05_ROLES),
        True,
        "the same bytes are stored twice: stores that change nothing race with no other store",
    ),
    Unnoticed(
        r".*: (wgmma\.mma_async|tcgen05\.mma.*): [AB]: leading byte offset 16 more",
        (PERSISTENT, TMA, GROUPED, RING, ROLES, TCGEN05, TCGEN05_ROLES, PAIRS),
        True,
        "an operand that is one swizzle span wide has no leading byte offset (PTX ISA, wgmma, strides)",
    ),
    Unnoticed(
        r".*: wgmma\.mma_async: always accumulates",
        (PERSISTENT, TMA, GROUPED, RING, ROLES),
        True,
        "the accumulators are zero at the start",
    ),
    Unnoticed(
        r".*: tcgen05\.mma.*: (doubled|never accumulates)",
        (TCGEN05, TCGEN05_ROLES, PAIRS),
        True,
        "the first multiplication of a sum overwrites the accumulators, once or twice",
    ),
    Unnoticed(
        r".*: tcgen05\.mma.*: exchanged with the one before",
        (TCGEN05, TCGEN05_ROLES, PAIRS),
        True,
        "the sum of the two products is the same: here the emulator must notice nothing, and the result be right",
    ),
    Unnoticed(
        r"line (98|214): cp\.async\.bulk\.tensor.*: coordinates swapped",
        (TMA, MAPS),
        True,
        "both coordinates are 0: this launch has one row of tiles, or a map a tile",
    ),
    Unnoticed(
        r"line (461|394|668): barrier: removed",
        (ROLES, TCGEN05_ROLES),
        True,
        "the last meeting of the roles: all results have passed through mbarriers, and threads that have exited count "
        "as arrived",
    ),
    Unnoticed(
        r"line (500|501|580|581): barrier: .*|line 670: tcgen05\.dealloc.*: removed|line 227: bar\.arrive: .*",
        (ROLES, TCGEN05_ROLES, NAMED_BARRIERS),
        True,
        "the launch does not execute it: code for roles that the kernel does not have, or of a remainder",
    ),
    Unnoticed(
        r"line 110: mbarrier\.init: count one too high",
        (TCGEN05_ROLES,),
        True,
        "five k-blocks in a ring of three stages: no thread waits for the third stage to be empty",
    ),
    Unnoticed(
        r"line 53: barrier\.cluster\.arrive: (relaxed|removed with its wait)",
        (PAIRS,),
        True,
        "nothing stands before it, and the second cluster barrier orders the initialisation",
    ),
    Unnoticed(
        r"line (109|123|127|159): barrier\.cluster\.arrive: relaxed",
        (CLUSTER_RING, SUM, MULTICAST, CLUSTER_MAP),
        True,
        "the last cluster barrier keeps CTAs alive while peers reach them; no data passes through it",
    ),
    Unnoticed(
        r"line (109|127): barrier\.cluster\.arrive: removed with its wait"
        r"|line (110|128): barrier\.cluster\.wait: removed",
        (CLUSTER_RING, MULTICAST),
        True,
        "each CTA has waited for the bytes that come from its peer, and no CTA reaches it afterwards",
    ),
    Unnoticed(
        r"line (159|160): barrier\.cluster\.(arrive: removed with its wait|wait: removed)",
        (CLUSTER_MAP,),
        True,
        "no CTA reaches the other's shared memory: the cluster need not meet at its end",
    ),
    Unnoticed(
        r"line 100: barrier\.cluster\.arrive: relaxed",
        (CLUSTER_MAP,),
        True,
        "the release of the fused copy in front of it publishes the map: an arrival behind a release needs none itself",
    ),
    Unnoticed(
        r".*tensormap.*: scope \.cta",
        (GROUPED,),
        True,
        "each CTA makes its own maps and acquires them itself: the scope of a CTA is enough",
    ),
    Unnoticed(
        r"line (112|113|240|241|295|296): cp\.async\.bulk\.(commit_group|wait_group\.read): .*",
        (GROUPED,),
        True,
        "Triton puts them behind each acquire, where no store of this kernel is under way",
    ),
)


def explanation(kernel: str, mutation: Mutation) -> Unnoticed | None:
    """Why a mutation goes unnoticed; None where it must not."""
    return next((entry for entry in UNNOTICED if entry.covers(kernel, mutation)), None)
