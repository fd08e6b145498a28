"""The model of chips whose matrix instruction is one warp's: which tiles are tried, and what limits each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np

from tilekit.heuristics.picker import Array, Estimates
from tilekit.kernels.matmul.estimates import Configs, Estimate, Grid, Grids
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tiles.operand import SWIZZLE_BYTES

LAUNCH_CLOCKS = 6_000
"""From launch to launch in a stream, without any k-block."""

LATENCY_CLOCKS = 900
"""From a tile's first copy to its first product."""

STAGE_CLOCKS = 60
"""The meeting of a CTA's warps, once a stage."""

READ_SHARE, READ_COST = 0.65, 0.6
"""Share of the matrix cores' time that reads of shared memory may take for nothing, and what a part beyond it costs.

Of the text for sm_80 on an H200: warps of 64x64 take 1.15 of the matrix cores' time, of 64x32 1.27 to 1.29.
"""

STAGES_AHEAD, SHORT_CLOCKS = 3, 90
"""Stages below which copies come late, and by how much a stage (H200: 128x128 tiles of two CTAs with two stages)."""

OVERLAP = 0.3
"""The part of the shorter of computing and reading memory that the longer one does not hide: assumed."""

STORE_BYTES_PER_CLOCK = 24
"""How fast a multiprocessor's accumulators leave."""

SHARE_CLOCKS = 2_500
"""What handing a share of a sum on costs, beside its bytes."""

ISSUED_PER_CLOCK = 4
"""Instructions that a multiprocessor issues."""

SHARED_BYTES_PER_CLOCK = 128
"""What a multiprocessor reads from shared memory."""

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (32, 128), (32, 64))
GRIDS = ((2, 4), (4, 2), (2, 2), (1, 4))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class WarpMatrixModel:
    """The model of one chip.

    Attributes
    ----------
    kind
        Its kind of config.
    memory_tbps
        What its memory delivers, TB/s.
    flops
        Of a multiprocessor's matrix cores in a clock, of 16-bit operands.
    l2_bytes
        What L2 brings a multiprocessor in a clock.
    """

    kind: type[WarpMatrixConfig]
    memory_tbps: float
    flops: int
    l2_bytes: int

    DECISIVE: ClassVar[tuple[str, ...]] = ("tile", "grid")
    TUNED: ClassVar[frozenset[str]] = frozenset({"stages", "resident", "driver"})
    FOR_GROUPS: ClassVar[WarpMatrixConfig | None] = None

    @property
    def target(self) -> Target:
        """The chip."""
        return target_named(self.kind.TARGET)

    def default(self, spec: MatmulSpec) -> WarpMatrixConfig:
        """What suits large outputs."""
        return self.kind() if self.kind().legal(self.target, spec) else self.kind(tile=(64, 64))

    def plain(self, spec: MatmulSpec, overrides: Mapping[str, Any]) -> WarpMatrixConfig:
        """The chip's default."""
        return self.kind()

    def candidates(self, spec: MatmulSpec, target: Target) -> Iterator[WarpMatrixConfig]:
        """Every legal candidate for `spec` on `target`."""
        yield from _legal(self.kind, spec, target)

    def tuning_candidates(self, spec: MatmulSpec, target: Target) -> Iterator[WarpMatrixConfig]:
        """The same with fewer stages, and with a role for the copy engine, of which the model has no figures."""
        for config in _legal(self.kind, spec, target):
            for change in ({"stages": 2}, {"stages": 3}, {"driver": "warp_specialized"}):
                changed = config.changed(**change)
                if config.split_k == 1 and changed.legal(target, spec):
                    yield changed

    def variants(self, config: WarpMatrixConfig, spec: MatmulSpec, target: Target) -> tuple[WarpMatrixConfig, ...]:
        """Legal variants in what the model knows nothing of: the raster."""
        return (config.changed(raster_order="n" if config.raster_order == "m" else "m"),)

    def collect(self, configs: Sequence[WarpMatrixConfig], spec: MatmulSpec) -> Configs:
        """What the estimates of these configs depend on."""
        return Configs.of(configs, spec)

    def resident(self, configs: Configs, sms: int) -> Array:
        """As many CTAs a multiprocessor as each config is for."""
        return np.array([sms * config.resident for config in configs.each])

    def estimates(self, configs: Configs, spec: MatmulSpec, grids: Grids) -> Estimates:
        """Model the time of one launch of each."""
        memory = self.memory_tbps * 1e6 / self.target.boost_mhz
        found = []
        for config, grid, fetched in zip(configs.each, grids.each, grids.bytes.tolist(), strict=True):
            assert isinstance(config, WarpMatrixConfig)
            found.append(_estimate(config, spec, self, grid, fetched / memory))
        return Estimates(np.array([e.total for e in found]), found.__getitem__)


def _estimate(config: WarpMatrixConfig, spec: MatmulSpec, model: WarpMatrixModel, grid: Grid, dram: float) -> Estimate:
    (rows, columns), (down, across) = config.tile, config.grid
    flops = model.flops * 16 / spec.a_dtype.bits
    tensor = 2 * rows * columns * config.k_block(spec.a_dtype) / flops
    # Each warp reads its rows of A and its columns of B; and copies write the stage.
    read = (rows * across + columns * down + rows + columns) * SWIZZLE_BYTES
    shared = read / SHARED_BYTES_PER_CLOCK
    l2 = (rows + columns) * SWIZZLE_BYTES / model.l2_bytes
    busy = max(1, min(config.resident, -(-grid.tiles // model.target.multiprocessors)))  # of no tiles, too
    # Threads look for what they load, where a family's own loaders do.
    clocks = sum(copies.clocks for copies in config.plans(spec)) if spec.own_loaders else 0
    found = clocks * config.count / ISSUED_PER_CLOCK
    # Reads of shared memory hold the matrix cores up where they take most of their time.
    busiest = max(tensor * (1 + READ_COST * max(0.0, shared / tensor - READ_SHARE)), shared, l2, found)
    block = busiest + STAGE_CLOCKS
    if config.resolved_stages(model.target, spec) < STAGES_AHEAD:
        block += SHORT_CLOCKS
    store = rows * columns * spec.out_dtype.bytes / STORE_BYTES_PER_CLOCK
    tile = LATENCY_CLOCKS / busy + grid.k_blocks * block + store / busy
    if config.split_k > 1:
        tile += SHARE_CLOCKS + 2 * rows * columns * 4 / STORE_BYTES_PER_CLOCK
    work = grid.waves * busy * tile
    total = LAUNCH_CLOCKS + max(work, dram) + OVERLAP * min(work, dram)
    return Estimate(config, grid.waves, grid.tiles, tensor, shared, l2, dram / max(grid.waves, 1), 1.0, total)


@lru_cache(maxsize=256)
def _legal(kind: type[WarpMatrixConfig], spec: MatmulSpec, target: Target) -> tuple[WarpMatrixConfig, ...]:
    found = []
    for tile, grid, resident, split in product(TILES, GRIDS, (1, 2, 3), SPLITS):
        config = kind(tile=tile, grid=grid, resident=resident, split_k=split)
        if config.legal(target, spec):
            found.append(config)
    return tuple(found)
