"""The components that a Hopper matmul has of its own: wgmma into registers, stored by the warps that multiply."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Writer
from tilekit.kernels.matmul import copy_engine
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.accumulators import Accumulators
from tilekit.tile_op.register_accumulators import PromotedAccumulators, RegisterAccumulators
from tilekit.tile_op.wgmma import Wgmma

if TYPE_CHECKING:
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
    from tilekit.tile_pipeline.ring import TilePipeline
    from tilekit.tiles.cluster import Cluster

SCHEDULES_FIRST = True
COPIES_GROUPS = False

load = copy_engine.load
loaders = copy_engine.loaders
sync = partial(copy_engine.ring_sync, released_by="threads")  # consumers release what they have read


def check(spec: MatmulSpec, target: Target) -> None:
    """Every spec whose operands the instruction reads."""


def accumulators(
    w: Writer,
    op: Wgmma,
    spec: MatmulSpec,
    config: MatmulConfig,
    plan: WarpPlan,
    cluster: Cluster,
    tiles: dict[str, SharedArray],
    inputs: TilePipeline | None,
) -> Accumulators:
    """Registers, twice where the sums of k-blocks are added to others."""
    if spec.whole:
        return RegisterAccumulators(op, whole=config.keeps_whole(spec))
    kind = PromotedAccumulators if spec.promoted else RegisterAccumulators
    made: Accumulators = spec.accumulators(kind, w, op, config.swap_ab, tiles)(op)
    return made
