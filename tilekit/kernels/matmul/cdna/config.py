"""How a matmul kernel computes on a CDNA chip: tile, waves that load and that multiply, ring in LDS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tilekit.assembly.shared import SharedDeclaration
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.kernels.matmul.cdna import rules
from tilekit.kernels.matmul.cdna.components import past_registers
from tilekit.kernels.matmul.cdna.loops import Clocks
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_op.mfma import LANES, Mfma
from tilekit.tile_pipeline.single_counter_sync import SingleCounterSync
from tilekit.tile_pipeline.split_counter_sync import SplitCounterSync
from tilekit.tile_schedule.raster import Walk
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile

Driver = Literal["warp_specialized", "ping_pong", "interleaved"]
"""The role loops of a kernel."""

WAVES: dict[Driver, tuple[int, int, int]] = {
    "warp_specialized": (4, 4, 1),
    "ping_pong": (0, 8, 4),
    "interleaved": (0, 4, 2),
}
"""Waves that load alone, that multiply, and of the latter those side by side, where a config leaves them open."""


REGISTER_BYTES = 4


@dataclass(frozen=True)
class CdnaConfig(KernelConfig):
    """One way to run a matmul on a CDNA chip; each chip has a kind of its own.

    Attributes
    ----------
    tile
        Output rows and columns of a workgroup (of the transpose with `swap_ab`), shared by the waves that multiply.
    driver
        Which role loops: ``"warp_specialized"``, waves that load beside waves that multiply; or all waves do both,
        ``"ping_pong"`` in two groups that take turns, ``"interleaved"`` with reads and loads between the products.
    load_waves
        Waves that load; ``None`` takes the driver's number. Those without roles have none.
    mma_waves, mma_columns
        Waves that multiply and store, and how many of them are side by side along N; ``None`` takes the driver's.
    k_group
        128-byte slices of K in a stage.
    stages
        Stages of the input ring; ``None`` takes what LDS allows. Of a ping-pong two, or one that is loaded through
        registers; interleaved, two.
    in_flight
        Stages that a wave holds, beside the one that it multiplies, before it gives them back: 0 or 1.
    counters
        Counters a stage by which roles wait for each other: 1 that goes round (`SingleCounterSync`), or 2, one a side
        (`SplitCounterSync`); ``None`` takes 1. Drivers without roles have none.
    swap_ab
        Compute the transpose of the output: rows of the tile are then along N, columns along M. For a small M, since a
        wave has 32 rows or more, but may have 16 columns.
    split_k
        Workgroups that share a tile's sum, each with its range of K; the last adds them through a workspace.
    raster_order
        Tiles are walked down M first, ``"m"``, or along N, ``"n"``.
    raster_group
        Rows of tiles walked together, with ``"n"`` columns; ``None`` chooses by footprint, and in groups of rows by
        what L2 keeps.
    xcds
        Whether neighbouring tiles fall to workgroups of one die, which share its L2; else to all dies in turn.
    profile_tiles
        Tiles of a workgroup whose times every role notes (`tilekit trace`); 0, and there is no trace of it in the
        kernel.
    """

    RULES = rules.RULES
    MAX_STAGES = 8
    CLOCKS: ClassVar[Clocks]
    """What the cycle model says of the chip's loops."""

    tile: tuple[int, int] = (128, 128)
    driver: Driver = "warp_specialized"
    load_waves: int | None = None
    mma_waves: int | None = None
    mma_columns: int | None = None
    k_group: int = 1
    stages: int | None = None
    in_flight: int = 0
    counters: int | None = None
    swap_ab: bool = False
    split_k: int = 1
    raster_order: Walk = "m"
    raster_group: int | None = None
    xcds: bool = True
    profile_tiles: int = 0

    @property
    def together(self) -> bool:
        """Whether all waves load and multiply."""
        return self.driver != "warp_specialized"

    @property
    def loading(self) -> int:
        """Waves that load."""
        alone = self._waves[0] if self.load_waves is None else self.load_waves
        return self.multiplying if self.together else alone

    @property
    def multiplying(self) -> int:
        """Waves that multiply."""
        return self._waves[1] if self.mma_waves is None else self.mma_waves

    @property
    def grid(self) -> tuple[int, int]:
        """Waves that multiply, below each other and side by side."""
        columns = min(self._waves[2], self.multiplying) if self.mma_columns is None else self.mma_columns
        return self.multiplying // max(columns, 1), columns

    @property
    def _waves(self) -> tuple[int, int, int]:
        return WAVES.get(self.driver, WAVES["warp_specialized"])

    @property
    def pieces(self) -> int:
        """Pieces of a tile's rows and columns that waves read and multiply one by one."""
        return 2 if self.together else 1

    @property
    def least_stages(self) -> int:
        """Those that a wave holds, and the one that it waits for."""
        return 2 if self.driver == "interleaved" else self.in_flight + 1

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        if self.together:
            return f"driver={self.driver!r} overwrites one while it reads the other"
        return f"in_flight={self.in_flight} keeps as many back"

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the rest, and that the driver has a use for."""
        return min(super().stage_budget(target, spec), self.useful_stages(target, spec))

    def useful_stages(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that the driver has a use for: drivers without roles have two of loads past registers, else one."""
        if not self.together:
            return self.MAX_STAGES
        return 2 if all(past_registers(spec, self, name, target) for name in "ab") else 1

    @property
    def waves(self) -> int:
        """Waves of a workgroup."""
        return self.multiplying if self.together else self.loading + self.multiplying

    @property
    def accumulators(self) -> int:
        """Registers of a lane that hold sums."""
        return self.tile[0] * self.tile[1] // (64 * self.multiplying)

    def held_registers(self, stages: int) -> int:
        """Registers of a lane, of a driver without roles, for what it has read and, of one stage, what it loads."""
        (rows, columns), (down, across) = self.tile, self.grid
        halves = (1 if self.driver == "ping_pong" else 2) * rows // down + 2 * columns // across
        line = SWIZZLE_BYTES * self.k_group
        read = halves * line // (2 * LANES)
        staged = (rows + columns) * line // (LANES * self.multiplying) if stages == 1 else 0
        return (read + staged) // REGISTER_BYTES

    def operands(self, spec: MatmulSpec) -> tuple[OperandTile, OperandTile]:
        """A and B of a stage: K is contiguous in the image of either, however the operand lies in memory."""
        a, b = super().operands(spec)
        return replace(a, major="k", slices=self.k_group), replace(b, major="k", slices=self.k_group)

    def copy_plans(self, spec: MatmulSpec) -> tuple[CopyPlan | None, CopyPlan | None]:
        """None: what threads load has no plan beside."""
        return None, None

    def instruction(self, spec: MatmulSpec) -> Mfma:
        """The matrix instruction."""
        a, b = self.operands(spec)
        return spec.wave_op(a, b, waves=self.multiplying, columns=self.grid[1], pieces=self.pieces)

    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out: threads, from registers."""
        layout = self.instruction(spec).layout
        return OutputPlan(
            spec,
            layout,
            warpgroups=self.multiplying,
            buffers=0,
            transposed=self.swap_ab,
            tile=self.tile,
            staged=False,
        )

    @property
    def sync(self) -> type[SingleCounterSync] | type[SplitCounterSync]:
        """How the waves on both sides of the ring wait for each other."""
        return SplitCounterSync if self.counters == 2 else SingleCounterSync

    def ring_barriers(self, name: str) -> tuple[SharedDeclaration, ...]:
        """The counters of a stage, where roles wait for each other."""
        return () if self.together else self.sync.declared(name, 1)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        if self.together:
            return WarpPlan.together(target, waves=self.multiplying)
        return spec.components.plan(WarpPlan.waves(target, load=self.loading, mma=self.multiplying))

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else plural(self.stages, "stage")
        down, across = self.grid
        grid = f" as {down}x{across}" if across > 1 else ""
        waves = f"{self.loading} waves load, {self.multiplying} multiply{grid}"
        held = f", in flight {self.in_flight}, {plural(self.counters or 1, 'counter')}"
        if self.together:
            waves, held = f"{self.driver.replace('_', '-')}, {self.multiplying} waves{grid}", ""
        return (
            f"{'swapped, ' if self.swap_ab else ''}tile {self.tile[0]}x{self.tile[1]}, {waves}, "
            f"{stages}{f' of {self.k_group} slices' if self.k_group > 1 else ''}{held}"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (", raster along N" if self.raster_order == "n" else "")
            + ("" if self.xcds else ", tiles to all dies in turn")
        )
