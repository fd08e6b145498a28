"""Which configs of Hopper's matmul are tried: by the picker, by tuning alone, and what suits where nothing is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, Target
from tilekit.tile_op.wgmma import ATOM_ROWS

_WIDTHS = (*range(16, 192, 8), *range(192, 272, 16))
"""Columns that spread any N over almost all SMs, in one wave or a few."""

_TALL = range(136, 200, 8)
"""Columns of tiles of 256 rows that leave no room for a stage held back.

With all of them 3104x1528x7016 is one wave of 132 tiles of 256x144: 99.8 us, and 106.3 in 120 of 256x160 (H200).
"""


_ONE_OR_TWO_SLICES = range(72, 104, 8)
"""Columns of tiles of 64 rows whose stages hold one slice of K, or two.

Of 912x472x3952, A transposed, 64x80 in 4x2 takes 10.8 us with eleven stages of one and 12.2 with five of two; of 17
pairs of 64x72 to 64x88 turned round without a cluster the larger stages take 3 % less (H200).
"""


def _rows(rows: int, widths: Iterable[int]) -> tuple[MatmulConfig, ...]:
    """Tiles of one consumer, with as many slices of K in a stage as keep enough of B in flight."""
    return tuple(
        MatmulConfig(tile=(rows, n), consumers=1, k_group=4 if n <= 32 else 2 if n <= 96 else 1) for n in widths
    )


_SWAPPED = (
    *(MatmulConfig(tile=(64, n), consumers=1, k_group=2, swap_ab=True) for n in range(8, _ONE_OR_TWO_SLICES.stop, 8)),
    *(MatmulConfig(tile=(64, n), consumers=1, swap_ab=True) for n in range(_ONE_OR_TWO_SLICES.start, 200, 8)),
    *(MatmulConfig(tile=(128, n), consumers=2, swap_ab=True) for n in range(16, 264, 8)),
    *(MatmulConfig(tile=(192, n), consumers=3, swap_ab=True) for n in range(40, 192, 8)),
    *(MatmulConfig(tile=(256, n), consumers=2, swap_ab=True) for n in (16, 24, *range(32, 136, 8))),
)
"""N takes the 64 rows of an instruction, and M its columns: as many tiles as fill the chip once, for any M."""

CANDIDATES = (
    *_SWAPPED,
    *(config for rows in (64, 48, 32, 16, 8) for config in _rows(rows, _WIDTHS)),
    *(MatmulConfig(tile=(64, n), consumers=1) for n in _ONE_OR_TWO_SLICES),
    *(MatmulConfig(tile=(128, n), consumers=2) for n in _WIDTHS if n != 80),
    *(MatmulConfig(tile=(256, n), consumers=2) for n in range(48, 136, 8)),
    *(MatmulConfig(tile=(256, n), consumers=2, in_flight=0, swap_ab=swap) for swap in (False, True) for n in _TALL),
    *(MatmulConfig(tile=(192, n), consumers=3) for n in range(64, 192, 8)),
    *(MatmulConfig(tile=(192, 200), consumers=3, swap_ab=swap) for swap in (False, True)),
    *(MatmulConfig(tile=(192, 192), consumers=3, swap_ab=swap, output_buffers=1) for swap in (False, True)),
    MatmulConfig(tile=(256, 128), consumers=2, in_flight=0, output_buffers=1),
    *(MatmulConfig(tile=(128, n), schedule="pingpong") for n in range(64, 200, 8)),
    *(MatmulConfig(tile=(192, n), schedule="pingpong") for n in (96, 112, 128)),
    *(MatmulConfig(tile=(192, n), schedule="pingpong", swap_ab=True, output_buffers=1) for n in range(64, 104, 8)),
    *(MatmulConfig(tile=(128, n), schedule="pingpong", swap_ab=True) for n in range(64, 200, 8)),
)
"""Tiles and their consumer warpgroups.

