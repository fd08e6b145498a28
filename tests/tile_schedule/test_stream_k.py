"""Streamed tiles: every k-block once, and no cluster waits for one that starts later or that waits itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import SmallKernel

from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role
from tilekit.tile_schedule.raster import Raster, RasterOrder
from tilekit.tile_schedule.stream_k import StreamKScheduler, StreamPlan, StreamShare
from tilekit.tiles.cluster import Cluster

TILES, K_BLOCKS, RESIDENT, MOST = st.integers(1, 400), st.integers(0, 60), st.integers(1, 132), st.integers(1, 9)


@dataclass(frozen=True)
class Piece:
    """What a cluster does at once: k-blocks ``first … end - 1`` of a cluster tile."""

    tile: int
    first: int
    end: int


def ways(plan: StreamPlan, k_blocks: int) -> list[list[Piece]]:
    """Each cluster's pieces in their order, as the class documents it."""
    found = []
    for cluster in range(plan.clusters):
        pieces = [Piece(tile, 0, k_blocks) for tile in range(cluster, plan.whole, plan.clusters)]
        at = (plan.clusters - 1 - cluster) * plan.length
        end = min(at + plan.length, plan.streamed * k_blocks)
        while at < end:
            tile, first = divmod(at, k_blocks)
            stop = min(k_blocks, first + end - at)
            pieces.append(Piece(plan.whole + tile, first, stop))
            at += stop - first
        found.append(pieces)
    return found


@settings(deadline=None)
@given(TILES, K_BLOCKS, RESIDENT, MOST)
def test_every_k_block_exactly_once(tiles: int, k_blocks: int, resident: int, most: int) -> None:
    """No cluster is idle and none too many, and the pieces of all are the tiles."""
    plan = StreamPlan.of(tiles=tiles, k_blocks=k_blocks, resident=resident, most=most)
    assert plan.whole + plan.streamed == tiles
    assert plan.clusters <= min(resident, tiles * max(k_blocks, 1))
    pieces = defaultdict(list)
    for way in ways(plan, k_blocks):
        assert way
        for piece in way:
            pieces[piece.tile].append((piece.first, piece.end))
    assert sorted(pieces) == list(range(tiles))
    for parts in pieces.values():
        parts.sort()
        assert [first for first, _ in parts] == [0, *(end for _, end in parts[:-1])]
        assert parts[-1][1] == k_blocks


@settings(deadline=None)
@given(TILES, K_BLOCKS, RESIDENT, MOST)
def test_a_head_waits_for_the_first_pieces_of_lower_clusters(
    tiles: int, k_blocks: int, resident: int, most: int
) -> None:
    """A tile's head is the last piece of a range, its other shares are first pieces of the lower clusters next."""
    plan = StreamPlan.of(tiles=tiles, k_blocks=k_blocks, resident=resident, most=most)
    shared = defaultdict(list)
    for cluster, way in enumerate(ways(plan, k_blocks)):
        streamed = [piece for piece in way if piece.tile >= plan.whole]
        for place, piece in enumerate(streamed):
            if (piece.first, piece.end) != (0, k_blocks):
                shared[piece.tile].append((piece.first, cluster))
                assert place == (0 if piece.first else len(streamed) - 1)
    for shares in shared.values():
        shares.sort()
        head = shares[0][1]
        assert [cluster for _, cluster in shares] == list(range(head, head - len(shares), -1))
        assert len(shares) <= plan.kept(k_blocks) + 1 <= (2 if tiles > resident else most + 1)


@settings(deadline=None)
@given(TILES, st.integers(1, 60), RESIDENT)
def test_ways_are_equally_long(tiles: int, k_blocks: int, resident: int) -> None:
    """No cluster has more k-blocks than the mean, rounded up; the model counts as many."""
    plan = StreamPlan.of(tiles=tiles, k_blocks=k_blocks, resident=resident, most=k_blocks)
    longest = max(sum(piece.end - piece.first for piece in way) for way in ways(plan, k_blocks))
    assert longest == -(-tiles * k_blocks // resident)
    assert plan.rounds(k_blocks) == pytest.approx(longest / k_blocks)


def test_by_hand() -> None:
    """Whole waves are left alone; of more the last but one is streamed with the rest; few tiles are cut so far only."""
    assert StreamPlan.of(tiles=264, k_blocks=64, resident=132, most=4) == StreamPlan(264, 0, 1, 132)
    assert StreamPlan.of(tiles=300, k_blocks=64, resident=132, most=4) == StreamPlan(132, 168, 82, 132)
    assert StreamPlan.of(tiles=33, k_blocks=56, resident=132, most=8) == StreamPlan(0, 33, 14, 132)
    assert StreamPlan.of(tiles=33, k_blocks=56, resident=132, most=2) == StreamPlan(0, 33, 28, 66)
    assert StreamPlan.of(tiles=40, k_blocks=0, resident=132, most=2) == StreamPlan(40, 0, 1, 40)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 9), st.integers(1, 9), MOST, st.sampled_from([1, 2]))
def test_the_traced_scheduler_does_the_same(
    tiles: int, k_blocks: int, resident: int, most: int, cluster_m: int
) -> None:
    """What the kernel's arithmetic gives, piece by piece and CTA by CTA, is the order documented, with its slots."""
    depth = max(0, 64 * k_blocks - 7)
    plan = StreamPlan.of(tiles=tiles, k_blocks=k_blocks, resident=resident, most=most)
    raster = Raster(rows=tiles, columns=1, group=tiles, batches=1)
    k = SmallKernel(pointers=1, cluster=cluster_m)
    w = k.w
    position = Cluster.read(w, cluster_m, 1)
    order = RasterOrder(w, tile_m=64, tile_n=32, cluster=position, k=w.constant(U32, depth), k_block=64)
    scheduler = StreamKScheduler(w, order, most=most)
    expected = ways(plan, k_blocks)
    most_pieces = max(map(len, expected)) + 1
    cta = w.ptx.cluster.cluster_index() * cluster_m + position.rank
    place = w.variable(U32, cta * (6 * most_pieces), "place")
    for tile in scheduler.tiles(w, Role("every", range(1), frozenset())):
        assert isinstance(tile.share, StreamShare)
        stores = w.select(tile.share.stores, 1, 0)
        others = w.select(tile.share.stores, tile.share.others, 0)
        with w.when(k.thread == 0):
            for i, value in enumerate((tile.row, tile.k_first, tile.k_end, tile.share.slot, stores, others)):
                k.store(0, place + i, value if not isinstance(value, int) else w.constant(U32, value))
        place.assign(place + 6)
    out = np.full((plan.clusters, cluster_m, most_pieces, 6), 0xFFFFFFFF, np.uint32)
    scalars = (raster.rows, raster.columns, raster.group, raster.tiles, plan.whole, max(1, k_blocks), plan.length)
    k.run(out, scalars=scalars, grid=plan.clusters * cluster_m)
    shares = Counter(piece.tile for way in expected for piece in way)
    for cluster, way in enumerate(expected):
        for rank in range(cluster_m):
            slot = cluster * cluster_m + rank
            for piece, record in zip(way, out[cluster, rank].tolist(), strict=False):
                head = piece.first == 0
                assert record == [
                    (piece.tile * cluster_m + rank) * 64,
                    64 * piece.first,
                    min(64 * piece.end, depth),
                    slot,
                    head,
                    head * (shares[piece.tile] - 1),
                ]
            assert (out[cluster, rank, len(way) :] == 0xFFFFFFFF).all()
