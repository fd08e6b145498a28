"""Sets of matmul configs for `benchmarks.sweep --configs`: what is timed against each other on a shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, product
from random import Random
from typing import Any, cast

from tilekit.bench.workload import MatmulWorkload
from tilekit.kernels.gemv.picker import MOST_TOKENS
from tilekit.kernels.matmul.picker import pick, ranked
from tilekit.kernels.matmul.sm_90a.candidates import candidates, tuning_candidates
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.targets import SM_90A

ROWS = ((64, 1), (128, 1), (128, 2), (192, 3), (256, 2))
"""Rows of N and the warpgroups that share them."""


def shape_of(workload: MatmulWorkload) -> dict[str, Any]:
    """The product's extents, as the picker and its model take them."""
    return {"m": workload.m, "n": workload.n, "k": workload.k, "batches": workload.batch or 1}


def choice(workload: MatmulWorkload) -> MatmulConfig:
    """The picker's choice."""
    best = pick(workload.spec, SM_90A, **shape_of(workload))
    assert isinstance(best, MatmulConfig)
    return best


def small_m(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """Swapped tiles whose columns just hold M: rows, warpgroups, slices of K in a stage, shares of K, clusters."""
    columns = min(128, max(8, -(-workload.m // 8) * 8))
    for (rows, consumers), k_group, shares, cluster, in_flight in product(
        ROWS, (1, 2, 4), (1, 2, 3, 4, 6), ((1, 1), (2, 1)), (0, 1)
    ):
        yield MatmulConfig(
            tile=(rows, columns),
            cluster=cluster,
            consumers=consumers,
            swap_ab=True,
            k_group=k_group,
            in_flight=in_flight,
            split_k=shares,
        )


def sums(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The same tiles with their sums whole, shared through a workspace, and shared in a cluster."""
    columns = min(128, max(16, -(-workload.m // 16) * 16))
    tiles = [((rows, columns), consumers, True) for rows, consumers in ROWS]
    tiles += [((64, 64), 1, False), ((128, 64), 2, False), ((64, 128), 1, False), ((128, 128), 2, False)]
    ways = [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8)]
    for (tile, consumers, swapped), (split_k, cluster_k) in product(tiles, ways):
        yield MatmulConfig(
            tile=tile,
            cluster=(1, 1),
            consumers=consumers,
            swap_ab=swapped,
            split_k=split_k,
            cluster_k=cluster_k,
        )


def picked_from(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """What the picker chooses from."""
    yield from candidates(workload.spec, SM_90A)


def overlaps(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The picker's choice, ready for the launch before to end: more or less of b brought into L2."""
    yield from (choice(workload).changed(prefetch=blocks) for blocks in (0, 1, 2, 4, 8, 12))


def rasters(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The picker's choice, its tiles in other orders."""
    best = choice(workload)
    for order, group in product(("m", "n"), (None, 2, 4, 6, 8, 12, 16, 24, 32)):
        yield best.changed(raster_order=order, raster_group=group)


def balanced(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """Tiles just wide enough for all to be done in one to four waves, each of almost all SMs."""
    for (rows, consumers), waves in product(((64, 1), (128, 2), (192, 3), (256, 2)), (1, 2, 3, 4)):
        if rows > max(64, workload.m):
            continue
        high = -(-workload.m // rows)
        columns = -(-workload.n // max(1, SM_90A.multiprocessors * waves // high) // 8) * 8
        for k_group, in_flight, cluster, shares in product((1, 2, 4), (0, 1), ((1, 1), (2, 1), (1, 2)), (1, 2)):
            if 8 <= columns <= 256 and (shares == 1 or cluster == (1, 1)):
                yield MatmulConfig(
                    tile=(rows, columns),
                    cluster=cluster,
                    consumers=consumers,
                    k_group=k_group,
                    in_flight=in_flight,
                    cluster_k=shares,
                )


def streamed(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """What the picker chooses from, the last tiles shared by all CTAs."""
    yield from (config for config in tuning_candidates(workload.spec, SM_90A) if config.stream_k)


def everything(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """What the picker chooses from, and what only tuning tries."""
    yield from candidates(workload.spec, SM_90A)
    yield from tuning_candidates(workload.spec, SM_90A)


LEADERS = 16
"""Of the configs that the model likes best, those that are timed whatever they are."""


def spread(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The model's best few, with more and fewer slices of K in a stage, and the best of every kind of tile and cluster.

    What a model is fitted to must hold what it would not choose.
    """
    shape = shape_of(workload)
    kinds = set()
    for place, entry in enumerate(ranked(workload.spec, SM_90A, **shape)):
        config = entry.config
        assert isinstance(config, MatmulConfig)
        kind = (config.swap_ab, config.tile[0], config.pingpong, config.cluster, config.split_k, config.cluster_k)
        if kind not in kinds or place < LEADERS:
            kinds.add(kind)
            yield config
        if place < LEADERS // 4:
            yield from (config.changed(k_group=slices) for slices in (1, 2, 4))


CONTENDERS = 1.15
"""How many times as long as the model's best a config may take, by the model, to be a contender."""


def contenders(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """What the picker may take if it errs a little: the first six, the best of each kind near them, and a few others.

    What trees learn from, which tell such configs apart. Of products that gemv mostly gets, only the first.
    """
    entries = ranked(workload.spec, SM_90A, **shape_of(workload))
    near = [entry for entry in entries if entry.total <= CONTENDERS * entries[0].total]
    configs = [cast(MatmulConfig, entry.config) for entry in near]
    yield from configs[:6]
    if workload.m <= MOST_TOKENS:
        return
    kinds = {(c.swap_ab, c.pingpong, c.cluster, c.split_k, c.cluster_k): c for c in reversed(configs)}
    yield from [c for c in kinds.values() if c not in configs[:6]][-5:]
    yield from Random(f"{workload.label} {workload.kind}").sample(configs, min(3, len(configs)))


def rings(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The model's best, and what it likes less: the best of each of these kinds.

    Deeper rings, their stores in one buffer, beside the same with two; clusters of two by two; shares of K in clusters
    of eight.
    """
    spec, shape = workload.spec, shape_of(workload)
    chosen = [cast(MatmulConfig, entry.config) for entry in ranked(spec, SM_90A, **shape)]
    spare = [cast(MatmulConfig, entry.config) for entry in ranked(spec, SM_90A, **shape, tuning=True)]
    yield from chosen[:6]
    deeper = ((c, c.changed(output_buffers=2)) for c in chosen + spare if c.output_buffers == 1)
    legal = (pair for pair in deeper if pair[1].legal(SM_90A, spec))
    pairs = (pair for pair in legal if len({c.resolved_stages(SM_90A, spec) for c in pair}) == 2)
    yield from chain.from_iterable(islice(pairs, 8))
    yield from [c for c in chosen if c.cluster == (2, 2)][:6]
    yield from [c for c in chosen if c.cluster_size == 8 and c.split_k > 1][:6]


def promotions(workload: MatmulWorkload) -> Iterator[MatmulConfig]:
    """The model's best three, each with every promotion of what L2 fetches where a load misses."""
    shape = shape_of(workload)
    for entry in ranked(workload.spec, SM_90A, **shape)[:3]:
        config = cast(MatmulConfig, entry.config)
        yield from (config.changed(l2_promotion=what) for what in (None, "64B", "128B"))


FAMILIES: dict[str, Callable[[MatmulWorkload], Iterator[MatmulConfig]]] = {
    "small_m": small_m,
    "sums": sums,
    "overlaps": overlaps,
    "candidates": picked_from,
    "rasters": rasters,
    "balanced": balanced,
    "streamed": streamed,
    "everything": everything,
    "spread": spread,
    "contenders": contenders,
    "rings": rings,
    "promotions": promotions,
}
