"""A Blackwell matmul, its config and its components: tcgen05 into tensor memory, tiles claimed by free clusters."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.drivers.warp_specialized import WarpPlan, WarpSpecialized
from tilekit.dtypes import DType
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.errors import ConfigError
from tilekit.kernels.matmul.parts import FIRST_NAMED_BARRIER, Boxes, Output
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.operand import SPAN, OperandTile
from tilekit.tile_io.standard import StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.sync import CommitSync
from tilekit.tile_schedule.clc import ClcScheduler
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler

MAX_STAGES = 24
"""Stages beyond which a ring hides no more latency."""


@dataclass(frozen=True)
class BlackwellConfig:
    """One way to run a matmul on a chip with tensor memory.

    Attributes
    ----------
    tile
        Output rows and columns of a CTA. With pairs, an instruction computes twice the rows, and each CTA loads half
        of the columns of B.
    cta_group
        CTAs that a matrix instruction spans: 1, or 2 for CTA pairs.
    cluster
        CTAs of a cluster along M and N; pairs lie along M.
    k_group
        128-byte slices of K in a stage: more of them mean fewer barriers.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    accumulator_stages
        Accumulators in tensor memory: with 2 the next tile is multiplied while this one is stored.
    clc_stages
        Claims of further tiles in flight (cluster launch control); 0 for a static schedule.
    output_buffers
        Slabs of the CTA's rows by 128 bytes in flight on their way out.
    split_k
        CTAs that share a tile's sum, each with its range of K; added in turn through a workspace.
    raster_group
        Cluster rows walked together; ``None`` chooses by footprint.
    l2_promotion
        L2 fetch granularity of the input tensor maps.
    """

    tile: tuple[int, int] = (128, 256)
    cta_group: int = 2
    cluster: tuple[int, int] = (2, 1)
    k_group: int = 1
    stages: int | None = None
    accumulator_stages: int = 2
    clc_stages: int = 2
    output_buffers: int = 2
    split_k: int = 1
    raster_group: int | None = None
    l2_promotion: str | None = "256B"

    @property
    def claims_tiles(self) -> bool:
        """Whether the grid has a cluster for every tile, to be claimed by whoever is free."""
        return self.clc_stages > 0

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def k_block(self, dtype: DType) -> int:
        """Elements of K in a stage."""
        return self.k_group * SPAN // dtype.bytes

    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage, as one CTA holds them."""
        return (
            OperandTile("a", spec.a_dtype, self.tile[0], spec.a_major, self.k_group),
            OperandTile("b", spec.b_dtype, self.tile[1] // self.cta_group, spec.b_major, self.k_group),
        )

    def stage_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of one input stage."""
        return StandardPayload(*self.operands(spec)).stage_bytes

    def output_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of the epilogue."""
        if spec.store == "direct":
            return 0
        rows = Tcgen05(*self.operands(spec), group=self.cta_group).layout.rows
        slabs = self.output_buffers * (2 if spec.loads_residual else 1)
        return StagedEpilogue.shared_bytes(warpgroups=1, buffers=slabs, rows=rows)

    def fixed_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of everything but the input stages."""
        barriers = 16 * (self.accumulator_stages + (self.output_buffers if spec.loads_residual else 0))
        return self.output_bytes(spec) + barriers + 48 * self.clc_stages + 16

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the rest."""
        free = target.shared_bytes - self.fixed_bytes(spec)
        return max(0, min(MAX_STAGES, free // (self.stage_bytes(spec) + 16)))

    def resolved_stages(self, target: Target, spec: MatmulSpec) -> int:
        """The stage count a kernel is built with."""
        return self.stages if self.stages is not None else self.stage_budget(target, spec)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        return WarpPlan.tensor_memory(scheduler=self.claims_tiles, epilogue_loads=spec.loads_residual)

    def problems(self, target: Target | str, spec: MatmulSpec | None = None) -> list[str]:
        """Every rule this config violates on `target` for `spec` (default: bf16, K-major), each with the nearest value.

        Empty if the kernel can be built.
        """
        chip = target_named(target) if isinstance(target, str) else target
        return [] if chip.tensor_columns else [f"{chip.name} has no tensor memory"]

    def check(self, target: Target, spec: MatmulSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-MM-006")


def compose(w: Writer, spec: MatmulSpec, config: BlackwellConfig, target: Target) -> tuple[WarpSpecialized, Boxes]:
    """Declare the kernel's parameters and shared memory, and return its components."""
    plan = config.warps(target, spec)
    assert plan.epilogue is not None
    stages = config.resolved_stages(target, spec)
    cluster = ClusterPosition.read(w, *config.cluster, group=config.cta_group)

    a, b = config.operands(spec)
    payload = StandardPayload(a, b)
    op = Tcgen05(a, b, group=config.cta_group)
    paired = config.cta_group > 1
    load_a = TmaLoader(w, a, batched=spec.batched, sharers=cluster.share_a_count, paired=paired)
    load_b = TmaLoader(w, b, batched=spec.batched, sharers=cluster.share_b_count, paired=paired)
    tiles = payload.allocate(w.shared, "inputs", stages)
    k_blocks = w.parameter("k_blocks", U32)
    order = RasterOrder(
        w,
        tile_m=config.tile[0],
        tile_n=config.tile[1],
        cluster=cluster,
        k_blocks=k_blocks,
        batched=spec.batched,
        shared=config.split_k > 1,
    )
    loader = StandardLoader(w, load_a, load_b, tiles, cluster)
    columns = w.parameter("columns", U32)
    output = Output.of(
        w,
        spec,
        op.layout,
        columns=columns,
        stores=plan.epilogue,
        loads=plan.epilogue_load,
        buffers=config.output_buffers,
        shared=config.split_k > 1,
    )
    sync = CommitSync(
        w,
        "inputs",
        stages=stages,
        stage_bytes=payload.stage_bytes,
        producers=(plan.load,),
        consumers=(plan.mma,),
        cluster=cluster,
    )
    accumulators = TensorMemory(
        w,
        op,
        stages=config.accumulator_stages,
        mma=plan.mma,
        epilogue=plan.epilogue,
        cluster=cluster,
        barrier=FIRST_NAMED_BARRIER + 1,
    )
    scheduler: StaticScheduler | ClcScheduler = StaticScheduler(order)
    if plan.scheduler is not None:
        scheduler = ClcScheduler(
            w,
            order,
            cluster=cluster,
            stages=config.clc_stages,
            scheduler=plan.scheduler,
            load=plan.load,
            readers=plan.roles,
        )
    kernel = WarpSpecialized(
        warps=plan,
        cluster=cluster,
        inputs=TilePipeline(payload, tiles, stages=stages, sync=sync),
        loader=loader,
        op=op,
        accumulators=accumulators,
        scheduler=scheduler,
        epilogue=output.epilogue,
        k_blocks=k_blocks,
        in_flight=0,
        reduction=output.reduction,
        source=output.residual,
    )
    return kernel, {"a_map": load_a.box, "b_map": load_b.box} | output.boxes
