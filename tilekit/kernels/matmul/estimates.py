"""What a model says of a config: the tiles of a problem, how they fall to the chip, and the time of the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_schedule.stream_k import StreamPlan


@dataclass(frozen=True)
class Grid:
    """How a problem's tiles fall to a chip.

    Attributes
    ----------
    tiles
        Tiles in all, each share of one counted, those beyond the edges that a cluster computes in vain included.
    waves, active, last
        Rounds of tiles, CTAs that work at once in a full one, and in the last one.
    k_blocks
        K-blocks of a tile, or of its share.
    rounds
        Tiles' worth of k-blocks on the longest way through the launch: the waves, or less where tiles are streamed.
    kept
        Shares of a streamed tile that are added to its head, at most.
    bytes
        Of both operands, with a part of what clusters fetch that are not the first to do so.
    columns
        N of the output, as the caller has it.
    outside
        Rows of both operands' tiles that lie outside of them, on average over the tiles.
    """

    tiles: int
    waves: int
    active: int
    last: int
    k_blocks: int
    rounds: float
    kept: int
    bytes: float
    columns: int
    outside: float

    @classmethod
    def of(cls, config: KernelConfig, spec: MatmulSpec, *, m: int, n: int, k: int, batches: int, resident: int) -> Grid:
        """Lay the tiles of `config` over a problem; the chip holds `resident` CTAs at once."""
        (tile_m, tile_n), (cluster_m, cluster_n) = config.tile, config.cluster
        output_columns = n
        if config.swap_ab:
            m, n = n, m
        rows, columns = -(-m // (tile_m * cluster_m)), -(-n // (tile_n * cluster_n))
        k_blocks = -(-k // config.k_block(spec.a_dtype))
        share = -(-k_blocks // (config.split_k * config.layers))
        tiles = rows * columns * batches * config.cluster_size * max(1, -(-k_blocks // max(share * config.layers, 1)))
        waves = -(-tiles // resident)
        active, rounds, kept = min(tiles, resident), float(waves), 0
        if config.streamed:
            size = config.cluster_size
            held = resident // size
            plan = StreamPlan.of(tiles=tiles // size, k_blocks=k_blocks, resident=held, most=config.streamed)
            active, rounds, kept = plan.clusters * size, plan.rounds(k_blocks), plan.kept(k_blocks)
        return cls(
            tiles=tiles,
            waves=waves,
            active=active,
            last=tiles - (waves - 1) * resident if tiles else 0,
            k_blocks=share,
            rounds=rounds,
            kept=kept,
            bytes=(m * _fetches(columns) + n * _fetches(rows)) * k * batches * spec.a_dtype.bytes,
            columns=output_columns,
            outside=tile_m * cluster_m - m / max(rows, 1) + tile_n * cluster_n - n / max(columns, 1),
        )


def _fetches(clusters: int) -> float:
    """How often an operand counts that so many clusters read: they meet in L2, but not always in time.

    128 x 7168 x 16384 takes 25 % longer where two clusters read the weights than where one does (H200).
    """
    return min(1 + 0.3 * (clusters - 1), 1.6)


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

    config: KernelConfig
    waves: int
    tiles: int
    tensor: float
    shared: float
    l2: float
    total: float


def ranking(estimates: Sequence[Estimate]) -> str:
    """Print estimates as a table, in the order given; clocks of each resource are of one k-block."""
    lines = [f"{'waves':>5} {'tiles':>7} {'tensor':>7} {'shared':>7} {'L2':>7} {'total':>10}  config"]
    lines += [
        f"{e.waves:>5} {e.tiles:>7} {e.tensor:>7.0f} {e.shared:>7.0f} {e.l2:>7.0f} {e.total:>10.0f}  {e.config}"
        for e in estimates
    ]
    return "\n".join(lines)