Each is tried without a cluster and with two CTAs along M and along N, and all but the largest with up to four shares of
K, or narrow ones with two in a cluster.

128x80 with two consumers is not among them: the model liked it for small outputs, where it took 0.70 (1000³) and 0.85
(512x2112x7168) of cuBLAS's speed, and 64x128 1.15 and 1.07 (H200).

Those with more than 128 accumulators a thread have room for three stages only, so no stage is held back.

192x64 to 192x96 in turn, their stores in one buffer, have six stages where others of their size have five: in one wave
a warpgroup multiplies alone, and 165x12288x4096, whose weights come from DRAM, takes 33.1 us for 34.3 (H200).
"""


TUNING_CANDIDATES = (
    *(MatmulConfig(tile=(64, n), schedule="pingpong") for n in range(64, 272, 16)),
    *(MatmulConfig(tile=(128, n), consumers=2) for n in range(200, 264, 16)),
)
"""What the picker leaves alone, since it hardly ever won where it was timed: consumers that take turns at 64 rows, and
widths between those of `CANDIDATES`.

Tuning tries those that the model likes best, with the same clusters and shares.
"""


DECISIVE: tuple[str, ...] = ("tile", "schedule")
TUNED = frozenset({"schedule", "stream_k"})
FOR_GROUPS: MatmulConfig | None = None
"""Groups of rows are picked for by the model."""


def default(spec: MatmulSpec) -> MatmulConfig:
    """What suits large outputs: of the widest tile whose accumulators leave the epilogue its registers."""
    config = _fitting(spec, MatmulConfig(cluster=(1, 1)) if spec.copies else MatmulConfig())
    widths = (config.tile[1], 192, 128, 96)
    wide = (replace(config, tile=(config.tile[0], width)) for width in widths)
    return next((legal for legal in wide if legal.legal(SM_90A, spec)), config)


def plain(spec: MatmulSpec, overrides: Mapping[str, Any]) -> MatmulConfig:
    """Two consumer warpgroups where the tile has rows for them or they take turns, and no cluster."""
    plain = MatmulConfig(cluster=(1, 1), **overrides)
    alone = plain.tile[0] < 128 and not plain.pingpong
    return _fitting(spec, replace(plain, consumers=1 if alone else 2))


def _fitting(spec: MatmulSpec, config: MatmulConfig) -> MatmulConfig:
    """The config as promotion needs it, where sums are promoted: every slice of K is waited for."""
    return replace(config, in_flight=0, k_group=1) if spec.promoted else config


PLACES = (4, 3, 2)
"""Subtiles of a residual on their way, a warpgroup, from which its sum leaves: more where the model sees no loss."""

AHEAD = 2
"""K-blocks of the weights that a CTA brings into L2 while the kernel before this one ends.

Launches of 10 us take 2 to 5 % less, long ones as long; with 8 and 12 all take longer, and 1000^3, in a cluster, 2.6 %
with any (H200).
"""

LARGEST_TILE_AHEAD = 128 * 192
"""Elements of the tiles that do so: those of short launches."""

SHARES = (1, 2, 3, 4)
LARGEST_SHARED_TILE = 192 * 192
"""Elements of a tile beyond which sums are not shared.

Where there are few rows and a long K large ones fill the chip once: 168x8192x28672 takes 151 us in three shares of
192x168, 129 CTAs, and 172 in three of 192x96, which are two waves (H200).
"""

SMALL_TILE = 128 * 144
"""Elements of a tile up to which wide clusters' sums are shared, and tuning tries sums that a cluster shares, and tiles
cut into many ranges. Of 1,200 swept cases larger shares of wide clusters were the quickest of 3, by 2 % at most.

