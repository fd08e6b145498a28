"""How a matmul kernel computes on Blackwell: tile, CTA pairs, cluster, accumulators in tensor memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.assembly.shared import SharedDeclaration
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.sm_100a import rules
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_schedule.raster import Walk


@call_checked
@dataclass(frozen=True)
class BlackwellConfig(KernelConfig):
    """One way to run a matmul on Blackwell (sm_100a).

    Attributes
    ----------
    tile
        Output rows and columns of a CTA. With pairs, an instruction computes twice the rows, and each CTA loads half
        of the columns of B.
    cluster
        CTAs of a cluster along M and N; pairs lie along M.
    cta_group
        CTAs that a matrix instruction spans: 1, or 2 for CTA pairs.
    swap_ab
        Compute the transpose of the output, b being the instruction's A: rows of the tile and of the cluster are then
        along N, columns along M. For a small M, since an instruction has 64 rows or more, but may have 8 columns.
    k_group
        128-byte slices of K in a stage: more of them mean fewer barriers.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    accumulator_stages
        Accumulators in tensor memory: with 2 the next tile is multiplied while this one is stored.
    clc_stages
        Claims of further tiles in flight (cluster launch control); 0 for a static schedule. With `split_k` no
        role claims.
    output_buffers
        Subtiles of the CTA's rows by 128 bytes in flight on their way out.
    load_order
        Whether the warp that loads a residual waits until the operands of its CTA's first tile are on their way.
    split_k
        CTAs that share a tile's sum, each with its range of K; the last adds them through a workspace. Each share has a
        cluster of its own, which takes the next share when it starts: so a turn is never waited for that has not begun.
    raster_order
        Tiles are walked down M first, ``"m"``, or along N, ``"n"``: of the transpose with `swap_ab`. The picker leaves
        it at ``"m"``, since what a wave needs of A and B is made small by `raster_group` in either order.
    raster_group
        Cluster rows walked together, with ``"n"`` columns; ``None`` chooses by footprint, and in groups of rows by what
        L2 keeps.
    l2_promotion
        L2 fetch granularity of the input tensor maps.
    profile_tiles
        Tiles of a CTA whose times every role notes (`tilekit trace`); 0, and there is no trace of it in the kernel.
    """

    TARGET = "sm_100a"
    RULES = rules.RULES
    MAX_STAGES = 24

    tile: tuple[int, int] = (128, 256)
    cluster: tuple[int, int] = (2, 1)
    cta_group: int = 2
    swap_ab: bool = False
    k_group: int = 1
    stages: int | None = None
    accumulator_stages: int = 2
    clc_stages: int = 2
    output_buffers: int = 2
    load_order: bool = False
    split_k: int = 1
    raster_order: Walk = "m"
    raster_group: int | None = None
    l2_promotion: L2Promotion | None = "256B"
    profile_tiles: int = 0

    @property
    def claims_tiles(self) -> bool:
        """Whether clusters claim tiles when they are free. Shares of sums, which wait for each other, they do not."""
        return self.clc_stages > 0 and self.split_k == 1

    @property
    def numbers_starts(self) -> bool:
        """Where shares wait for each other: for those that have started, in whatever order clusters do."""
        return self.split_k > 1

    @property
    def least_stages(self) -> int:
        """One: the commit of its last instruction gives a stage back, and holds none."""
        return 1

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        return "a ring has a stage"

    def instruction(self, spec: MatmulSpec) -> Tcgen05:
        """The matrix instruction, which knows how its accumulators lie in tensor memory."""
        return spec.tensor_op(*self.operands(spec), group=self.cta_group)

    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out."""
        layout = self.instruction(spec).layout
        return OutputPlan(
            spec, layout, warpgroups=1, buffers=self.output_buffers, transposed=self.swap_ab, tile=self.tile
        )

    def accumulator_memory(self) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the accumulators: where they are, and the barriers between the roles."""
        return *TensorMemory.declared(), *TensorAccumulators.declared(self.accumulator_stages)

    def narrow_boxes(self, spec: MatmulSpec) -> bool:
        """Whether the output is stored in boxes narrower than 128 bytes, which rests on what an H200 does."""
        subtiles = self.output(spec).subtiles
        return subtiles is not None and subtiles.narrow

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        plan = WarpPlan.tensor_memory(
            target, scheduler=self.claims_tiles, epilogue_loads=spec.loads_residual, copies=spec.copies
        )
        return spec.components.plan(plan)

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else plural(self.stages, "stage")
        spans = {1: "single CTAs", 2: "CTA pairs"}.get(self.cta_group, f"cta_group {self.cta_group}")
        schedule = plural(self.clc_stages, "claim") if self.claims_tiles else "static"
        return (
            f"{'swapped, ' if self.swap_ab else ''}tile {self.tile[0]}x{self.tile[1]}, "
            f"cluster {self.cluster[0]}x{self.cluster[1]}, "
            f"{spans}, {stages}{f' of {self.k_group} slices' if self.k_group > 1 else ''}, "
            f"{plural(self.accumulator_stages, 'accumulator')}, {schedule}"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (", raster along N" if self.raster_order == "n" else "")
        )
