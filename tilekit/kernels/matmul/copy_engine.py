"""What chips with a copy engine have in common: operands loaded by TMA, or copied by threads, and mbarriers between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.kernels.matmul.memory import RING
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync, ReleasedBy
from tilekit.tile_pipeline.sync import SyncStrategy
from tilekit.tiles.call import Load, Matrix
from tilekit.tiles.cluster import Cluster

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import KernelConfig


def load(matrix: Matrix) -> Load:
    """As addresses and pitches allow."""
    return matrix.load


def loaders(
    w: Writer, spec: MatmulSpec, config: KernelConfig, plan: WarpPlan, cluster: Cluster, stages: int
) -> tuple[OperandLoader, OperandLoader]:
    """The spec's own, which share a cluster's fetches."""
    counts = cluster.share_a_count, cluster.share_b_count
    a, b = (
        spec.loader(
            operand,
            w,
            tile,
            copies,
            stages,
            participants=count,
            paired=config.cta_group > 1,
            policy=policy,
            l2_promotion=config.l2_promotion,
        )
        for operand, tile, copies, count, policy in zip(
            "ba" if config.swap_ab else "ab",
            config.operands(spec),
            config.copy_plans(spec),
            counts,
            config.l2_policies,
            strict=True,
        )
    )
    return a, b


def ring_sync(
    w: Writer,
    spec: MatmulSpec,
    config: KernelConfig,
    plan: WarpPlan,
    cluster: Cluster,
    stages: int,
    *,
    released_by: ReleasedBy,
    readers: tuple[Role, ...] = (),
) -> SyncStrategy:
    """Barriers on which copies count their bytes."""
    return MbarrierSync(
        w,
        RING,
        stages=stages,
        stage_bytes=config.engine_bytes(spec),
        producers=(plan["load"],),
        consumers=(plan["mma"],),
        cluster=cluster,
        filled_by="threads" if spec.copies else "engine",
        released_by=released_by,
        readers=readers,
    )
