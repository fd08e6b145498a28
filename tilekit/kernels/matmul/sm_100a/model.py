"""The model of Blackwell: which tiles are tried, and what limits each.

These kernels have not been timed on a B200. The tensor core's rates below are published measurements; what is not
published is scaled from the H200 (`sm_90a/model.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from tilekit.heuristics.picker import Array, Estimates
from tilekit.kernels.matmul.estimates import Configs, Estimate, Grid, Grids
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_100A, Target
from tilekit.tile_op.tcgen05 import LANES

SHARED_BYTES_PER_CLOCK = 128
"""What one SM's shared memory moves. It bounds small instructions: m128n64 of one CTA takes the 48 clocks of reading
192 rows of 32 bytes, m256n64 of a pair those of 160 in each CTA (SemiAnalysis, B200 micro-benchmarks)."""

L2_BYTES_PER_CLOCK = 9000
"""What the whole chip's L2 feeds to shared memory: as much as the H200's, 61 bytes per clock and SM here."""

SM_L2_BYTES_PER_CLOCK = 64
"""What one SM takes of it, however few work."""

STAGE_CLOCKS = 100
"""A stage's turn through the one thread that issues: a barrier's wait, descriptors, and a commit."""

SHARED_RATE_COST = 0.002
"""Time lost per byte and clock through shared memory above its rate, operand reads and the copy engine's writes
together. The H200's; it makes single CTAs at 128x256 13 % slower than pairs, where published kernels won 11 to 22 %
by pairs."""

STORE_BYTES_PER_CLOCK = 32
"""How fast an SM's accumulators leave."""

LAST_STORE_BYTES_PER_CLOCK = 12
"""The same for the last tile, whose stores nothing hides."""

LAUNCH_CLOCKS = 6000
"""From launch to launch in a stream, without any k-block: 3.3 us."""

CLUSTER_CLOCKS = 3500
"""What a cluster adds: its launch, and CTAs that wait for each other while the ring fills."""

CLAIM_CLOCKS = 1000
"""What a launch waits for the answer that nothing is left to claim."""

GPC_SMS = 18
"""Multiprocessors of a GPC, within which a cluster of more than a pair must lie (on a B200 of 148; they vary)."""

PAIRS = ((2, 1),)
WIDE = ((2, 1), (4, 1), (2, 2))
WIDEST = ((2, 1), (4, 1), (2, 2), (4, 2))

TILES = (
    (2, 128, (256,), WIDEST),
    (2, 128, (224, 192, 160, 128), WIDE),
    (2, 128, (96, 64), PAIRS),
    (2, 64, (256, 192, 128, 64), PAIRS),
    (1, 128, (256, 128, 64, 32), ((1, 1),)),
    (1, 64, (128, 64, 32, 16), ((1, 1),)),
)
"""CTAs of an instruction, rows of a CTA, columns, and clusters."""

SWAPPED_TILES = (
    (1, 128, (64, 32, 16), ((1, 1),)),
    (1, 64, (64, 32, 16), ((1, 1),)),
)
"""The same with swapped operands, for few rows: N takes the rows of a CTA, and M its columns."""

ONE_WAVE = (1, 0)
MORE_WAVES = (2, 2)
"""Accumulators and claims in flight: where one wave does everything, nothing follows that could overlap or be claimed.
Larger clusters are for problems of more waves."""

MORE_STATIC_WAVES = (MORE_WAVES[0], 0)
"""Where a scheduler of the caller's says which tile is next."""

BESIDE_SCALES = (1, 2)
"""For more waves where scales take the columns of a second accumulator."""


FOR_GROUPS: BlackwellConfig | None = BlackwellConfig(tile=(128, 128), cta_group=1, cluster=(1, 1), clc_stages=0)
"""What groups of rows take: the model has no figures for them."""

DECISIVE: tuple[str, ...] = ("tile", "cta_group")
TUNED: frozenset[str] = frozenset()


def default(spec: MatmulSpec) -> BlackwellConfig:
    """What suits large outputs; groups of rows and a scheduler of the caller's claim nothing, scales want room.

    Threads that read tiles of a stage have single CTAs.
    """
    claims = 0 if _keeps_schedule(spec) else BlackwellConfig.clc_stages
    if spec.tile_step > 1:
        return BlackwellConfig(accumulator_stages=1, clc_stages=claims)
    group = _group(spec)
    config = BlackwellConfig(clc_stages=claims, cta_group=group, cluster=(group, 1))
    return _fitting(spec, replace(config, tile=(128, 96)) if spec.own_sums else config)


