"""How a matmul kernel computes: tile, cluster, warps, stages. What every chip's config has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Self

from tilekit.annotations import check_fields
from tilekit.assembly.shared import SharedDeclaration
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.dtypes import S32, DType
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion
from tilekit.errors import ConfigError
from tilekit.heuristics.rules import RuleBook
from tilekit.kernels.matmul.memory import KernelMemory
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_schedule.raster import Walk
from tilekit.tiles.call import Major
from tilekit.tiles.operand import PLAIN_BYTES, SWIZZLE_BYTES, OperandTile, SwizzleBytes

_operand, _payload = cache(OperandTile), cache(StandardPayload)
"""Thousands of configs have a few hundred tiles, and pairs of them."""


def plural(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class KernelConfig(ABC):
    """What the config of every chip has; a chip's is a frozen dataclass.

    Fields that not every chip has stand here with the value of a chip that lacks them, so that the composition and the
    picker need not ask.

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
    split_k, raster_order, raster_group, profile_tiles
        See the chips' configs.
    k_group
        128-byte slices of K in a stage.
    output_buffers, swap_ab, l2_promotion, consumers, cluster_k, cta_group, stream_k, prefetch, in_flight, clc_stages
        See the chips' configs.
    load_order, xcds, driver, resident
        See the chips' configs.
    """

    TARGET: ClassVar[str]
    """The chip whose config it is."""

    RULES: ClassVar[RuleBook]
    MAX_STAGES: ClassVar[int]
    """Stages beyond which a ring hides no more latency."""

    tile: tuple[int, int]
    stages: int | None
    split_k: int
    raster_order: Walk
    raster_group: int | None
    k_group: int
    profile_tiles: int

    cluster: tuple[int, int] = (1, 1)
    output_buffers: int = 1
    swap_ab: bool = False
    l2_promotion: L2Promotion | None = None
    consumers: int = 1
    cluster_k: int = 1
    cta_group: int = 1
    stream_k: int = 0
    prefetch: int = 0
    in_flight: int = 0
    clc_stages: int = 0
    load_order: bool = False
    xcds: bool = True
    driver: str = "warp_specialized"
    resident: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def orders_loads(self, spec: MatmulSpec) -> bool:
        """Whether the role that loads for the epilogue waits until the operands of the first tile are on their way."""
        return self.load_order

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster_k

    @property
    def multicast(self) -> tuple[int, int]:
        """CTAs of a cluster that need the same tile of A, and of B: of a pair, each has its own half of B."""
        return self.cluster[1], self.cluster[0] // self.cta_group

    @property
    def pingpong(self) -> bool:
        """Whether the consumers take turns, each with whole tiles."""
        return False

    @property
    def m_below_atom(self) -> bool:
        """Whether a tile has fewer rows than an instruction."""
        return False

    @property
    def claims_tiles(self) -> bool:
        """Whether clusters claim tiles when they are free."""
        return False

    @property
    def numbers_starts(self) -> bool:
        """Whether clusters are numbered as they start, because they wait for each other."""
        return False

    @property
    def l2_policies(self) -> tuple[int | None, int | None]:
        """How long L2 keeps A and B, as the instruction takes them."""
        return None, None

    @property
    @abstractmethod
    def least_stages(self) -> int:
        """Stages without which the ring stands still."""

    @property
    @abstractmethod
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""

    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage, as one CTA holds them and the instruction takes them."""
        (a, a_major), (b, b_major) = spec.operands(swapped=self.swap_ab)
        a_swizzle, b_swizzle = spec.swizzles(swapped=self.swap_ab)[0], self.b_swizzle(spec)
        a_slices, b_slices = self._slices(spec, a_major, a_swizzle), self._slices(spec, b_major, b_swizzle)
        columns = self.tile[1] // self.cta_group
        return (
            _operand("a", a, self.tile[0], a_major, a_slices, a_swizzle, self.trims(spec)),
            _operand("b", b, columns, b_major, b_slices, b_swizzle, self.trims(spec)),
        )

    def _slices(self, spec: MatmulSpec, major: Major, swizzle: SwizzleBytes) -> int:
        """Slices of a k-block: those of a K-major operand are as long as a row of the image."""
        return self.k_group * (spec.block_bytes // (swizzle or PLAIN_BYTES) if major == "k" else 1)

    def b_swizzle(self, spec: MatmulSpec) -> SwizzleBytes:
        """Bytes over which the image of the instruction's B is swizzled; 0 for none."""
        return spec.swizzles(swapped=self.swap_ab)[1]

    def trims(self, spec: MatmulSpec) -> bool:
        """Whether tiles are `OperandTile.trimmed`: MN-major ones are loaded without what the product does not use."""
        return False

    def payload(self, spec: MatmulSpec) -> StandardPayload:
        """What a stage holds."""
        make = StandardPayload if spec.components.payload else _payload  # tiles of the caller's may have any equality
        return make(*self.operands(spec), adjacent=self.m_below_atom, further=spec.further_tiles(self))

    def copy_plans(self, spec: MatmulSpec) -> tuple[CopyPlan | None, CopyPlan | None]:
        """How threads copy A and B; None for what TMA loads."""
        if not spec.copies:
            return None, None
        loads = spec.loads[::-1] if self.swap_ab else spec.loads
        a, b = (
            spec.copy_plan(tile, load) if isinstance(load, int) else None
            for tile, load in zip(self.operands(spec), loads, strict=True)
        )
        return a, b

    @abstractmethod
    def instruction(self, spec: MatmulSpec) -> Any:
        """The matrix instruction."""

    @abstractmethod
    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out."""

    @abstractmethod
    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""

    def ring_barriers(self, name: str) -> tuple[SharedDeclaration, ...]:
        """Shared memory by which the roles on both sides of the ring called `name` wait for each other, of a stage."""
        return MbarrierSync.declared(name, 1)

    def accumulator_memory(self) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the accumulators."""
        return ()

    def k_block(self, dtype: DType, block_bytes: int = SWIZZLE_BYTES) -> int:
        """Elements of K in a stage, of a spec with blocks of so many bytes."""
        return self.k_group * block_bytes // dtype.bytes

    def memory(self, spec: MatmulSpec) -> KernelMemory:
        """The shared memory that the components declare."""
        return KernelMemory.of(self, spec)

    def keeps_whole(self, spec: MatmulSpec) -> bool:
        """Whether accumulators hand whole numbers on as they are: they are the result, or shares of it."""
        return spec.whole and (spec.out_dtype == S32 or self.split_k > 1 or self.cluster_k > 1)

    def engine_bytes(self, spec: MatmulSpec) -> int:
        """Bytes that the copy engine brings to one input stage of a CTA."""
        copied = sum(plan.tile.bytes for plan in self.copy_plans(spec) if plan is not None)
        return self.payload(spec).transfer_bytes - copied

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the rest."""
        return min(self.MAX_STAGES, self.memory(spec).stages_within(target.shared_bytes))

    def resolved_stages(self, target: Target, spec: MatmulSpec) -> int:
        """The stage count a kernel is built with."""
        return self.stages if self.stages is not None else self.stage_budget(target, spec)

    def changed(self, **fields: Any) -> Self:
        """The config with other values in `fields`."""
        return replace(self, **fields)  # type: ignore[type-var]  # every chip's config is a dataclass

    def problems(self, target: Target | str, spec: MatmulSpec | None = None) -> list[str]:
        """Every rule this config violates on `target` for `spec` (default: bf16, K-major), each with the nearest value.

        Empty if the kernel can be built. On another chip than its own: which config that one takes.
        """
        chip = target_named(target) if isinstance(target, str) else target
        if chip.name != self.TARGET:
            takes = platform(chip).config.__name__
            article = "an" if takes[0] in "AEIOU" else "a"
            return [f"{type(self).__name__} is for {self.TARGET}; for {chip.name} pass {article} {takes}"]
        return self.RULES.problems(self, chip, spec or MatmulSpec())

    def legal(self, target: Target, spec: MatmulSpec) -> bool:
        """Whether `problems` is empty, without looking for the nearest values."""
        return target.name == self.TARGET and not self.RULES.violations(self, target, spec)

    def check(self, target: Target, spec: MatmulSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-MM-006")
