"""How a matmul kernel computes: tile, cluster, warps, stages. What every chip's config has, and Hopper's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from tilekit.annotations import Accepts, check_fields
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.dtypes import DType
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion
from tilekit.errors import ConfigError
from tilekit.kernels.matmul import hopper_rules
from tilekit.kernels.matmul.parts import Output
from tilekit.kernels.matmul.rules import RuleBook
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.cp_async import CopyPlan
from tilekit.tile_io.operand import SPAN, OperandTile
from tilekit.tile_io.tma import EVICT_FIRST, EVICT_LAST
from tilekit.tile_op.wgmma import ATOM_ROWS, atom_layout
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.sync import MbarrierSync
from tilekit.tile_schedule.raster import Walk

Schedule = Literal["cooperative", "pingpong"]


NARROW_CHUNKS = (16, 32)
"""Bytes of the rows of an MN-major B's image that are as long as the tile is wide: those that a swizzle has.

A tile that 64 bytes divide, but 128 do not, has rows of 64.
"""


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


@dataclass(frozen=True)
class MatmulConfig(KernelConfig):
    """One way to run a matmul on Hopper (sm_90a).

    Attributes
    ----------
    tile
        Output rows and columns of a CTA.
    cluster
        CTAs of a cluster along M and N; those along M share B by multicast, those along N share A.
    consumers
        Warpgroups that multiply and store.
    schedule
        ``"cooperative"``: the consumers share each tile along M. ``"pingpong"``: they take turns, each with whole
        tiles, so that one stores its tile while the next one multiplies.
    swap_ab
        Compute the transpose of the output, b being the instruction's A: rows of the tile and of the cluster are then
        along N, columns along M. For a small M, since an instruction has 64 rows or more, but may have 8 columns.
    k_group
        128-byte slices of K in a stage: more of them mean fewer barriers.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    output_buffers
        Slabs of 128 bytes by 64 rows (with `swap_ab` by up to 64) in flight per warpgroup, on their way out.
    in_flight
        0: wait for each k-block's matrix instructions; 1: keep one group running while the next stage is awaited.
    split_k
        CTAs that share a tile's sum, each with its range of K; the last adds them through a workspace.
    cluster_k
        CTAs of a cluster that share a tile's sum: each sends the others their columns of its share through distributed
        shared memory, and adds and stores its own.
    stream_k
        Where tiles do not make whole waves, all CTAs share those of the last one or two: each has an equal range of
        their k-blocks, and shares of a tile are added through a workspace (stream-K). A tile is cut into so many ranges
        at most, which counts where there are fewer tiles than CTAs; 0: every tile has its CTA.
    prefetch
        k-blocks of `b` that each CTA brings into L2 while the kernel before this one ends: of weights, which that
        kernel does not write.
    raster_order
        Tiles are walked down M first, ``"m"``, or along N, ``"n"``: of the transpose with `swap_ab`. The picker leaves
        it at ``"m"``, since what a wave needs of A and B is made small by `raster_group` in either order.
    raster_group
        Cluster rows walked together, with ``"n"`` columns; ``None`` chooses by footprint.
    l2_promotion
        What L2 fetches at least where a TMA load misses. ``"256B"`` makes a quarter more reads of L2 and half as many
        more between its halves (H200: 2 % of the time at 64x57344x8192, 4 % at 16x8192x8192).
    l2_stream
        Operand that passes through L2, ``"a"`` or ``"b"``: it leaves first, and the other one last, as far as TMA loads
        them. ``None`` leaves both to the hardware.
    profile_tiles
        Tiles of a CTA whose times every role notes (`tilekit trace`); 0, and there is no trace of it in the kernel.
    """

    RULES = hopper_rules.RULES
    MAX_STAGES = 12

    tile: tuple[int, int] = (128, 256)
    cluster: tuple[int, int] = (2, 1)
    consumers: int = 2
    schedule: Schedule = "cooperative"
    swap_ab: bool = False
    k_group: int = 1
    stages: int | None = None
    output_buffers: int = 2
    in_flight: int = 1
    split_k: int = 1
    cluster_k: int = 1
    stream_k: int = 0
    prefetch: int = 0
    raster_order: Walk = "m"
    raster_group: int | None = None
    l2_promotion: L2Promotion | None = "128B"
    l2_stream: Literal["a", "b"] | None = None
    profile_tiles: int = 0

    @property
    def sharers(self) -> tuple[int, int]:
        """CTAs of a cluster that need the same tile of A, and of B."""
        return self.cluster[1], self.cluster[0]

    @property
    def claims_tiles(self) -> bool:
        """Never: the schedule is static."""
        return False

    @property
    def least_stages(self) -> int:
        """One to multiply, and what is held back."""
        return 1 + self.in_flight

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        return f"in_flight={self.in_flight} holds one stage back" if self.in_flight else "a ring has a stage"

    @property
    def layers(self) -> int:
        """CTAs of a cluster that share a tile's sum."""
        return self.cluster_k

    @property
    def streamed(self) -> int:
        """Ranges that the last tiles' k-blocks are cut into at most, a tile; 0 where each tile is computed at once."""
        return self.stream_k

    @property
    def in_turn(self) -> bool:
        """Whether the consumers take turns."""
        return self.schedule == "pingpong"

    @property
    def short(self) -> bool:
        """Whether a tile has fewer rows than an instruction."""
        return self.tile[0] < ATOM_ROWS

    @property
    def sharing(self) -> int:
        """Consumers that share a tile."""
        return 1 if self.in_turn else self.consumers

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer thread."""
        return max(self.tile[0], ATOM_ROWS) * self.tile[1] // (128 * max(self.sharing, 1))

    def sum_registers(self, spec: MatmulSpec) -> int:
        """Registers of a consumer thread that hold sums: with promotion, those of a k-block too."""
        return self.accumulators * (2 if spec.promoted else 1)

    @property
    def l2_policies(self) -> tuple[int | None, int | None]:
        """How long L2 keeps A and B, as the instruction takes them."""
        if self.l2_stream is None:
            return None, None
        first = (self.l2_stream == "a") != self.swap_ab
        return (EVICT_FIRST, EVICT_LAST) if first else (EVICT_LAST, EVICT_FIRST)

    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage, as the instruction takes them."""
        (a, a_major), (b, b_major) = spec.operands(swapped=self.swap_ab)
        width, chunk = self.tile[1] * b.bytes, SPAN
        if b_major == "mn" and not spec.copies:
            chunk = width if width in NARROW_CHUNKS else 64 if width % SPAN == 64 else SPAN
        return (
            OperandTile("a", a, self.tile[0], a_major, self.k_group),
            OperandTile("b", b, self.tile[1], b_major, self.k_group, chunk),
        )

    def output_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of the epilogue."""
        return Output.shared_bytes(
            spec,
            atom_layout(self.tile[0] // max(self.sharing, 1), self.tile[1]),
            warpgroups=self.consumers,
            buffers=self.output_buffers,
            transposed=self.swap_ab,
            layers=self.cluster_k,
        )

    def fixed_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of everything but the input stages."""
        return self.output_bytes(spec)

    def copy_plans(self, spec: MatmulSpec) -> tuple[CopyPlan | None, CopyPlan | None]:
        """How A and B are copied; None for what TMA loads."""
        if not spec.copies:
            return None, None
        loads = spec.loads[::-1] if self.swap_ab else spec.loads
        a, b = (
            CopyPlan(tile, load) if isinstance(load, int) else None
            for tile, load in zip(self.operands(spec), loads, strict=True)
        )
        return a, b

    def stage_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of one input stage."""
        return super().stage_bytes(spec) + sum(plan.tail_bytes for plan in self.copy_plans(spec) if plan is not None)

    def engine_bytes(self, spec: MatmulSpec) -> int:
        """Bytes that the copy engine brings to one input stage."""
        return super().engine_bytes(spec) - sum(plan.tile.bytes for plan in self.copy_plans(spec) if plan is not None)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        return WarpPlan.register_accumulators(
            consumers=self.consumers,
            accumulators=self.sum_registers(spec),
            registers=target.registers,
            in_turn=self.in_turn,
            epilogue_loads=spec.loads_residual,
            copies=spec.copies,
        )

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else counted(self.stages, "stage")
        return (
            f"{'swapped, ' if self.swap_ab else ''}tile {self.tile[0]}x{self.tile[1]}, "
            f"cluster {self.cluster[0]}x{self.cluster[1]}, "
            f"{counted(self.consumers, 'consumer')}{' in turn' if self.in_turn else ''}, "
            f"{stages}{f' of {self.k_group} slices' if self.k_group > 1 else ''}, "
            f"in flight {self.in_flight}"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (f", cluster k {self.cluster_k}" if self.cluster_k > 1 else "")
            + (f", stream k {self.stream_k}" if self.stream_k else "")
            + (f", prefetch {self.prefetch}" if self.prefetch else "")
            + (f", {self.l2_stream} through L2" if self.l2_stream else "")
            + (", raster along N" if self.raster_order == "n" else "")
            + (f", raster groups of {self.raster_group}" if self.raster_group else "")
        )
