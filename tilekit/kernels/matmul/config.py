"""How a matmul kernel computes: tile, cluster, warps, stages. What every chip's config has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from tilekit.annotations import Accepts, check_fields
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.dtypes import DType
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion
from tilekit.errors import ConfigError
from tilekit.kernels.matmul.rules import RuleBook
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.operand import SPAN, OperandTile
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.sync import MbarrierSync
from tilekit.tile_schedule.raster import Walk


def counted(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class KernelConfig(ABC):
    """What the config of every chip has.

    Attributes
    ----------
    tile
        Output rows and columns of a CTA. An instruction has 64 rows; a tile of fewer is for a small M of which no row
        is loaded in vain: 16 x 6144 x 4096 takes a third longer with 64 x 48 tiles than 64 x 6144 x 4096 does (H200),
        since the copy engine is slow where a box ends outside.
    cluster
        CTAs of a cluster along M and N.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    output_buffers, swap_ab, split_k, raster_order, raster_group, l2_promotion, profile_tiles
        See the chips' configs.
    k_group
        128-byte slices of K in a stage.
    """

    RULES: ClassVar[RuleBook]
    MAX_STAGES: ClassVar[int]
    """Stages beyond which a ring hides no more latency."""

    tile: tuple[int, int]
    cluster: tuple[int, int]
    stages: int | None
    output_buffers: int
    swap_ab: bool
    split_k: int
    raster_order: Walk
    raster_group: int | None
    l2_promotion: L2Promotion | None
    k_group: int
    profile_tiles: int

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def layers(self) -> int:
        """CTAs of a cluster that share a tile's sum."""
        return 1

    @property
    def streamed(self) -> int:
        """Ranges that the last tiles' k-blocks are cut into at most, a tile; 0 where each tile is computed at once."""
        return 0

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.layers

    @property
    @abstractmethod
    def sharers(self) -> tuple[int, int]:
        """CTAs of a cluster that need the same tile of A, and of B."""

    @property
    @abstractmethod
    def claims_tiles(self) -> bool:
        """Whether clusters claim tiles when they are free."""

    @property
    @abstractmethod
    def least_stages(self) -> int:
        """Stages without which the ring stands still."""

    @property
    @abstractmethod
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""

    @abstractmethod
    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage, as one CTA holds them."""

    @abstractmethod
    def output_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of the epilogue."""

    @abstractmethod
    def fixed_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of everything but the input stages."""

    @abstractmethod
    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""

    def k_block(self, dtype: DType) -> int:
        """Elements of K in a stage."""
        return self.k_group * SPAN // dtype.bytes

    def stage_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of one input stage."""
        return StandardPayload(*self.operands(spec)).stage_bytes

    def engine_bytes(self, spec: MatmulSpec) -> int:
        """Bytes that the copy engine brings to one input stage of a CTA."""
        return StandardPayload(*self.operands(spec)).stage_bytes

    def shared_bytes(self, spec: MatmulSpec, stages: int) -> int:
        """Shared memory of a kernel with so many stages; a tile is a multiple of the 1024 bytes it aligns to."""
        return self.fixed_bytes(spec) + stages * (self.stage_bytes(spec) + MbarrierSync.STAGE_BYTES)

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the rest."""
        free = target.shared_bytes - self.fixed_bytes(spec)
        return max(0, min(self.MAX_STAGES, free // (self.stage_bytes(spec) + MbarrierSync.STAGE_BYTES)))

    def resolved_stages(self, target: Target, spec: MatmulSpec) -> int:
        """The stage count a kernel is built with."""
        return self.stages if self.stages is not None else self.stage_budget(target, spec)

    def changed(self, **fields: Any) -> Self:
        """The config with other values in `fields`."""
        return replace(self, **fields)  # type: ignore[type-var]  # every chip's config is a dataclass

    def problems(self, target: Target | str, spec: MatmulSpec | None = None) -> list[str]:
        """Every rule this config violates on `target` for `spec` (default: bf16, K-major), each with the nearest value.

        Empty if the kernel can be built.
        """
        chip = target_named(target) if isinstance(target, str) else target
        return self.RULES.problems(self, chip, spec or MatmulSpec())

    def legal(self, target: Target, spec: MatmulSpec) -> bool:
        """Whether `problems` is empty, without looking for the nearest values."""
        return target.name == self.RULES.target and not self.RULES.violations(self, target, spec)

    def check(self, target: Target, spec: MatmulSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-MM-006")


AnyConfig = Annotated[KernelConfig, Accepts("a tilekit.MatmulConfig (sm_90a), a tilekit.BlackwellConfig (sm_100a)")]
"""A config of any chip, as an argument."""
