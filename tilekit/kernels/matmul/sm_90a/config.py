"""How a matmul kernel computes on Hopper: tile, cluster, consumer warpgroups, accumulators in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilekit.annotations import call_checked
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.emulator.ptx.memory.tensor_map import L2Promotion
from tilekit.kernels.matmul.config import KernelConfig, plural
from tilekit.kernels.matmul.output import OutputPlan
from tilekit.kernels.matmul.sm_90a import rules
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.copy_plan import COPYING_REGISTERS
from tilekit.tile_io.tma import EVICT_FIRST, EVICT_LAST
from tilekit.tile_op.wgmma import ATOM_ROWS, Wgmma, atom_layout
from tilekit.tile_schedule.raster import Walk
from tilekit.tiles.operand import SWIZZLE_BYTES, SwizzleBytes

Schedule = Literal["cooperative", "pingpong"]

NARROW_SWIZZLES: dict[int, SwizzleBytes] = {16: 0, 32: 32}
"""The swizzle of an MN-major B whose tile is so many bytes wide: its image has rows as long as the tile is wide.

A tile that 64 bytes divide, but 128 do not, has rows of 64.
"""


@call_checked
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
        along N, columns along M. For a small M, or groups of few rows, since an instruction has 64 rows or more, but
        may have 8 columns.
    k_group
        128-byte slices of K in a stage: more of them mean fewer barriers.
    stages
        Stages of the input ring; ``None`` takes what shared memory allows.
    output_buffers
        Slabs of 128 bytes by 64 rows (with `swap_ab` by up to 64) in flight per warpgroup, on their way out; those of a
        residual come into the same, and its sum leaves from there.
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
        Cluster rows walked together, with ``"n"`` columns; ``None`` chooses by footprint, and in groups of rows by what
        L2 keeps.
    l2_promotion
        What L2 fetches at least where a TMA load misses. ``"256B"`` makes a quarter more reads of L2 and half as many
        more between its halves (H200: 2 % of the time at 64x57344x8192, 4 % at 16x8192x8192).
    l2_stream
        Operand that passes through L2, ``"a"`` or ``"b"``: it leaves first, and the other one last, as far as TMA loads
        them. ``None`` leaves both to the hardware.
    profile_tiles
        Tiles of a CTA whose times every role notes (`tilekit trace`); 0, and there is no trace of it in the kernel.
    """

    TARGET = "sm_90a"
    RULES = rules.RULES
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

    def orders_loads(self, spec: MatmulSpec) -> bool:
        """Whether a residual waits for the first operands: always, where one thread loads these.

        Convolutions of one wave take 2 to 5 % less, others as long (ten layers, H200): while the first stages fill,
        DRAM has nothing to spare.
        """
        return spec.loads_residual and not spec.copies

    @property
    def least_stages(self) -> int:
        """One to multiply, and what is held back."""
        return 1 + self.in_flight

    @property
    def least_stages_reason(self) -> str:
        """Why fewer stages than `least_stages` do not do."""
        return f"in_flight={self.in_flight} holds one stage back" if self.in_flight else "a ring has a stage"

    @property
    def pingpong(self) -> bool:
        """Whether the consumers take turns, each with whole tiles."""
        return self.schedule == "pingpong"

    @property
    def m_below_atom(self) -> bool:
        """Whether a tile has fewer rows than an instruction."""
        return self.tile[0] < ATOM_ROWS

    @property
    def consumers_per_tile(self) -> int:
        """Consumers that share a tile."""
        return 1 if self.pingpong else self.consumers

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer thread."""
        return max(self.tile[0], ATOM_ROWS) * self.tile[1] // (128 * max(self.consumers_per_tile, 1))

    def sum_registers(self, spec: MatmulSpec) -> int:
        """Registers of a consumer thread that hold sums: with promotion, those of a k-block too."""
        return spec.sum_registers(self.accumulators, self.tile[1], swapped=self.swap_ab)

    @property
    def l2_policies(self) -> tuple[int | None, int | None]:
        """How long L2 keeps A and B, as the instruction takes them."""
        if self.l2_stream is None:
            return None, None
        first = (self.l2_stream == "a") != self.swap_ab
        return (EVICT_FIRST, EVICT_LAST) if first else (EVICT_LAST, EVICT_FIRST)

    def instruction(self, spec: MatmulSpec) -> Wgmma:
        """The matrix instruction of the consumers that share a tile."""
        return Wgmma(*self.operands(spec), warpgroups=self.consumers_per_tile)

    def output(self, spec: MatmulSpec) -> OutputPlan:
        """What takes tiles out."""
        return OutputPlan(
            spec,
            atom_layout(self.tile[0] // max(self.consumers_per_tile, 1), self.tile[1]),
            warpgroups=self.consumers,
            buffers=self.output_buffers,
            transposed=self.swap_ab,
            cluster_k=self.cluster_k,
            tile=self.tile,
            in_place=spec.groups is None,  # rows of another group below a tile's last are stored one by one
        )

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The role plan."""
        plan = WarpPlan.register_accumulators(
            target,
            consumers=self.consumers,
            accumulators=self.sum_registers(spec),
            pingpong=self.pingpong,
            epilogue_loads=spec.loads_residual,
            copies=spec.copies,
            counts=spec.own_loaders,
            copying=max((p.registers for p in self.copy_plans(spec) if p is not None), default=COPYING_REGISTERS),
        )
        return spec.components.plan(plan)

    def b_swizzle(self, spec: MatmulSpec) -> SwizzleBytes:
        """Bytes over which the image of the instruction's B is swizzled: MN-major, no more than the tile is wide.

        The copy engine is slow where a box ends outside of its tensor, and narrow boxes bring no neighbour's elements.
        """
        _, (b, major) = spec.operands(swapped=self.swap_ab)
        width = self.tile[1] * b.bytes
        if major == "k" or spec.copies:
            return super().b_swizzle(spec)
        return NARROW_SWIZZLES.get(width, 64 if width % SWIZZLE_BYTES == 64 else SWIZZLE_BYTES)

    def trims(self, spec: MatmulSpec) -> bool:
        """Whether MN-major tiles are loaded without what the product does not use: plain ones, by the copy engine.

        264x8440x5344 with A transposed takes 45.0 us in tiles of 192x88 so, and 48.6 with whole chunks (H200).
        """
        return not (spec.copies or spec.own_loaders or spec.components)

    def __str__(self) -> str:
        stages = "all stages" if self.stages is None else plural(self.stages, "stage")
        return (
            f"{'swapped, ' if self.swap_ab else ''}tile {self.tile[0]}x{self.tile[1]}, "
            f"cluster {self.cluster[0]}x{self.cluster[1]}, "
            f"{plural(self.consumers, 'consumer')}{' pingpong' if self.pingpong else ''}, "
            f"{stages}{f' of {self.k_group} slices' if self.k_group > 1 else ''}, "
            f"in flight {self.in_flight}"
            + (f", split k {self.split_k}" if self.split_k > 1 else "")
            + (f", cluster k {self.cluster_k}" if self.cluster_k > 1 else "")
            + (f", stream k {self.stream_k}" if self.stream_k else "")
            + (f", prefetch {self.prefetch}" if self.prefetch else "")
            + (f", {plural(self.output_buffers, 'output buffer')}" if self.output_buffers != 2 else "")
            + (f", promotion {self.l2_promotion or 'none'}" if self.l2_promotion != "128B" else "")
            + (f", {self.l2_stream} through L2" if self.l2_stream else "")
            + (", raster along N" if self.raster_order == "n" else "")
            + (f", raster groups of {self.raster_group}" if self.raster_group else "")
        )
