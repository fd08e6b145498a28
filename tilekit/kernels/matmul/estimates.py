"""What a model says of a config: the tiles of a problem, how they fall to the chip, and the time of the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilekit.heuristics.picker import Array, table
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_schedule.stream_k import StreamPlan


@dataclass(frozen=True)
class Configs:
    """What the grids of many configs depend on, an array of each field.

    Attributes
    ----------
    each
        The configs.
    tile_m, tile_n, cluster_m, cluster_n, size
        Rows and columns of a CTA's tile; CTAs of a cluster along M and N, and in all.
    swapped, shares, cluster_k, stream_k
        The fields `swap_ab`, `split_k`, `cluster_k` and `stream_k`.
    k_block
        Elements of K in a k-block.
    chunk_m, chunk_n
        Elements of a row of the images of the instruction's A and B, where they are MN-major.
    trimmed
        Whether the tiles are `OperandTile.trimmed`.
    """

    each: tuple[KernelConfig, ...]
    tile_m: Array
    tile_n: Array
    cluster_m: Array
    cluster_n: Array
    size: Array
    swapped: Array
    shares: Array
    cluster_k: Array
    stream_k: Array
    k_block: Array
    chunk_m: Array
    chunk_n: Array
    trimmed: Array

    @classmethod
    def of(cls, configs: Sequence[KernelConfig], spec: MatmulSpec) -> Configs:
        """Collect the fields."""
        return cls(tuple(configs), **cls.fields(configs, spec))

    @staticmethod
    def fields(configs: Sequence[KernelConfig], spec: MatmulSpec) -> dict[str, Array]:
        """The arrays, by their names."""
        operands = [config.operands(spec) for config in configs]
        values: dict[str, list[Any]] = {
            "tile_m": [config.tile[0] for config in configs],
            "tile_n": [config.tile[1] for config in configs],
            "cluster_m": [config.cluster[0] for config in configs],
            "cluster_n": [config.cluster[1] for config in configs],
            "size": [config.cluster_size for config in configs],
            "swapped": [config.swap_ab for config in configs],
            "shares": [config.split_k for config in configs],
            "cluster_k": [config.cluster_k for config in configs],
            "stream_k": [config.stream_k for config in configs],
            "k_block": [config.k_block(spec.a_dtype, spec.block_bytes) for config in configs],
            "chunk_m": [a.chunk for a, _ in operands],
            "chunk_n": [b.chunk for _, b in operands],
            "trimmed": [config.trims(spec) for config in configs],
        }
        return {name: np.array(column) for name, column in values.items()}


@dataclass(frozen=True)
class Grids:
    """How a problem's tiles fall to a chip: an array of each figure, with many configs' in their order.

    Attributes
    ----------
    along_m, along_n
        Extents of the product, as the instruction calls them.
    rows
        Of clusters, along what the instruction calls M.
    tiles
        Tiles in all, each share of one counted, those beyond the edges that a cluster computes in vain included.
    waves, active
        Rounds of tiles, and CTAs that work at once in a full one.
    k_blocks
        K-blocks of a tile, or of its share.
    rounds
        Tiles' worth of k-blocks on the longest way through the launch: the waves, or less where tiles are streamed.
    kept
        Shares of a streamed tile that are added to its head, at most.
    bytes
        Of both operands, with a part of what clusters fetch that are not the first to do so.
    read
        The part of the instruction's A, and of its B, that comes from DRAM.
    requests
        That L2 gets for 128 bytes of the instruction's A, and of its B: two where a row of a chunk begins in one line
        and ends in the next, and more where chunks have shorter rows.
    off_sector
        Whether tiles of an MN-major one share a line's sectors.
    outside
        Rows of both operands' images that lie outside of them, or beyond K, on average over the tiles and k-blocks, as
        each sharer fetches them.
    ragged
        Rows of MN-major operands' chunks that begin inside of them and end outside, likewise.
    vain
        Whether half of a cluster's CTAs or more have no tile, since the product has too few along M or N.
    asked
        Times that a line of L2 is asked for by the clusters of a wave in a k-block, of the operand of which it is most:
        MN-major, several rows of a few elements share a line.
    repeated
        Rows that a CTA loads in a slice of K, times the clusters of a wave that ask for the same ones, of the operand
        of which it is most: K-major, and rows are no whole halves of lines, so that nothing merges what is asked twice.
    sizes
        Of groups, those that were drawn: a launch's each.
    """

    along_m: Array
    along_n: Array
    rows: Array
    tiles: Array
    waves: Array
    active: Array
    k_blocks: Array
    rounds: Array
    kept: Array
    bytes: Array
    read: tuple[Array, Array]
    requests: tuple[Array, Array]
    off_sector: tuple[Array, Array]
    outside: Array
    ragged: Array
    vain: Array
    asked: Array
    repeated: Array
    sizes: Array | None = None

    @classmethod
    def of(
        cls,
        configs: Configs,
        spec: MatmulSpec,
        *,
        m: int,
        n: int,
        k: int,
        batches: int,
        resident: Array,
        groups: int = 0,
        read: tuple[float, float] = (1.0, 1.0),
    ) -> Grids:
        """Lay the tiles of each config over a problem; the chip holds `resident` CTAs of each at once.

        Of `groups` of rows, which are only known on the device, what is expected: that few are large and many small.
        `read` is the part of A, and of B, that comes from DRAM: elements that several rows have come from L2.
        """
        c = configs
        along_m, along_n = np.where(c.swapped, n, m), np.where(c.swapped, m, n)
        rows = -(-along_m // (c.tile_m * c.cluster_m))
        columns = -(-along_n // (c.tile_n * c.cluster_n))
        vain = (2 * along_m <= c.tile_m * c.cluster_m) & (c.cluster_m > 1)
        vain |= (2 * along_n <= c.tile_n * c.cluster_n) & (c.cluster_n > 1)
        drawn, sizes = rows[None], None
        if groups:
            sizes = _drawn_sizes(m, groups, counted=spec.groups == "counts")
            drawn = _rows_of(sizes, np.where(c.swapped, c.tile_n * c.cluster_n, c.tile_m * c.cluster_m))
            lines = drawn.mean(axis=0)
            rows, columns = np.where(c.swapped, rows, lines), np.where(c.swapped, lines, columns)
            drawn = drawn * np.where(c.swapped, rows / np.maximum(lines, 1), 1)
        k_blocks = -(-k // c.k_block)
        share = -(-k_blocks // (c.shares * c.cluster_k))
        shares = np.maximum(1, -(-k_blocks // np.maximum(share * c.cluster_k, 1)))
        tiles = rows * columns * batches * c.size * shares
        waves = -(-tiles // resident)
        active, kept = np.minimum(tiles, resident), np.zeros_like(tiles)
        each = np.ceil(drawn * (tiles / np.maximum(rows, 1)) / resident)
        rounds = each.mean(axis=0)
        rounds += CAUTION * np.clip(rounds - 1, 0, 1) * each.std(axis=0)
        for i in np.flatnonzero(c.stream_k):
            size, blocks = int(c.size[i]), int(k_blocks[i])
            plan = StreamPlan.of(
                tiles=int(tiles[i]) // size,
                k_blocks=blocks,
                resident=int(resident[i]) // size,
                most=int(c.stream_k[i]),
            )
            active[i], rounds[i], kept[i] = plan.clusters * size, plan.rounds(blocks), plan.kept(blocks)
        line = LINE_BYTES // spec.a_dtype.bytes
        beyond = 1 - k / np.maximum(k_blocks * c.k_block, 1)  # of the k-blocks, what lies beyond K
        outside, ragged, asked, repeated = (np.zeros(len(c.each)) for _ in range(4))
        requests, off_sector = [], []
        for first, extent, tile, chunk, participants, others in (
            (True, along_m, c.tile_m, c.chunk_m, c.cluster_n, columns),
            (False, along_n, c.tile_n, c.chunk_n, c.cluster_m, rows),
        ):
            is_a = c.swapped != first  # the caller's A, and not its B
            mn_major = np.where(is_a, spec.a_major == "mn", spec.b_major == "mn")
            count = np.maximum(-(-extent // tile), 1)
            rows_outside = tile - extent / count
            # Of the last tile's chunks, those that the operand ends in or before; trimmed, the one that it ends in.
            last = extent - (count - 1) * tile
            chunks = -(-tile // chunk) - last // chunk
            chunks = np.where(c.trimmed, (last < tile) & (last % chunk > 0), chunks)
            rows_beyond = np.where(mn_major, -(-tile // chunk) * line, tile - rows_outside) * beyond
            outside += (np.where(mn_major, 0, rows_outside) + rows_beyond) / participants
            ragged += np.where(mn_major, chunks / count * line, 0) / participants
            pitch = np.where(mn_major, extent, k) * spec.a_dtype.bytes
            together = np.where(mn_major & (pitch < LINE_BYTES), LINE_BYTES / np.maximum(pitch, 2), 0)
            overlap = np.clip(chunk / tile, 1, count)
            asked = np.maximum(asked, np.minimum(others * overlap, resident // c.size) * together)
            parted = np.where(~mn_major & (pitch % HALF_LINE_BYTES > 0), LINE_BYTES / np.clip(pitch, 2, LINE_BYTES), 0)
            repeated = np.maximum(repeated, tile / participants * np.minimum(others, resident // c.size) * parted)
            step = np.where(mn_major & (extent > tile), tile * spec.a_dtype.bytes, LINE_BYTES)
            begins = np.gcd(np.gcd(np.int64(pitch), np.int64(step)), LINE_BYTES)  # rows begin at its multiples
            width = np.where(mn_major, np.minimum(chunk * spec.a_dtype.bytes, LINE_BYTES), LINE_BYTES)
            crossing = np.where(LINE_BYTES % np.maximum(pitch, 1), np.maximum(width - begins, 0) / LINE_BYTES, 0)
            requests.append((1 + crossing) * LINE_BYTES / width)
            aligned = pitch % SECTOR_BYTES == 0  # else rows begin anywhere, whatever the tile
            off_sector.append(mn_major & aligned & (tile * spec.a_dtype.bytes % SECTOR_BYTES > 0) & (extent > tile))
        parts = np.where(c.swapped, *read[::-1]), np.where(c.swapped, *read)
        copies = [np.where(c.swapped == weights, max(groups, 1), 1) for weights in (True, False)]
        fetched = along_m * parts[0] * _fetches(columns / copies[0]) * copies[0]
        fetched = fetched + along_n * parts[1] * _fetches(rows / copies[1]) * copies[1]
        return cls(
            along_m=along_m,
            along_n=along_n,
            rows=rows,
            tiles=tiles,
            waves=waves,
            active=active,
            k_blocks=share,
            rounds=rounds,
            kept=kept,
            read=parts,
            bytes=fetched * k * batches * spec.a_dtype.bytes,
            requests=(requests[0], requests[1]),
            off_sector=(off_sector[0], off_sector[1]),
            outside=outside,
            ragged=ragged,
            vain=vain,
            asked=asked,
            repeated=repeated,
            sizes=sizes,
        )

    def filled(self, heights: Array, step: int) -> Array:
        """Of the rows of groups' tiles, with these heights, those of blocks of `step` rows that a group reaches.

        Where there is no tile, all of none.
        """
        if self.sizes is None:
            return np.ones(len(heights))
        blocks = _rows_of(self.sizes, np.full(len(heights), step)).sum(axis=0)
        rows = heights * _rows_of(self.sizes, heights).sum(axis=0)
        return np.where(rows > 0, step * blocks / np.maximum(rows, 1), 1.0)

    @property
    def each(self) -> list[Grid]:
        """One config's at a time."""
        columns = (self.tiles, self.waves, self.active, self.k_blocks)
        return [Grid(*figures) for figures in zip(*(column.tolist() for column in columns), strict=True)]


