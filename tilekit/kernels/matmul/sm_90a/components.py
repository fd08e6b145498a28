"""The components that a Hopper matmul has of its own: wgmma into registers, stored by the warps that multiply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Writer
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.accumulators import Accumulators
from tilekit.tile_op.register_accumulators import PromotedAccumulators, RegisterAccumulators
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tile_pipeline.mbarrier_sync import ReleasedBy

if TYPE_CHECKING:
    from tilekit.drivers.warp_plan import WarpPlan
    from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
    from tilekit.tiles.cluster import Cluster

SCHEDULES_FIRST = True

RELEASED_BY: ReleasedBy = "threads"
"""Consumers release what they have read."""


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
) -> Accumulators:
    """Registers, twice where the sums of k-blocks are added to others."""
    kind = PromotedAccumulators if spec.promoted else RegisterAccumulators
    made: Accumulators = spec.accumulators(kind, w, op, config.swap_ab, tiles)(op)
    return made
