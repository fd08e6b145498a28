"""How a matmul kernel computes: tile, cluster, warps, stages; with every rule a config must meet."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.drivers.warp_specialized import WarpPlan
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.epilogue.staged import SLAB_BYTES, StagedEpilogue
from tilekit.errors import ConfigError
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.operand import SPAN

MAX_STAGES = 12
PLAIN_HEADROOM = 32
"""Registers a consumer thread needs beside its accumulators where the epilogue only converts them.

128 of 160, 192 of 232 and 208 of 240 assemble without a spill (ptxas 13.0.88).
"""

RICH_HEADROOM = 64
"""The same with a bias, a scale, an activation, an f32 output or direct stores: 96 of 160 fits, 192 of 255 spills."""

INSTRUCTION_HEADROOM = 24
"""Registers that must be left at launch beside one instruction's accumulators: with 128 at launch ptxas refuses n = 256 (C7602)."""

BARRIER_BYTES = 16
"""Full and empty mbarrier of one stage."""

ALIGNMENT_SLACK = 1024


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
    raster_group: int | None = None
    l2_promotion: str | None = "256B"

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one input stage."""
        return sum(self.tile) * SPAN

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer thread."""
        return self.tile[0] * self.tile[1] // (128 * max(self.consumers, 1))

    def output_bytes(self, spec: MatmulSpec) -> int:
        """Shared memory of the epilogue."""
        if spec.store == "direct":
            return 0
        return StagedEpilogue.shared_bytes(warpgroups=self.consumers, buffers=self.output_buffers)

    def stage_budget(self, target: Target, spec: MatmulSpec) -> int:
        """Stages that fit beside the epilogue."""
        free = target.shared_bytes - self.output_bytes(spec) - ALIGNMENT_SLACK
        return max(0, min(MAX_STAGES, free // (self.stage_bytes + BARRIER_BYTES)))

    def resolved_stages(self, target: Target, spec: MatmulSpec) -> int:
        """The stage count a kernel is built with."""
        return self.stages if self.stages is not None else self.stage_budget(target, spec)

    def warps(self, target: Target) -> WarpPlan:
        """The role plan."""
        return WarpPlan.of(consumers=self.consumers, accumulators=self.accumulators, registers=target.registers)

    def problems(self, target: Target | str, spec: MatmulSpec | None = None) -> list[str]:
        """Every rule this config violates on `target` for `spec` (default: bf16, K-major), each with its fix; empty if it can be built."""
        from tilekit.targets import target as lookup

        chip = lookup(target) if isinstance(target, str) else target
        spec = spec or MatmulSpec()
        found: list[str] = []
        tile_m, tile_n = self.tile
        cluster_m, cluster_n = self.cluster
        if self.consumers not in (1, 2, 3):
            return [
                f"consumers={self.consumers}: a CTA has 1, 2 or 3 consumer warpgroups; nearest: {min(max(self.consumers, 1), 3)}"
            ]
        step = 64 * self.consumers
        if tile_m <= 0 or tile_m % step:
            found.append(
                f"tile M={tile_m}: each of {self.consumers} consumer warpgroups takes a multiple of 64 rows; nearest: {_nearest(tile_m, step)}"
            )
        width = SLAB_BYTES // spec.out_dtype.bytes
        n_step = max(width, 64 if spec.b_major == "mn" else 8)
        if not 0 < tile_n <= 256 or tile_n % n_step:
            found.append(
                f"tile N={tile_n}: a multiple of {n_step} up to 256 (one wgmma, {spec.out_dtype} slabs of {SLAB_BYTES} bytes"
                f"{', N-major chunks of 64' if spec.b_major == 'mn' else ''}); nearest: {min(_nearest(tile_n, n_step), 256)}"
            )
        if min(self.cluster) < 1 or self.cluster_size > chip.max_cluster:
            found.append(f"cluster={self.cluster}: 1 to {chip.max_cluster} CTAs in all; nearest: (2, 1)")
            return found
        for operand, extent, sharers, major in (
            ("A", tile_m, cluster_n, spec.a_major),
            ("B", tile_n, cluster_m, spec.b_major),
        ):
            unit = 8 if major == "k" else 64
            if extent % (unit * sharers):
                found.append(
                    f"cluster={self.cluster} with tile {tile_m}x{tile_n}: {operand}'s {extent} rows are fetched in {sharers} slices of whole {unit}-row "
                    f"groups; nearest extent: {_nearest(extent, unit * sharers)}"
                )
        if not found:
            found += self._register_problems(chip, spec)
        if not 1 <= self.output_buffers <= 8:
            found.append(
                f"output_buffers={self.output_buffers}: 1 to 8; nearest: {min(max(self.output_buffers, 1), 8)}"
            )
        if self.in_flight not in (0, 1):
            found.append(f"in_flight={self.in_flight}: 0 or 1; nearest: {min(max(self.in_flight, 0), 1)}")
        if self.raster_group is not None and self.raster_group < 1:
            found.append(f"raster_group={self.raster_group}: at least 1, or None; nearest: 1")
        if self.l2_promotion not in (None, "64B", "128B", "256B"):
            found.append(f"l2_promotion={self.l2_promotion!r}: None, '64B', '128B' or '256B'")
        found += self._stage_problems(chip, spec)
        return found

    def check(self, target: Target, spec: MatmulSpec) -> None:
        """Raise `ConfigError` listing every problem, if there is one."""
        found = self.problems(target, spec)
        if found:
            raise ConfigError(found, what=f"{self} on {target.name}", code="TK-MM-006")

    def __str__(self) -> str:
        stages = "auto" if self.stages is None else self.stages
        return (
            f"tile {self.tile[0]}x{self.tile[1]}, cluster {self.cluster[0]}x{self.cluster[1]}, {self.consumers} consumers, "
            f"{stages} stages, in flight {self.in_flight}"
        )

    def _register_problems(self, chip: Target, spec: MatmulSpec) -> list[str]:
        tile_m, tile_n = self.tile
        plan = self.warps(chip)
        launch = plan.launch_registers(chip.registers)
        share = plan.mma.registers or launch
        plain = spec.store == "tma" and spec.functions == ElementwiseSpec() and spec.out_dtype.bits == 16
        limit = share - (PLAIN_HEADROOM if plain else RICH_HEADROOM)
        found = []
        if tile_n // 2 > launch - INSTRUCTION_HEADROOM:
            widest = (launch - INSTRUCTION_HEADROOM) * 2 // 64 * 64
            found.append(
                f"tile N={tile_n} with {self.consumers} consumers: one instruction's {tile_n // 2} accumulators do not fit the {launch} registers "
                f"a thread is launched with; nearest: tile N={widest}"
            )
        if self.accumulators > limit:
            narrower = limit * 128 * self.consumers // tile_m // 64 * 64
            more = "more consumers, or " if self.consumers < 3 else ""
            found.append(
                f"tile {tile_m}x{tile_n} over {self.consumers} consumers: {self.accumulators} accumulators a thread are {self.accumulators - limit} more than "
                f"fit its {share} registers beside the epilogue; nearest: {more}tile {tile_m}x{max(narrower, 64)}"
            )
        return found

    def _stage_problems(self, chip: Target, spec: MatmulSpec) -> list[str]:
        budget = self.stage_budget(chip, spec)
        least = 1 + self.in_flight
        if budget < least:
            output = self.output_bytes(spec)
            over = least * (self.stage_bytes + BARRIER_BYTES) + output + ALIGNMENT_SLACK - chip.shared_bytes
            return [
                f"shared memory: {least} stages of {self.stage_bytes} B and {output} B of output slabs are {over} B over the {chip.shared_bytes} B of a "
                f"CTA; the input stages are the largest object: nearest is a smaller tile, or output_buffers=1"
            ]
        if self.stages is not None and not least <= self.stages <= budget:
            over = (self.stages - budget) * (self.stage_bytes + BARRIER_BYTES)
            why = (
                f"{over} B over budget" if self.stages > budget else f"in_flight={self.in_flight} holds one stage back"
            )
            return [
                f"stages={self.stages}: {least} to {budget} fit ({why}); nearest: {min(max(self.stages, least), budget)}"
            ]
        return []


def _nearest(value: int, step: int) -> int:
    return max(step, round(value / step) * step)