@dataclass(frozen=True)
class Grid:
    """The figures of `Grids` for one config."""

    tiles: int
    waves: int
    active: int
    k_blocks: int


LINE_BYTES = 128
"""What L2 is asked for at once."""

HALF_LINE_BYTES = 64
"""What L2 is asked for once by neighbours that need it at the same time (docs/hardware-facts.md)."""

SECTOR_BYTES = 32
"""What a line is made of."""


DRAWS = 32
"""Launches whose groups' sizes are drawn, to see how many tiles are expected."""


CAUTION = 1.0
"""Of the deviation of launches' rounds of tiles, what counts besides their mean: all of it from a second round on.

A config whose tiles mostly just fit takes a fifth longer where they do not: groups of 1693, 536, 1453 and 803 rows by
3072 x 8192 take 442 us in 128x224, with 532 tiles for 4 rounds of 132, and 382 in 192x160. What is picked for 106 sets
loses 3.6 % of the best with 1, 3.7 % with 0.7 and 4.1 % with 0 (H200).
"""


LEAST_FILLED = 0.3
"""The least part of the rows that there is room for which counted groups are expected to have.

Of 18 sets with scales of blocks what is picked loses 2.3 % of the best with 0.3, 3.3 % with 0.5, and 0.6 % where the
model is told the sizes (H200).
"""


