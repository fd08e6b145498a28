"""What Hopper's model needs of many configs, beside their grids, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilekit.heuristics.picker import Array
from tilekit.kernels.matmul.estimates import Configs
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A
from tilekit.tiles.operand import OperandTile

SHIFTED = 7
"""Times that shared memory moves each byte that is shifted, beside its copy."""

COPIED = 2
"""The same for what is copied in pieces of 4 or 8 bytes, which go through L1."""

PIXEL_CLOCKS = 4.0
"""Clocks in which the copy engine finds a pixel, whatever it copies of it (H200: 4.05 of 128 bytes, 4.05 of 64)."""


@dataclass(frozen=True)
class HopperConfigs(Configs):
    """What the estimates of many configs depend on, beside their grids.

    Attributes
    ----------
    k_group, pingpong, consumers_per_tile, accumulators
        The fields of these names.
    loaded_n
        Rows of B's image that are loaded.
    copies, copied, gathered
        Whether threads copy operands, how many bytes of a k-block's copies shared memory moves, and how many
        instructions a warp needs for them, or clocks the copy engine to find what it copies, where those take the time.
    stages
        Of the ring.
    drained
        Whether each k-block's instructions are waited for.
    pieces, buffers
        Subtiles of a warpgroup's part of a tile, and those on their way.
    factors
        That a thread chooses or reads for the sums of 64 rows of a k-block.
    """

    k_group: Array
    pingpong: Array
    consumers_per_tile: Array
    accumulators: Array
    loaded_n: Array
    copies: Array
    copied: Array
    gathered: Array
    stages: Array
    drained: Array
    pieces: Array
    buffers: Array
    factors: Array


def collect(configs: Sequence[MatmulConfig], spec: MatmulSpec) -> HopperConfigs:
    """What the estimates of these configs depend on."""
    plans = [[plan for plan in config.copy_plans(spec) if plan is not None] for config in configs]
    values = {
        "k_group": [config.k_group for config in configs],
        "pingpong": [config.pingpong for config in configs],
        "consumers_per_tile": [config.consumers_per_tile for config in configs],
        "accumulators": [config.accumulators for config in configs],
        "loaded_n": [config.operands(spec)[1].loaded_rows for config in configs],
        "copies": [bool(each) for each in plans],
        "copied": [sum(plan.tile.bytes * (SHIFTED if plan.shifts else COPIED) for plan in each) for each in plans],
        "gathered": [
            sum(plan.clocks for plan in each) + _finding_clocks(config, spec)
            for config, each in zip(configs, plans, strict=True)
        ],
        "drained": [config.in_flight == 0 for config in configs],
        "stages": [config.resolved_stages(SM_90A, spec) for config in configs],
        "pieces": [_pieces(config, spec) for config in configs],
        "buffers": [config.output_buffers for config in configs],
        "factors": [spec.factors(config.tile[1], swapped=config.swap_ab) for config in configs],
    }
    own = {name: np.array(column) for name, column in values.items()}
    return HopperConfigs(tuple(configs), **Configs.fields(configs, spec), **own)


def _pieces(config: MatmulConfig, spec: MatmulSpec) -> int:
    """Subtiles of a warpgroup's part of a tile."""
    subtiles = config.output(spec).subtiles
    return 1 if subtiles is None else subtiles.layout.blocks * len(subtiles.cuts)


def _finding_clocks(config: MatmulConfig, spec: MatmulSpec) -> float:
    """Clocks that the copy engine takes to find the rows of a k-block that lie in no order."""
    finds = spec.finds[:: -1 if config.swap_ab else 1]
    parts = zip(config.operands(spec), config.multicast, finds, strict=True)
    return PIXEL_CLOCKS * sum(_lines(tile) * tile.slices / sharers for tile, sharers, found in parts if found)


def _lines(tile: OperandTile) -> int:
    """Rows of a slice's image: of M or N, or of K in each chunk."""
    return tile.image_rows if tile.major == "k" else tile.image_rows // tile.chunk * tile.slice_k


def resident(configs: HopperConfigs, sms: int) -> Array:
    """CTAs of each that `sms` multiprocessors hold at once.

    A cluster lies within a processing cluster, which has 16 or 18 SMs or fewer: of an H200's 132, 30 clusters of four
    find room, and 15 of eight.
    """
    sms_of = np.where((configs.size > 2) & (sms > configs.size), sms * 10 // 11, sms)
    return np.maximum(sms_of, configs.size) // configs.size * configs.size
