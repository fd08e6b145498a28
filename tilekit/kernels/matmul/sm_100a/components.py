"""The components that a Blackwell matmul has of its own: tcgen05 into tensor memory, read by an epilogue role."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Writer
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul import copy_engine
from tilekit.kernels.matmul.output import FIRST_NAMED_BARRIER
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.accumulators import Accumulators
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.sync import SyncStrategy

if TYPE_CHECKING:
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
    from tilekit.tiles.cluster import Cluster

SCHEDULES_FIRST = False
COPIES_GROUPS = False

load = copy_engine.load
loaders = copy_engine.loaders


def sync(
    w: Writer,
    spec: MatmulSpec,
    config: BlackwellConfig,
    plan: WarpPlan,
    cluster: Cluster,
    stages: int,
) -> SyncStrategy:
    """The tensor core gives stages back; where threads read tiles of theirs, these do, too."""
    readers = (plan["epilogue"],) if spec.staged_factors else ()
    return copy_engine.ring_sync(w, spec, config, plan, cluster, stages, released_by="commit", readers=readers)


def check(spec: MatmulSpec, target: Target) -> None:
    """Raise `ArgumentError` for promoted sums, and for operands that TMA refuses."""
    if spec.promoted and not spec.own_sums:
        raise ArgumentError(
            f"accumulation='promoted' on {target.name}: it makes up for the tensor core of sm_90a, which keeps "
            f"13 bits of a sum of 8-bit products; {target.name} adds in tensor memory, nearest: 'fast'",
            code="TK-MM-027",
        )
    for name, load in zip("ab", spec.loads, strict=True):
        if load != "tma" and not spec.own_loaders:
            raise ArgumentError(
                f"{name} has an address or pitches that are multiples of {load} bytes only, or rows that share one "
                f"place (stride 0): on {target.name} operands are loaded by TMA, which needs multiples of 16, and rows "
                "apart. Copy it into an array whose rows are padded to a multiple of 16 bytes, and pass the view of "
                "the part you need",
                code="TK-MM-013",
            )


def accumulators(
    w: Writer,
    op: Tcgen05,
    spec: MatmulSpec,
    config: BlackwellConfig,
    plan: WarpPlan,
    cluster: Cluster,
    tiles: dict[str, SharedArray],
    inputs: TilePipeline | None,
) -> Accumulators:
    """Tensor memory, between the role that multiplies and the one that stores."""
    mma, epilogue = plan["mma"], plan["epilogue"]
    memory = TensorMemory(
        w,
        capacity=w.target.tensor_columns,
        allocates=mma,
        others=(epilogue,),
        cluster=cluster,
        barrier=FIRST_NAMED_BARRIER + 1,
    )
    make = spec.accumulators(TensorAccumulators, w, op, config.swap_ab, tiles)
    if spec.whole:
        make = partial(make, whole=config.keeps_whole(spec))
    if spec.staged_factors:
        make = partial(make, inputs=inputs)
    made: Accumulators = make(w, memory, op, stages=config.accumulator_stages, mma=mma, epilogue=epilogue)
    op.claim(memory, mma)
    return made