def _drawn_sizes(m: int, groups: int, *, counted: bool) -> Array:
    """Sizes of so many groups in launches with `m` rows in all: ``(DRAWS, groups)``.

    Of groups that lie behind each other few are large and many small: sizes are exponentially distributed. Of groups
    that have a place of their own each (`counted`), `m` is the rows of these places, of which any part from
    `LEAST_FILLED` on is taken.
    """
    random = np.random.default_rng(0)
    if counted:
        return np.ceil(random.uniform(LEAST_FILLED, 1.0, (DRAWS, groups)) * (m / groups))
    parts = random.exponential(size=(DRAWS, groups))
    sizes: Array = np.rint(parts * (m / parts.sum(axis=1, keepdims=True)))
    return sizes


def _rows_of(sizes: Array, heights: Array) -> Array:
    """Rows of tiles of each height in launches of groups with these sizes: ``(DRAWS, heights)``."""
    unique, which = np.unique(heights, return_inverse=True)
    rows: Array = np.ceil(sizes[:, :, None] / unique).sum(axis=1)[:, which]
    return rows


def _fetches(clusters: Array) -> Array:
    """How often an operand counts that so many clusters read: they meet in L2, but not always in time.

    128 x 7168 x 16384 takes 25 % longer where two clusters read the weights than where one does (H200).
    """
    return np.minimum(1 + 0.31 * (clusters - 1), 1.61)