def _group(spec: MatmulSpec) -> int:
    """CTAs of an instruction: a pair, of which no threads can read tiles of a stage."""
    return 1 if spec.staged_factors else 2


def _keeps_schedule(spec: MatmulSpec) -> bool:
    """Whether which tile is next is said by something else than claims."""
    return spec.groups is not None or spec.components.scheduler is not None


MOST_SUMS = 4
"""Sums of k-blocks on their way from the tensor core to the threads that add them."""


def _fitting(spec: MatmulSpec, config: BlackwellConfig) -> BlackwellConfig:
    """The config as a family needs it whose threads add the sums of k-blocks: one a stage, several on their way."""
    if not spec.own_sums:
        return config
    columns = config.tile[1] // (2 if config.cta_group == 2 and config.tile[0] < LANES else 1)
    return replace(config, k_group=1, accumulator_stages=min(MOST_SUMS, max(2, SM_100A.tensor_columns // columns)))


@lru_cache(maxsize=256)
def _legal(spec: MatmulSpec, target: Target) -> tuple[BlackwellConfig, ...]:
    found = []
    every = [*((tile, False) for tile in TILES), *((tile, True) for tile in SWAPPED_TILES)]
    overlaps = (ONE_WAVE, MORE_WAVES, *((BESIDE_SCALES,) if spec.tile_step > 1 else ()))
    if spec.components.scheduler is not None:
        overlaps = (ONE_WAVE, MORE_STATIC_WAVES)
    for (group, rows, widths, clusters), swapped in every:
        for columns, cluster, (accumulators, claims) in product(widths, clusters, overlaps):
            config = BlackwellConfig(
                tile=(rows, columns),
                cluster=cluster,
                cta_group=group,
                swap_ab=swapped,
                k_group=slices_of_a_stage(rows, columns),
                accumulator_stages=accumulators,
                clc_stages=claims,
            )
            config = _fitting(spec, config)
            one_wave = (accumulators, claims) == ONE_WAVE
            if (not one_wave or config.cluster_size == group) and config.legal(target, spec):
                found.append(config)
    # A B200 has not been asked how it moves boxes that are narrower than their swizzle.
    return tuple([config for config in found if not config.narrow_boxes(spec)] or found)


def slices_of_a_stage(rows: int, columns: int) -> int:
    """128-byte slices of K for which a stage of a small tile is worth its barriers."""
    return 4 if rows * columns <= 64 * 16 else 2 if rows * columns <= 64 * 96 else 1


def plain(spec: MatmulSpec, overrides: Mapping[str, Any]) -> BlackwellConfig:
    """A cluster of one instruction: a pair, unless single CTAs are asked for, or are all that there can be."""
    group = overrides.get("cta_group", _group(spec))
    return _fitting(spec, BlackwellConfig(cluster=(group, 1), cta_group=group))


def candidates(spec: MatmulSpec, target: Target) -> Iterator[BlackwellConfig]:
    """Every legal candidate for `spec` on `target`."""
    yield from _legal(spec, target)


def tuning_candidates(spec: MatmulSpec, target: Target) -> tuple[BlackwellConfig, ...]:
    """Nothing apart: no GPU has timed any of the candidates either."""
    return ()


def variants(config: BlackwellConfig, spec: MatmulSpec, target: Target) -> tuple[BlackwellConfig, ...]:
    """Legal variants in what the model knows nothing of: the raster."""
    along_n = replace(config, raster_order="n")
    return (along_n,) if config.raster_order == "m" and along_n.legal(target, spec) else ()


def collect(configs: Sequence[BlackwellConfig], spec: MatmulSpec) -> Configs:
    """What the estimates of these configs depend on."""
    return Configs.of(configs, spec)


def resident(configs: Configs, sms: int) -> Array:
    """CTAs of each that `sms` multiprocessors hold at once: pairs fill the chip, others leave gaps in a GPC."""
    size = configs.size
    in_gpcs = np.maximum(sms // GPC_SMS * (GPC_SMS // size) + sms % GPC_SMS // size, 1)
    return np.where(size <= 2, sms // size, in_gpcs) * size


@dataclass(frozen=True)
class BlockClocks:
    """Clocks of an SM for one k-block of a tile, each as if nothing else took time.

    Attributes
    ----------
    tensor
        Its matrix instructions.
    operands, writes
        Shared memory: what they read of A and B, and what the copy engine writes.
    l2
        The SM's part of what the chip's L2 delivers, to all CTAs that work at once.
    port
        The way from L2 into one SM, however few work.
    """

    tensor: float
    operands: float
    writes: float
    l2: float
    port: float

    @classmethod
    def of(cls, config: BlackwellConfig, spec: MatmulSpec, active: int) -> BlockClocks:
        """Work them out where `active` CTAs work at once."""
        a, b = config.operands(spec)
        (rows, columns), slices = config.tile, 4 * config.k_group
        share_a, share_b = config.multicast
        scales = config.instruction(spec).scale_columns * LANES
        fetched = (a.image_rows / share_a + b.image_rows / share_b) * spec.block_bytes * config.k_group + scales
        return cls(
            # An instruction takes 32 bytes of K. It runs N / 2 clocks, for a pair with 64 rows each half of that.
            tensor=slices * columns / (4 if config.cta_group == 2 and rows == 64 else 2),
            operands=slices * (rows + b.rows) * 32 / SHARED_BYTES_PER_CLOCK,
            writes=((a.image_rows + b.image_rows) * spec.block_bytes * config.k_group + scales)
            / SHARED_BYTES_PER_CLOCK,
            l2=fetched * active / L2_BYTES_PER_CLOCK,
            port=fetched / SM_L2_BYTES_PER_CLOCK,
        )

    @property
    def taken(self) -> float:
        """What the k-block takes: the slowest of them, and what traffic through shared memory adds."""
        rate = (self.operands + self.writes) / max(self.tensor, self.operands) * SHARED_BYTES_PER_CLOCK
        slowest = max(self.tensor, self.operands, self.l2, self.port, STAGE_CLOCKS)
        return slowest * (1 + SHARED_RATE_COST * max(0, rate - SHARED_BYTES_PER_CLOCK))


@dataclass(frozen=True)
class LaunchClocks:
    """Clocks of one launch: a main loop per wave, limited by its slowest resource, over the stores before.

    Attributes
    ----------
    block
        Of a k-block.
    waves, loop, store
        Rounds of tiles; clocks of a tile's main loop, and of its stores where another tile follows.
    hidden
        Whether the stores run while the next tile is multiplied.
    last_store, launch
        The last tile's stores; everything else that is the same for any K.
    """

    block: BlockClocks
    waves: int
    loop: float
    store: float
    hidden: bool
    last_store: float
    launch: float

    @classmethod
    def of(cls, config: BlackwellConfig, spec: MatmulSpec, grid: Grid) -> LaunchClocks:
        """Work them out."""
        block = BlockClocks.of(config, spec, grid.active)
        rows, columns = config.tile
        output = rows * columns * spec.out_dtype.bytes
        return cls(
            block=block,
            waves=grid.waves,
            loop=grid.k_blocks * block.taken,
            store=output / STORE_BYTES_PER_CLOCK,
            hidden=config.accumulator_stages > 1,
            last_store=output / LAST_STORE_BYTES_PER_CLOCK,
            launch=LAUNCH_CLOCKS
            + (CLUSTER_CLOCKS if config.cluster_size > 1 else 0)
            + (CLAIM_CLOCKS if config.claims_tiles else 0),
        )

    @property
    def loops(self) -> float:
        """All waves' main loops, with the stores that they do not hide."""
        turn = max(self.loop, self.store) if self.hidden else self.loop + self.store
        return min(self.waves, 1) * self.loop + max(self.waves - 1, 0) * turn

    @property
    def total(self) -> float:
        """The whole launch."""
        return self.loops + self.last_store + self.launch


def estimates(configs: Configs, spec: MatmulSpec, grids: Grids) -> Estimates:
    """Model the time of one launch of each."""
    found = []
    for config, grid in zip(configs.each, grids.each, strict=True):
        assert isinstance(config, BlackwellConfig)
        clocks = LaunchClocks.of(config, spec, grid)
        block = clocks.block
        l2 = max(block.l2, block.port)
        found.append(Estimate(config, grid.waves, grid.tiles, block.tensor, block.operands, l2, 0.0, 1.0, clocks.total))
    return Estimates(np.array([e.total for e in found]), found.__getitem__)
