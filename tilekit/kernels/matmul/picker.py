"""Choosing a config: every legal candidate, ranked by a small model of its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.operand import SPAN

L2_BYTES_PER_CLOCK = 6150
"""What the whole chip's L2 feeds to shared memory (DeepGEMM's cost model for H100 and H200)."""

SM_BYTES_PER_CLOCK = 64
"""What one SM takes from L2."""

SHARED_BYTES_PER_CLOCK = 128
"""What one SM reads from shared memory."""

LAUNCH_CLOCKS = 3000
"""From the launch to the first matrix instruction, and from the last store to the end; about 1.6 us."""

CLUSTER_CLOCKS = 1000
"""What a cluster adds to a launch: 0.5 to 0.6 us, measured at 512^3 and 1024^3 on an H200 (2026-11)."""

STORE_BYTES_PER_CLOCK = 32
"""How fast one SM's accumulators leave: conversion, stmatrix and the barriers between slabs."""

CANDIDATES = (
    MatmulConfig(tile=(128, 256), consumers=2),
    MatmulConfig(tile=(256, 128), consumers=2),
    MatmulConfig(tile=(128, 192), consumers=2),
    MatmulConfig(tile=(192, 128), consumers=3),
    MatmulConfig(tile=(128, 128), consumers=2),
    MatmulConfig(tile=(128, 64), consumers=2),
    MatmulConfig(tile=(64, 256), consumers=1),
    MatmulConfig(tile=(64, 128), consumers=1),
    MatmulConfig(tile=(64, 64), consumers=1),
)
"""Tiles and their consumer warpgroups; each is tried without a cluster and with two CTAs along M and along N."""


@dataclass(frozen=True)
class Estimate:
    """What the model says of one config for one problem, in SM clocks.

    Attributes
    ----------
    waves, tiles
        Rounds of tiles, and tiles in all.
    tensor, shared, l2
        Clocks per k-block that each resource needs.
    total
        Clocks of the launch.
    """

    config: MatmulConfig
    waves: int
    tiles: int
    tensor: float
    shared: float
    l2: float
    total: float


def candidates(spec: MatmulSpec, target: Target) -> Iterator[MatmulConfig]:
    """Every legal candidate for `spec` on `target`."""
    for base in CANDIDATES:
        for cluster in ((1, 1), (2, 1), (1, 2)):
            config = replace(base, cluster=cluster)
            if not config.problems(target, spec):
                yield config


def estimate(
    config: MatmulConfig, spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int, sms: int
) -> Estimate:
    """Model the time of one launch: waves of tiles, each limited by its slowest resource."""
    (tile_m, tile_n), (cluster_m, cluster_n) = config.tile, config.cluster
    rows, columns = -(-m // (tile_m * cluster_m)), -(-n // (tile_n * cluster_n))
    tiles = rows * columns * batches * config.cluster_size
    resident = sms // config.cluster_size * config.cluster_size
    waves = -(-tiles // resident)
    active = min(tiles, resident)
    k_blocks = -(-k * spec.a_dtype.bytes // SPAN)
    # m64nN reads 64 rows of A and N of B per 32 bytes of K and runs N / 2 clocks (PTX k16 of 16-bit types; fp8's k32 likewise).
    issues = 4 * tile_m // 64
    tensor = issues * tile_n / 2
    shared = issues * (64 + tile_n) * 32 / SHARED_BYTES_PER_CLOCK
    # Each CTA fetches its share of A and B once; multicast delivers the rest without another L2 read.
    fetched = (tile_m / cluster_n + tile_n / cluster_m) * SPAN
    l2 = max(fetched * active / L2_BYTES_PER_CLOCK, (tile_m + tile_n) * SPAN / SM_BYTES_PER_CLOCK / 2)
    latency = 1.0 if config.consumers > 1 else 1.15  # one consumer cannot hide the turn from tile to tile
    store = tile_m * tile_n * spec.out_dtype.bytes / STORE_BYTES_PER_CLOCK
    total = (
        waves * (k_blocks * max(tensor, shared, l2) * latency + store)
        + LAUNCH_CLOCKS
        + (CLUSTER_CLOCKS if config.cluster_size > 1 else 0)
    )
    return Estimate(config, waves, tiles, tensor, shared, l2, total)


def ranked(
    spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int = 1, sms: int | None = None
) -> list[Estimate]:
    """All candidates, best first."""
    sms = sms or target.multiprocessors
    found = [estimate(c, spec, target, m=m, n=n, k=k, batches=batches, sms=sms) for c in candidates(spec, target)]
    return sorted(found, key=lambda e: e.total)


def pick(
    spec: MatmulSpec, target: Target, *, m: int, n: int, k: int, batches: int = 1, sms: int | None = None
) -> MatmulConfig:
    """The best candidate by the model."""
    return ranked(spec, target, m=m, n=n, k=k, batches=batches, sms=sms)[0].config
