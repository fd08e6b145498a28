"""How a matmul kernel computes: tile, cluster, warps, stages."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.drivers.warp_specialized import WarpPlan
from tilekit.dtypes import DType
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.errors import ConfigError
from tilekit.kernels.matmul.rules import explained_problems
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.operand import SPAN, OperandTile
from tilekit.tile_op.wgmma import ATOM_ROWS
from tilekit.tile_pipeline.payload import StandardPayload

MAX_STAGES = 12
"""Stages beyond which a ring hides no more latency."""

BARRIER_BYTES = 16
"""Full and empty mbarrier of one stage."""


@dataclass(frozen=True)
class MatmulConfig:
    """One way to run a matmul.

    Attributes
    ----------
    tile
        Output rows and columns of a CTA.
    cluster
        CTAs of a cluster along M and N; those along M share B by multicast, those along N share A.
    consumers
        Warpgroups that share the tile along M.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    output_buffers
        Slabs of 64 rows by 128 bytes in flight per warpgroup, on their way out.
    in_flight
        0: wait for each k-block's matrix instructions; 1: keep one group running while the next stage is awaited.
    split_k
        CTAs that share a tile's sum, each with its range of K; added in turn through a workspace.
    raster_group
        Cluster rows walked together; ``None`` chooses by footprint.
    l2_promotion
        L2 fetch granularity of the input tensor maps.
    """

    tile: tuple[int, int] = (128, 256)
    cluster: tuple[int, int] = (2, 1)
    consumers: int = 2
    stages: int | None = None
    output_buffers: int = 2
    in_flight: int = 1
    split_k: int = 1
    raster_group: int | None = None
    l2_promotion: str | None = "256B"

    claims_tiles = False
    """Whether the grid has a cluster for every tile, to be claimed by whoever is free."""

    def k_block(self, dtype: DType) -> int:
        """Elements of K in a stage."""
        return SPAN // dtype.bytes

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def stage_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of one input stage."""
        a = OperandTile("a", spec.a_dtype, self.tile[0], spec.a_major)
        b = OperandTile("b", spec.b_dtype, self.tile[1], spec.b_major)
        return StandardPayload(a, b).stage_bytes

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer thread."""
        return self.tile[0] * self.tile[1] // (128 * max(self.consumers, 1))

    def output_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of the epilogue."""
        if spec.store == "direct":
            return 0
        slabs = self.output_buffers * (2 if spec.loads_residual else 1)
        return StagedEpilogue.shared_bytes(warpgroups=self.consumers, buffers=slabs, rows=ATOM_ROWS)

    def shared_bytes(self, spec: MatmulSpec, stages: int) -> int:
        """Shared memory of a kernel with so many stages; a tile is a multiple of the 1024 bytes it aligns to."""
        return self.fixed_bytes(spec) + stages * (self.stage_bytes(spec) + BARRIER_BYTES)

    def fixed_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of everything but the input stages."""
        slabs = self.consumers * self.output_buffers if spec.loads_residual else 0
        return self.output_bytes(spec) + slabs * BARRIER_BYTES

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the epilogue."""
        free = target.shared_bytes - self.fixed_bytes(spec)
        return max(0, min(MAX_STAGES, free // (self.stage_bytes(spec) + BARRIER_BYTES)))

    def resolved_stages(self, target: Target, spec: MatmulSpec) -> int:
        """The stage count a kernel is built with."""
        return self.stages if self.stages is not None else self.stage_budget(target, spec)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        return WarpPlan.register_accumulators(
            consumers=self.consumers,
            accumulators=self.accumulators,
            registers=target.registers,
            epilogue_loads=spec.loads_residual,
        )

    def problems(self, target: Target | str, spec: MatmulSpec | None = None) -> list[str]:
        """Every rule this config violates on `target` for `spec` (default: bf16, K-major), each with the nearest value.

        Empty if the kernel can be built.
        """
        chip = target_named(target) if isinstance(target, str) else target
        return explained_problems(self, chip, spec or MatmulSpec())

    def check(self, target: Target, spec: MatmulSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-MM-006")

    def __str__(self) -> str:
        stages = "auto" if self.stages is None else self.stages
        return (
            f"tile {self.tile[0]}x{self.tile[1]}, cluster {self.cluster[0]}x{self.cluster[1]}, "
            f"{self.consumers} consumers, {stages} stages, in flight {self.in_flight}"
        )