Where an operand is not a plain matrix no larger tile's sum is shared: two convolutions whose larger shares the model
liked took 3 and 4 % more (H200).
"""

MANY_SHARES = (5, 8)
LARGEST_MANY_SHARED_TILE = 64 * 128
"""Elements of a tile up to which a sum has so many: of few tiles and a long K."""

SHARES_OF_EIGHT = (1, 2, 3)
"""Of clusters of eight: 266x608x11720 in three shares takes 17.6 us in 1x4 and 15.3 in 2x4."""


@lru_cache(maxsize=64)
def candidates(spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """Every legal candidate for `spec` on `target`."""
    return _legal(_every((*_bases(spec), *_deeper(spec, target, short=True)), spec), spec, target)


def _bases(spec: MatmulSpec) -> tuple[MatmulConfig, ...]:
    """The candidates' tiles; a residual comes into the buffers that its sum leaves from, two or more of them."""
    if not spec.loads_residual:
        return CANDIDATES
    return tuple(replace(b, output_buffers=places) for places in PLACES for b in CANDIDATES)


@lru_cache(maxsize=64)
def tuning_candidates(spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """What tuning may try beside the candidates.

    Streamed ones, small ones with sums that a cluster shares, and those that have a stage more where stores have one
    buffer.
    """
    small = (base for base in CANDIDATES if base.tile[0] * base.tile[1] <= SMALL_TILE)
    shared = (replace(base, cluster=(1, 1), cluster_k=ctas) for base in small for ctas in (2, 4, 8))
    streamed = (
        replace(base, cluster=cluster, stream_k=ranges)
        for base in CANDIDATES
        for cluster in ((1, 1), (2, 1), (1, 2))
        for ranges in ((2, 8) if base.tile[0] * base.tile[1] <= SMALL_TILE else (2,))
    )
    deeper = (c for c in _every(_deeper(spec, target, short=False), spec) if c.cluster_k == 1)
    known = set(candidates(spec, target))
    every = chain(_every(TUNING_CANDIDATES, spec), deeper, shared, streamed)
    return tuple(c for c in _legal(every, spec, target) if c not in known)


SHORT_RING = 4
"""Stages of a ring up to which another is worth a buffer of the stores'."""


def _deeper(spec: MatmulSpec, target: Target, *, short: bool) -> tuple[MatmulConfig, ...]:
    """The candidates' tiles whose ring has a stage more with one buffer for stores; with `short` where it was quicker.

    cuBLAS has that stage with the same tiles (128x192 with five stages). Timed in pairs of one wave (H200, 189):
    with three warpgroups 6 % less time from three stages to four, 2 % less from four to five; with two 0 and 2 % less,
    from 14 % less to 5 % more; from six on as long, and 2 to 5 % longer where consumers take turns.
    """
    if short and (spec.loads_residual or not _timed_in_all(spec)):
        return ()
    found = []
    for base in CANDIDATES:
        if short and (base.pingpong or base.output_buffers == 1):
            continue
        one, two = (replace(base, cluster=(1, 1), output_buffers=count) for count in (1, 2))
        if not two.legal(target, spec):
            continue
        stages = two.resolved_stages(target, spec)
        if one.resolved_stages(target, spec) > stages and not (short and stages > SHORT_RING):
            found.append(replace(base, output_buffers=1))
    return tuple(found)


def variants(config: MatmulConfig, spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    """Legal variants in what the model knows nothing of: prefetch, the raster, groups in flight, L2, one consumer.

    One consumer of all rows often leaves the ring a stage more: of 43 products that were behind, configs of one that
    are no candidates were the quickest of 9, by 2 to 6 % (H200).
    """
    changes: list[dict[str, Any]] = [{"prefetch": blocks} for blocks in (0, AHEAD, 4)]
    changes += [{"raster_order": "n"}, {"in_flight": 1 - config.in_flight}]
    changes += [{"l2_stream": "a"}, {"l2_stream": "b"}, {"raster_group": 8}, {"raster_group": 16}]
    changes += [{"output_buffers": places} for places in PLACES if spec.loads_residual]
    if config.consumers == 2 and not (config.split_k > 1 or config.cluster_k > 1 or config.stream_k):
        changes += [{"consumers": 1, "schedule": "cooperative"}]
    found = dict.fromkeys(replace(config, **change) for change in changes)
    return tuple(v for v in found if v != config and v.legal(target, spec))


def _legal(configs: Iterable[MatmulConfig], spec: MatmulSpec, target: Target) -> tuple[MatmulConfig, ...]:
    fitting = dict.fromkeys(_fitting(spec, config) for config in configs)
    return tuple(config for config in fitting if config.legal(target, spec))


CLUSTERS = ((1, 1), (2, 1), (1, 2))
WIDE_CLUSTERS = ((4, 1), (1, 4), (2, 2), (4, 2), (2, 4))
"""Clusters of which not all SMs can be a part: 30 of four CTAs and 15 of eight fit an H200's 132.

Those of two by two ask L2 for half of both operands: 848x488x3256 with both MN-major 11.8 us in 4x1, 10.2 in 2x2.
"""

LARGEST_TILE_OF_WIDE = 128 * 192
"""Elements of a tile up to which wide clusters are tried: those of launches of few tiles."""

LARGEST_FACTORED_TILE = 64 * 32
"""Elements of a swapped tile up to which it is tried where groups' sums have factors, each column its own then.

32 groups of 1 to 16 rows by 2048 x 7168 take 1.8 % less than upright, 8 of one or two by 4096 x 7168 6 %; but 16 of 37
to 120 rows 180 us in the quickest of larger ones and 140 upright, 24 of 30 to 300 178 and 159 (H200).
"""


def _timed_in_all(spec: MatmulSpec) -> bool:
    """Whether short rings, shares of large tiles, clusters of 2x2 and shares in eight CTAs were timed with these."""
    return not (spec.own_loaders or spec.own_sums or spec.copies or spec.groups)


def _every(bases: tuple[MatmulConfig, ...], spec: MatmulSpec) -> Iterator[MatmulConfig]:
    wide_clusters = [cluster for cluster in WIDE_CLUSTERS if cluster != (2, 2) or _timed_in_all(spec)]
    of_eight = SHARES_OF_EIGHT if _timed_in_all(spec) else (1,)
    largest_shared = LARGEST_SHARED_TILE if _timed_in_all(spec) else SMALL_TILE
    factored = bool(spec.groups) and spec.own_sums
    for base in bases:
        if factored and base.swap_ab and base.tile[0] * base.tile[1] > LARGEST_FACTORED_TILE:
            continue
        area = base.tile[0] * base.tile[1]
        shared = area <= largest_shared and not (spec.groups or base.m_below_atom)
        many = MANY_SHARES if area <= LARGEST_MANY_SHARED_TILE and not base.pingpong else ()
        for shares in (*SHARES, *many) if shared else (1,):
            for cluster in CLUSTERS:
                yield _ahead(replace(base, cluster=cluster, split_k=shares), spec)
        if area <= LARGEST_TILE_OF_WIDE and not (base.m_below_atom or base.pingpong):
            for cluster in wide_clusters:
                ways = (*SHARES, *many) if cluster[0] * cluster[1] == 4 else of_eight
                for shares in ways if shared and area <= SMALL_TILE else (1,):
                    yield replace(base, cluster=cluster, split_k=shares)
        if shared and base.tile[0] in (ATOM_ROWS, 2 * ATOM_ROWS) and base.tile[1] <= 64 and not base.pingpong:
            for ctas in (2, 4, 8):
                yield _ahead(replace(base, cluster=(1, 1), cluster_k=ctas), spec)


def _ahead(config: MatmulConfig, spec: MatmulSpec) -> MatmulConfig:
    """The config with the weights' first k-blocks brought into L2 early, where that pays and can be."""
    small = config.cluster == (1, 1) and config.tile[0] * config.tile[1] <= LARGEST_TILE_AHEAD
    return replace(config, prefetch=AHEAD) if small and spec.b_load == "tma" and not spec.groups else config
