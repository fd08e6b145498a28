"""The static schedule: every tile once, whatever the shape, the grid and the grouping."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import SmallKernel

from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_schedule.raster import Raster, RasterOrder
from tilekit.tile_schedule.static import StaticScheduler

PROBLEMS = st.fixed_dictionaries(
    {
        "m": st.integers(1, 3000),
        "n": st.integers(1, 3000),
        "batches": st.integers(1, 4),
        "cluster_rows": st.sampled_from([64, 128, 192, 256, 512]),
        "cluster_columns": st.sampled_from([64, 128, 256, 512]),
        "resident": st.integers(1, 132),
        "group": st.none() | st.integers(1, 30),
    }
)


def place(raster: Raster, index: int) -> tuple[int, int, int]:
    """Batch, cluster row and cluster column of the schedule's tile `index`, as the class documents the order."""
    batch, within = divmod(index, raster.rows * raster.columns)
    group, inner = divmod(within, raster.group * raster.columns)
    first = group * raster.group
    column, row = divmod(inner, min(raster.group, raster.rows - first))
    return batch, first + row, raster.columns - 1 - column if group % 2 else column


@given(PROBLEMS)
def test_every_tile_exactly_once(problem: dict[str, int]) -> None:
    """The order visits each cluster tile of each batch once, and none outside."""
    raster = Raster.plan(**problem)  # type: ignore[arg-type]
    seen = Counter(place(raster, index) for index in range(raster.tiles))
    assert set(seen.values()) == {1}
    rows, columns = -(-problem["m"] // problem["cluster_rows"]), -(-problem["n"] // problem["cluster_columns"])
    assert set(seen) == {(b, r, c) for b in range(problem["batches"]) for r in range(rows) for c in range(columns)}


@given(PROBLEMS)
def test_as_few_clusters_as_finish_in_the_same_waves(problem: dict[str, int]) -> None:
    """The grid never exceeds what is resident nor the tiles, keeps the number of waves, and one less would add one."""
    raster, resident = Raster.plan(**problem), problem["resident"]  # type: ignore[arg-type]
    clusters = raster.clusters(resident)
    waves = -(-raster.tiles // resident)
    assert 1 <= clusters <= min(resident, raster.tiles)
    assert -(-raster.tiles // clusters) == waves
    assert clusters == 1 or -(-raster.tiles // (clusters - 1)) > waves


@given(PROBLEMS)
def test_neighbouring_tiles_are_neighbours(problem: dict[str, int]) -> None:
    """Within a group the next tile is one row down or one column on: its operands are still in L2."""
    raster = Raster.plan(**problem)  # type: ignore[arg-type]
    places = [place(raster, index) for index in range(raster.rows * raster.columns)]
    for (_, row, column), (_, next_row, next_column) in itertools.pairwise(places):
        if row // raster.group == next_row // raster.group:
            assert (next_row == row + 1 and next_column == column) or abs(next_column - column) == 1
        else:
            assert next_column == column, "the serpentine turns where it is"


def test_group_makes_the_footprint_small() -> None:
    """The chosen group has the smallest footprint of a wave; a given one is kept, within the rows there are."""
    plan = {"m": 8192, "n": 8192, "batches": 1, "cluster_rows": 256, "cluster_columns": 256, "resident": 66}
    chosen = Raster.plan(**plan, group=None)

    def footprint(group: int) -> int:
        return group * 256 + -(-66 // group) * 256

    assert footprint(chosen.group) == min(footprint(g) for g in range(1, 17))
    assert Raster.plan(**plan, group=5).group == 5
    assert Raster.plan(**plan, group=500).group == 32


def test_no_tiles() -> None:
    """An empty output has no tiles and asks for no cluster."""
    raster = Raster.plan(m=0, n=64, batches=1, cluster_rows=64, cluster_columns=64, resident=132, group=None)
    assert (raster.tiles, raster.clusters(132)) == (0, 0)


@settings(max_examples=12, deadline=None)
@given(PROBLEMS, st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.booleans())
def test_the_traced_scheduler_does_the_same(problem: dict[str, int], cluster: tuple[int, int], batched: bool) -> None:
    """What the kernel's arithmetic gives for every tile, CTA by CTA, is the order documented."""
    problem = {**problem, "m": problem["m"] % 700 + 1, "n": problem["n"] % 700 + 1}
    problem["batches"] = problem["batches"] if batched else 1
    raster = Raster.plan(**problem)  # type: ignore[arg-type]
    cluster_m, cluster_n = cluster
    k = SmallKernel(pointers=1, cluster=cluster_m * cluster_n)
    w = k.w
    position = ClusterPosition.read(w, cluster_m, cluster_n)
    scheduler = StaticScheduler(
        RasterOrder(w, tile_m=64, tile_n=32, cluster=position, depth=w.constant(U32, 64), batched=batched)
    )
    clusters = raster.clusters(problem["resident"])
    index = w.variable(U32, w.ptx.cluster.cluster_index(), "index")
    for tile in scheduler.tiles(w, Role("every", range(1), frozenset())):
        with w.when(k.thread == 0):
            for i, value in enumerate((tile.batch, tile.row, tile.column)):
                record = (index * position.size + position.rank) * 3 + i
                k.store(0, record, value if not isinstance(value, int) else w.constant(U32, value))
        index.assign(index + clusters)
    out = np.full((raster.tiles, position.size, 3), 0xFFFFFFFF, np.uint32)
    k.run(out, scalars=RasterOrder.arguments(raster), grid=clusters * position.size)
    for index_, ctas in enumerate(out.tolist()):
        batch, row, column = place(raster, index_)
        for rank, record in enumerate(ctas):
            inner_row, inner_column = rank % cluster_m, rank // cluster_m
            assert record == [batch, (row * cluster_m + inner_row) * 64, (column * cluster_n + inner_column) * 32]
