"""How a matmul kernel computes by a warp's matrix instruction: tile, grid of warps, stages of copies ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilekit.assembly.shared import SharedDeclaration
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.matmul.warp_matrix import rules
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import PIECE, CopyPlan
from tilekit.tile_op.mma_sync import MmaSync
from tilekit.tile_schedule.raster import Walk
from tilekit.tiles.interleave import INTERLEAVED

Driver = Literal["multistage", "warp_specialized"]
"""The role loops of a kernel."""

RESERVED = 1024
"""Bytes of shared memory that a resident CTA has of its own (CUDA programming guide, compute capability 8.x)."""

LOADING = 1
"""Warps that load alone, in a driver with roles."""


@dataclass(frozen=True)
class WarpMatrixConfig(KernelConfig):
    """One way to run a matmul by a warp's matrix instruction; each chip has a kind of its own.

    Attributes
    ----------
    tile
        Output rows and columns of a CTA.
    driver
        Which role loops: ``"multistage"``, all warps copy, multiply and store; ``"warp_specialized"``, where the chip
        has a copy engine, one thread of a further warp starts its copies, and the others multiply and store; images
        are for the former.
    grid
        Warps below each other, and side by side, that share the tile.
    stages
        Stages of the input ring, of 128 bytes along K; ``None`` takes what shared memory allows.
    resident
        CTAs that a multiprocessor is to hold at once, which share its memory and registers.
    split_k
        CTAs that share a tile's sum, each with its range of K; the last adds them through a workspace.
    raster_order
        Tiles are walked down M first, ``"m"``, or along N, ``"n"``.
    raster_group
        Rows of tiles walked together, with ``"n"`` columns; ``None`` chooses by footprint, and in groups of rows by
        what L2 keeps.
    profile_tiles
        Tiles of a CTA whose times its warps note (`tilekit trace`); 0, and there is no trace of it in the kernel.
    """

    RULES = rules.RULES
    MAX_STAGES = 5

    tile: tuple[int, int] = (128, 128)
    driver: Driver = "multistage"
    grid: tuple[int, int] = (2, 2)
    stages: int | None = None
    resident: int = 1
    split_k: int = 1
    raster_order: Walk = "m"
    raster_group: int | None = None
    profile_tiles: int = 0

    k_group = 1

    @property
    def least_stages(self) -> int:
        """One to multiply, and one on its way."""
        return 2

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        return "one is multiplied while the next is on its way"

    @property
    def count(self) -> int:
        """Warps that multiply."""
        return self.grid[0] * self.grid[1]

    @property
    def together(self) -> bool:
        """Whether all warps load and multiply."""
        return self.driver == "multistage"

    @property
    def warps_in_all(self) -> int:
        """Warps of a CTA, those that load alone among them."""
        return self.count if self.together else self.count + LOADING

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        return self.tile[0] * self.tile[1] // (32 * self.count)

    def plans(self, spec: MatmulSpec) -> tuple[CopyPlan, CopyPlan]:
        """How threads copy A and B, where they do."""
        a, b = (
            spec.copy_plan(
                tile,
                PIECE if load == "tma" else load,
                warps=self.count,
                interleaved=side == "b" and self.interleaved(spec),
            )
            for side, tile, load in zip("ab", self.operands(spec), spec.loads, strict=True)
        )
        return a, b

    def interleaved(self, spec: MatmulSpec) -> bool:
        """Whether threads have neighbours of a row of the output, since B's rows are loaded in the order for that.

        Functions that know more than a column hold too many registers for eight neighbours.
        """
        if (
            not self.together
            or not isinstance(spec.functions, ElementwiseSpec)
            or spec.functions.residual
            or spec.functions.scale_a
        ):
            return False
        whole = self.tile[1] % (INTERLEAVED * self.grid[1]) == 0
        return whole and spec.b_major == "k" and spec.b_load == "tma" and not spec.finds[1]

    def copy_plans(self, spec: MatmulSpec) -> tuple[CopyPlan | None, CopyPlan | None]:
        """How threads copy A and B, if all of them do; else the copy engine has both."""
        return self.plans(spec) if self.together else (None, None)

    def instruction(self, spec: MatmulSpec) -> MmaSync:
        """The matrix instruction."""
        return MmaSync(*self.operands(spec), warps=self.count, columns=self.grid[1], interleaved=self.interleaved(spec))

    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out: threads, from registers."""
        layout = self.instruction(spec).layout
        return OutputPlan(
            spec, layout, warpgroups=self.count, buffers=0, transposed=False, tile=self.tile, staged=False
        )

    def ring_barriers(self, name: str) -> tuple[SharedDeclaration, ...]:
        """Mbarriers between roles; where there is one, its barrier is the CTA's."""
        return () if self.together else super().ring_barriers(name)

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        if self.together:
            return WarpPlan.together(target, waves=self.count)
        return spec.components.plan(WarpPlan.waves(target, load=LOADING, mma=self.count, copies=False))

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit where so many CTAs share a multiprocessor."""
        limit = (target.shared_bytes + RESERVED) // self.resident - RESERVED
        return min(self.MAX_STAGES, self.memory(spec).stages_within(limit))

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else plural(self.stages, "stage")
        return (
            f"tile {self.tile[0]}x{self.tile[1]}, {self.grid[0]}x{self.grid[1]} warps"
            f"{'' if self.together else ' beside one that loads'}, {stages}, "
            f"{plural(self.resident, 'CTA')} a multiprocessor"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (", raster along N" if self.raster_order == "n" else "")
        )
