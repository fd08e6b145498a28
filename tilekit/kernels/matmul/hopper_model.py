"""The model of Hopper: which tiles are tried, and what limits each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.estimates import Estimate, Grid
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, Target
from tilekit.tile_io.operand import SPAN

# The constants below were fitted to 14 shapes from 1536^3 to 12288^3 and 512 x 7168 x 16384 on an H200 (2026-11;
# benchmarks/NOTES.md has the figures). What counts is waves times columns: two tiles that need the same number of
# tensor-core clocks are within 2 % of each other, whatever their shape.

L2_BYTES_PER_CLOCK = 9000
"""What the whole chip's L2 feeds to shared memory."""

SHARED_BYTES_PER_CLOCK = 128
"""What one SM's shared memory moves, and what the reference tile below makes it move."""

LAUNCH_CLOCKS = 6500
"""From launch to launch in a stream, without any k-block: 3.3 us."""

CLUSTER_CLOCKS = 2500
"""What a cluster adds: its launch, and two CTAs that wait for each other while the ring fills."""

CLUSTER_COST = 0.012
"""Time lost to CTAs that wait for each other at every stage."""

REFERENCE_L2_RATE = 32
"""Bytes per clock that 128x256 tiles fetch from L2 in a cluster of two: the tile the factors are relative to."""

WAIT_COST = 0.01
"""Time lost where each k-block's instructions are waited for before the next one's are issued."""

L2_RATE_COST = 0.0015
"""Time lost per byte and clock fetched from L2 above the reference, once the SMs are at different places of K."""

SHARED_RATE_COST = 0.0004
"""Time lost per byte and clock through shared memory above the reference (operand reads, and writes of the copy
engine)."""

SHIFTED = 3
"""Times that shared memory moves each byte that is shifted, beside its copy: two words are read for one written."""

COPIED = 2
"""The same for what is copied in pieces of 4 or 8 bytes, which go through L1."""

STORE_BYTES_PER_CLOCK = 32
"""How fast an SM's accumulators leave where another tile follows."""

LAST_STORE_BYTES_PER_CLOCK = 12
"""The same for the last tile, whose stores nothing hides."""

DRAM_BYTES_PER_CLOCK = 2250
"""What DRAM delivers to the whole chip: 4.45 TB/s."""

TURN_CLOCKS = 250
"""From one k-block of 128 bytes to the next, however few columns there are: the barrier, the instructions' latency."""

SHARE_CLOCKS = 2500
"""What a share of a sum waits for the one before it, and tells the next."""

SHARE_BYTES_PER_CLOCK = 20
"""How fast a CTA adds its part to the workspace, reads and writes."""

EXCHANGE_CLOCKS = 1000
"""What the CTAs of a cluster wait for each other's shares of a sum (an assumption: nobody has timed it)."""

EXCHANGE_BYTES_PER_CLOCK = 32
"""How fast a CTA sends its share, and adds what it is sent (an assumption, too)."""

_SWAPPED = (
    *(MatmulConfig(tile=(64, n), consumers=1, k_group=2, swap_ab=True) for n in range(16, 80, 16)),
    *(MatmulConfig(tile=(64, n), consumers=1, swap_ab=True) for n in range(80, 144, 16)),
    *(MatmulConfig(tile=(128, n), consumers=2, swap_ab=True) for n in (32, 48, 64)),
)
"""For few rows: N takes the 64 rows of an instruction, and M its columns."""

CANDIDATES = (
    *_SWAPPED,
    *(MatmulConfig(tile=(128, n), consumers=2) for n in (*range(256, 80, -16), 64)),
    *(MatmulConfig(tile=(256, n), consumers=2) for n in (128, 112, 96)),
    *(MatmulConfig(tile=(256, n), consumers=2, in_flight=0) for n in (192, 176, 160)),
    *(MatmulConfig(tile=(192, n), consumers=3) for n in (128, 112, 96)),
    *(MatmulConfig(tile=(64, n), consumers=1) for n in (256, 224, 192, 160, 128, 112, 96, 80, 64)),
)
"""Tiles and their consumer warpgroups; each is tried without a cluster and with two CTAs along M and along N, and small
ones with up to four shares of K.

128x80 with two consumers is not among them: the model likes it for small outputs, where it took 0.70 (1000³) and 0.85
(512x2112x7168) of cuBLAS's speed, and 64x128 1.15 and 1.07 (H200).

The three with more than 128 accumulators a thread have room for three stages only, so no stage is held back.
"""