@dataclass(frozen=True)
class Estimate:
    """What the model says of one config for one problem, in SM clocks.

    Attributes
    ----------
    waves, tiles
        Rounds of tiles, and tiles in all.
    tensor, shared, l2
        Clocks per k-block that each resource needs.
    dram
        Clocks per wave that DRAM needs; 0 where the model does not know.
    power
        How many times as long the launch takes for what power limits.
    total
        Clocks of the launch.
    """

    config: KernelConfig
    waves: int
    tiles: int
    tensor: float
    shared: float
    l2: float
    dram: float
    power: float
    total: float


RANKING_UNITS = {
    "waves": "rounds of tiles",
    "tiles": "output tiles in all",
    "tensor": "SM clocks per k-block that the tensor cores need",
    "shared": "SM clocks per k-block that shared memory needs",
    "l2": "SM clocks per k-block that L2 needs",
    "dram": "SM clocks per wave that DRAM needs",
    "power": "how many times as long the launch takes for what power limits",
    "total": "SM clocks of the launch; the config with the fewest is picked",
}
"""What the figures of a ranking are, by their names in an `Estimate`."""


def ranking(estimates: Sequence[Estimate]) -> str:
    """Print estimates as a table, in the order given; clocks of each resource are of one k-block, DRAM's of a wave."""
    names = ("waves", "tiles", "tensor", "shared", "L2", "DRAM", "power", "total")
    rows = (
        (
            f"{e.waves}",
            f"{e.tiles}",
            *(f"{clocks:.0f}" for clocks in (e.tensor, e.shared, e.l2, e.dram)),
            f"{e.power:.2f}",
            f"{e.total:.0f}",
        )
        for e in estimates
    )
    return table(dict(zip(names, (5, 7, 7, 7, 7, 9, 6, 10), strict=True)), rows, (e.config for e in estimates))
