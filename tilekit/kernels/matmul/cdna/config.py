"""How a matmul kernel computes on a CDNA chip: tile, waves that load and that multiply, ring in LDS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilekit.assembly.shared import SharedDeclaration
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.kernels.matmul.cdna import rules
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.cp_async import CopyPlan
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_pipeline.counter_sync import CounterSync
from tilekit.tile_pipeline.single_counter_sync import SingleCounterSync
from tilekit.tile_schedule.raster import Walk
from tilekit.tiles.operand import OperandTile

Driver = Literal["warp_specialized"]
"""The role loops of a kernel."""


@dataclass(frozen=True)
class CdnaConfig(KernelConfig):
    """One way to run a matmul on a CDNA chip; each chip has a kind of its own.

    Attributes
    ----------
    tile
        Output rows and columns of a workgroup (of the transpose with `swap_ab`). Its rows are shared by the waves that
        multiply, each of which has all columns.
    driver
        Which role loops: ``"warp_specialized"``, waves that load beside waves that multiply.
    load_waves, mma_waves
        Waves that load, and waves that multiply and store.
    k_group
        128-byte slices of K in a stage.
    stages
        Stages of the input ring; ``None`` takes what LDS allows.
    in_flight
        Stages that a wave holds, beside the one that it multiplies, before it gives them back: 0 or 1.
    counters
        Counters a stage by which waves wait for each other: 1 that goes round, or 2, one a side.
    swap_ab
        Compute the transpose of the output: rows of the tile are then along N, columns along M. For a small M, since a
        wave has 32 rows or more, but may have 16 columns.
    split_k
        Workgroups that share a tile's sum, each with its range of K; the last adds them through a workspace.
    raster_order
        Tiles are walked down M first, ``"m"``, or along N, ``"n"``.
    raster_group
        Rows of tiles walked together, with ``"n"`` columns; ``None`` chooses by footprint.
    xcds
        Whether neighbouring tiles fall to workgroups of one die, which share its L2; else to all dies in turn.
    profile_tiles
        Tiles of a workgroup whose times every role notes (`tilekit trace`); 0, and there is no trace of it in the
        kernel.
    """

    RULES = rules.RULES
    MAX_STAGES = 8

    tile: tuple[int, int] = (128, 128)
    driver: Driver = "warp_specialized"
    load_waves: int = 4
    mma_waves: int = 4
    k_group: int = 1
    stages: int | None = None
    in_flight: int = 0
    counters: int = 1
    swap_ab: bool = False
    split_k: int = 1
    raster_order: Walk = "m"
    raster_group: int | None = None
    xcds: bool = True
    profile_tiles: int = 0

    @property
    def least_stages(self) -> int:
        """Those that a wave holds, and the one that it waits for."""
        return self.in_flight + 1

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        return f"in_flight={self.in_flight} keeps as many back"

    @property
    def waves(self) -> int:
        """Waves of a workgroup."""
        return self.load_waves + self.mma_waves

    @property
    def accumulators(self) -> int:
        """Registers of a lane that hold sums."""
        return self.tile[0] * self.tile[1] // (64 * self.mma_waves)

    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage: K is contiguous in the image of either, however the operand lies in memory."""
        a, b = super().operands(spec)
        return replace(a, major="k", slices=self.k_group), replace(b, major="k", slices=self.k_group)

    def copy_plans(self, spec: MatmulSpec) -> tuple[CopyPlan | None, CopyPlan | None]:
        """None: what threads load has no plan beside."""
        return None, None

    def instruction(self, spec: MatmulSpec) -> Mfma:
        """The matrix instruction."""
        return Mfma(*self.operands(spec), waves=self.mma_waves)

    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out: threads, from registers."""
        layout = self.instruction(spec).layout
        return OutputPlan(spec, layout, warpgroups=self.mma_waves, buffers=0, transposed=self.swap_ab, staged=False)

    @property
    def sync(self) -> type[SingleCounterSync] | type[CounterSync]:
        """How the waves on both sides of the ring wait for each other."""
        return SingleCounterSync if self.counters == 1 else CounterSync

    def ring_barriers(self, name: str) -> tuple[SharedDeclaration, ...]:
        """The counters of a stage."""
        return self.sync.declared(name, 1)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        plan = WarpPlan.waves(target, load=self.load_waves, mma=self.mma_waves)
        return spec.components.plan(plan)

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else plural(self.stages, "stage")
        return (
            f"{'swapped, ' if self.swap_ab else ''}tile {self.tile[0]}x{self.tile[1]}, {self.load_waves} waves load, "
            f"{self.mma_waves} multiply, {stages}{f' of {self.k_group} slices' if self.k_group > 1 else ''}, "
            f"in flight {self.in_flight}, {plural(self.counters, 'counter')}"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (", raster along N" if self.raster_order == "n" else "")
            + ("" if self.xcds else ", tiles to all dies in turn")
        )