UNTIMED = (
    *(MatmulConfig(tile=(64, n), schedule="pingpong") for n in range(64, 272, 16)),
    *(MatmulConfig(tile=(128, n), schedule="pingpong") for n in range(64, 208, 16)),
    *(MatmulConfig(tile=(192, n), schedule="pingpong") for n in (96, 112, 128)),
    *(MatmulConfig(tile=(128, n), consumers=2) for n in range(88, 264, 16)),
    *(MatmulConfig(tile=(128, n), consumers=2, swap_ab=True) for n in (256, 224, 192, 160, 128)),
    *(MatmulConfig(tile=(256, n), consumers=2, swap_ab=True, in_flight=0) for n in (192, 176, 160)),
)
"""What no GPU has timed yet: consumers that take turns, widths between those of `CANDIDATES`, and its large tiles
turned round, which cover as much of M as those do of N.

The picker leaves them alone; tuning tries those that the model likes best, with the same clusters and shares.
"""


def default(spec: MatmulSpec) -> MatmulConfig:
    """What suits large outputs: of the widest tile whose accumulators leave the epilogue its registers."""
    config = _fitting(spec, MatmulConfig(cluster=(1, 1)) if spec.copies else MatmulConfig())
    widths = (config.tile[1], 192, 128, 96)
    wide = (replace(config, tile=(config.tile[0], width)) for width in widths)
    return next((legal for legal in wide if legal.legal(SM_90A, spec)), config)


def plain(spec: MatmulSpec, wishes: Mapping[str, Any]) -> MatmulConfig:
    """Two consumer warpgroups where the tile has rows for them or they take turns, and no cluster."""
    plain = MatmulConfig(cluster=(1, 1), **wishes)
    alone = plain.tile[0] < 128 and not plain.in_turn
    return _fitting(spec, replace(plain, consumers=1 if alone else 2))


def _fitting(spec: MatmulSpec, config: MatmulConfig) -> MatmulConfig:
    """The config as promotion needs it, where sums are promoted: every slice of K is waited for."""
    return replace(config, in_flight=0, k_group=1) if spec.promoted else config


SHARES = (1, 2, 3, 4)
LARGEST_SHARED_TILE = 128 * 144
"""Elements of a tile beyond which sums are not shared: adding them would take longer than it saves."""


@lru_cache(maxsize=64)
def candidates(spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """Every legal candidate for `spec` on `target`."""
    return _legal(_every(CANDIDATES, spec), spec, target)


@lru_cache(maxsize=64)
def untimed(spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """What tuning may try beside the candidates: streamed ones, and small ones with sums that a cluster shares."""
    small = (base for base in CANDIDATES if base.tile[0] * base.tile[1] <= LARGEST_SHARED_TILE)
    layered = (replace(base, cluster=(1, 1), cluster_k=layers) for base in small for layers in (2, 4, 8))
    streamed = (
        replace(base, cluster=cluster, stream_k=ranges)
        for base in CANDIDATES
        for cluster in ((1, 1), (2, 1), (1, 2))
        for ranges in ((2, 8) if base.tile[0] * base.tile[1] <= LARGEST_SHARED_TILE else (2,))
    )
    return _legal(chain(_every(UNTIMED, spec), layered, streamed), spec, target)


def variants(config: MatmulConfig, spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """Legal variants in what the model knows nothing of: prefetch, a short ring, the raster, groups in flight, L2."""
    short = short_ring(config, spec, target)
    changes: list[dict[str, Any]] = [{"prefetch": 4}, {"prefetch": 8}, {"stages": short}]
    changes += [{"stages": short, "prefetch": 4}, {"raster_order": "n"}, {"in_flight": 1 - config.in_flight}]
    changes += [{"l2_stream": "a"}, {"l2_stream": "b"}, {"raster_group": 8}, {"raster_group": 16}]
    found = dict.fromkeys(replace(config, **change) for change in changes)
    return tuple(v for v in found if v != config and v.legal(target, spec))


def short_ring(config: MatmulConfig, spec: MatmulSpec, target: Target) -> int:
    """Stages with which a multiprocessor holds two CTAs, one of the next launch beside one of this; at least one."""
    # 1 KB of each CTA's shared memory is the system's (CUDA C++ Programming Guide, compute capability 9.0).
    room = (target.shared_bytes + 1024) // 2 - 1024
    whole = config.resolved_stages(target, spec)
    return next((stages for stages in range(whole, 1, -1) if config.shared_bytes(spec, stages) <= room), 1)


def _legal(configs: Iterable[MatmulConfig], spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    fitting = dict.fromkeys(_fitting(spec, config) for config in configs)
    return tuple(config for config in fitting if config.legal(target, spec))


def _every(bases: tuple[MatmulConfig, ...], spec: MatmulSpec) -> Iterator[MatmulConfig]:
    for base in bases:
        for shares in SHARES if base.tile[0] * base.tile[1] <= LARGEST_SHARED_TILE and not spec.groups else (1,):
            for cluster in ((1, 1), (2, 1), (1, 2)):
                if not (base.swap_ab and spec.groups):
                    yield replace(base, cluster=cluster, split_k=shares)


def _all_waves(grid: Grid, wave: float) -> float:
    """Clocks of all waves, each of which takes `wave` if its operands come in time.

    Where there are several, DRAM has little to do during about half of the last one.
    """
    alone = wave / 2 if grid.waves > 1 else 0.0
    return max(grid.rounds * wave, grid.bytes / DRAM_BYTES_PER_CLOCK + alone)


def resident(config: MatmulConfig, sms: int) -> int:
    """CTAs that `sms` multiprocessors hold at once.

    Of clusters of four, 32 fit an H200's 132, whose processing clusters have 16 or 18 each; so not 33.
    """
    left_over = 1 if config.cluster_size > 2 and sms > config.cluster_size else 0
    return (sms // config.cluster_size - left_over) * config.cluster_size


def estimate(config: MatmulConfig, spec: MatmulSpec, grid: Grid) -> Estimate:
    """Model the time of one launch: waves of tiles, each limited by its slowest resource."""
    (tile_m, tile_n), (cluster_m, cluster_n) = config.tile, config.cluster
    # m64nN reads 64 rows of A and N of B per 32 bytes of K and runs N / 2 clocks (PTX k16 of 16-bit types; fp8's k32
    # likewise).
    issues = 4 * config.k_group * tile_m // 64
    tensor = issues * tile_n / 2
    # Each CTA fetches its share of A and B once; multicast delivers the rest without another L2 read. N-major, whole
    # chunks come.
    loaded_n = config.operands(spec)[1].image_rows
    fetched = (tile_m / cluster_n + loaded_n / cluster_m) * SPAN * config.k_group
    moved = issues * (64 + tile_n) * 32 + (tile_m + loaded_n) * SPAN * config.k_group
    copied = [plan for plan in config.copy_plans(spec) if plan is not None]
    moved += sum(plan.tile.bytes * (SHIFTED if plan.shifts else COPIED) for plan in copied)
    shared = moved / SHARED_BYTES_PER_CLOCK
    l2 = fetched * grid.active / L2_BYTES_PER_CLOCK
    factor = (
        1
        + L2_RATE_COST * (fetched / tensor - REFERENCE_L2_RATE) * (1 - 1 / max(grid.waves, 1))
        + SHARED_RATE_COST * (moved / tensor - SHARED_BYTES_PER_CLOCK)
        + (CLUSTER_COST if config.cluster != (1, 1) else 0)
        + (WAIT_COST if config.in_flight == 0 else 0)
    )
    k_block = max(max(tensor, l2, shared if copied else 0) * factor, TURN_CLOCKS * config.k_group)
    if spec.promoted and config.sharing == 1:
        k_block += config.accumulators  # an addition each, with no other consumer's instructions to hide it (no figure)
    alone = config.consumers == 1 and grid.waves > 1  # one consumer cannot hide the turn from tile to tile
    main = grid.k_blocks * k_block * (1.15 if alone else 1.0)
    output = tile_m * tile_n * spec.out_dtype.bytes / config.cluster_k
    exchange = EXCHANGE_CLOCKS + 4 * tile_m * tile_n / EXCHANGE_BYTES_PER_CLOCK if config.cluster_k > 1 else 0.0
    stores = output / STORE_BYTES_PER_CLOCK
    between = (grid.waves - 1) * stores
    if config.in_turn:  # the stores of all tiles but the last run under the next one's main loop (not timed)
        main, between = max(main, stores), 0.0
    shares = (config.split_k - 1) * (SHARE_CLOCKS + 2 * 4 * tile_m * tile_n / SHARE_BYTES_PER_CLOCK)
    # A CTA keeps its share of one tile, and adds those of others to the head of another.
    fixup = SHARE_CLOCKS + (1 + grid.kept) * 4 * tile_m * tile_n / SHARE_BYTES_PER_CLOCK if grid.kept else 0.0
    total = (
        _all_waves(grid, main)
        + fixup
        + (shares + exchange) * grid.waves
        + between
        + output / LAST_STORE_BYTES_PER_CLOCK
        + LAUNCH_CLOCKS
        + (CLUSTER_CLOCKS if config.cluster_size > 1 else 0)
    )
    return Estimate(config, grid.waves, grid.tiles, tensor, shared, l2, total)
