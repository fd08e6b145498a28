"""The static schedule: every tile once, whatever the shape, the grid and the grouping."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import SmallKernel

from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role
from tilekit.tile_schedule.raster import Raster, RasterOrder, Walk
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.cluster import Cluster

PROBLEMS = st.fixed_dictionaries(
    {
        "m": st.integers(1, 3000),
        "n": st.integers(1, 3000),
        "batches": st.integers(1, 4),
        "cluster_rows": st.sampled_from([64, 128, 192, 256, 512]),
        "cluster_columns": st.sampled_from([64, 128, 256, 512]),
        "resident": st.integers(1, 132),
        "group": st.none() | st.integers(1, 30),
        "order": st.sampled_from(["m", "n"]),
    }
)


def place(raster: Raster, index: int, order: Walk) -> tuple[int, int, int]:
    """Batch, cluster row and cluster column of the schedule's tile `index`, as the class documents the order."""
    batch, within = divmod(index, raster.rows * raster.columns)
    walked, others = (raster.rows, raster.columns) if order == "m" else (raster.columns, raster.rows)
    group, inner = divmod(within, raster.group * others)
    first = group * raster.group
    across, along = divmod(inner, min(raster.group, walked - first))
    across = others - 1 - across if group % 2 else across
    return (batch, first + along, across) if order == "m" else (batch, across, first + along)


@pytest.mark.parametrize(
    ("order", "group", "expected"),
    [
        ("m", 2, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0)]),
        ("n", 2, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2)]),
        ("m", 3, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]),
        ("n", 3, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]),
    ],
)
def test_the_order_by_hand(order: Walk, group: int, expected: list[tuple[int, int]]) -> None:
    """Nine tiles: down M or along N, two or three lines together, back again in the next group."""
    raster = Raster(rows=3, columns=3, group=group, batches=2)
    places = [place(raster, index, order) for index in range(18)]
    assert places == [(batch, *at) for batch in range(2) for at in expected]


@given(PROBLEMS)
def test_every_tile_exactly_once(problem: dict[str, Any]) -> None:
    """The order visits each cluster tile of each batch once, and none outside."""
    raster = Raster.plan(**problem)
    seen = Counter(place(raster, index, problem["order"]) for index in range(raster.tiles))
    assert set(seen.values()) == {1}
    rows, columns = -(-problem["m"] // problem["cluster_rows"]), -(-problem["n"] // problem["cluster_columns"])
    assert set(seen) == {(b, r, c) for b in range(problem["batches"]) for r in range(rows) for c in range(columns)}


@given(PROBLEMS)
def test_as_few_clusters_as_finish_in_the_same_waves(problem: dict[str, Any]) -> None:
    """The grid never exceeds what is resident nor the tiles, keeps the number of waves, and one less would add one."""
    raster, resident = Raster.plan(**problem), problem["resident"]
    clusters = raster.clusters(resident)
    waves = -(-raster.tiles // resident)
    assert 1 <= clusters <= min(resident, raster.tiles)
    assert -(-raster.tiles // clusters) == waves
    assert clusters == 1 or -(-raster.tiles // (clusters - 1)) > waves


@given(PROBLEMS)
def test_neighbouring_tiles_are_neighbours(problem: dict[str, Any]) -> None:
    """Within a group the next tile is one further along or one line on: its operands are still in L2."""
    raster = Raster.plan(**problem)
    places = [place(raster, index, problem["order"])[1:] for index in range(raster.rows * raster.columns)]
    if problem["order"] == "n":
        places = [at[::-1] for at in places]
    for (along, across), (next_along, next_across) in itertools.pairwise(places):
        if along // raster.group == next_along // raster.group:
            assert (next_along == along + 1 and next_across == across) or abs(next_across - across) == 1
        else:
            assert next_across == across, "the serpentine turns where it is"


@given(PROBLEMS)
def test_along_n_is_the_transpose(problem: dict[str, Any]) -> None:
    """Either order is that of the transposed problem with the two dimensions' names exchanged."""
    swapped = {
        **problem,
        "m": problem["n"],
        "n": problem["m"],
        "cluster_rows": problem["cluster_columns"],
        "cluster_columns": problem["cluster_rows"],
        "order": {"m": "n", "n": "m"}[problem["order"]],
    }
    one, other = Raster.plan(**problem), Raster.plan(**swapped)
    for index in range(one.tiles):
        batch, row, column = place(one, index, problem["order"])
        assert place(other, index, swapped["order"]) == (batch, column, row)


@pytest.mark.parametrize(("m", "wave"), [(8192, 64), (4096, 64), (8448, 66), (1000, 64)])
def test_group_makes_the_footprint_small(m: int, wave: int) -> None:
    """The chosen group has the smallest footprint of a wave, of the clusters that are launched for as many rounds as
    66 of them need; a given one is kept, within the rows there are."""
    plan = {"m": m, "n": 8192, "batches": 1, "cluster_rows": 256, "cluster_columns": 256, "resident": 66}
    chosen = Raster.plan(**plan, group=None)
    assert chosen.clusters(66) == wave

    def footprint(group: int) -> int:
        return group + -(-wave // group)

    rows = -(-m // 256)
    assert footprint(chosen.group) == min(footprint(g) for g in range(1, min(16, rows) + 1))
    assert Raster.plan(**plan, group=3).group == 3
    assert Raster.plan(**plan, group=500).group == rows


@pytest.mark.parametrize("order", ["m", "n"])
@pytest.mark.parametrize(("m", "n", "together"), [(245, 2304, "columns"), (2304, 245, "rows"), (600, 8200, "columns")])
def test_one_wave_walks_along_the_smaller_operand(m: int, n: int, together: str, order: Walk) -> None:
    """Where one wave covers the output, neighbours share a tile of the larger operand as long as there is one."""
    plan = {"batches": 1, "cluster_rows": 64, "cluster_columns": 72, "order": order, "group": None}
    raster = Raster.plan(m=m, n=n, resident=4000, **plan)
    places = [place(raster, index, order)[1:] for index in range(raster.tiles)]
    shared = [column if together == "columns" else row for row, column in places]
    assert len(list(itertools.groupby(shared))) == len(set(shared)), "each tile of the larger operand has one turn"


def test_no_tiles() -> None:
    """An empty output has no tiles and asks for no cluster."""
    raster = Raster.plan(m=0, n=64, batches=1, cluster_rows=64, cluster_columns=64, resident=132, group=None)
    assert (raster.tiles, raster.clusters(132)) == (0, 0)


@settings(max_examples=16, deadline=None)
@given(PROBLEMS, st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.booleans())
def test_the_traced_scheduler_does_the_same(problem: dict[str, Any], cluster: tuple[int, int], batched: bool) -> None:
    """What the kernel's arithmetic gives for every tile, CTA by CTA, is the order documented."""
    problem = {**problem, "m": problem["m"] % 700 + 1, "n": problem["n"] % 700 + 1}
    problem["batches"] = problem["batches"] if batched else 1
    raster = Raster.plan(**problem)
    cluster_m, cluster_n = cluster
    k = SmallKernel(pointers=1, cluster=cluster_m * cluster_n)
    w = k.w
    position = Cluster.read(w, cluster_m, cluster_n)
    scheduler = StaticScheduler(
        RasterOrder(
            w,
            tile_m=64,
            tile_n=32,
            cluster=position,
            k=w.constant(U32, 64),
            k_block=64,
            batched=batched,
            order=problem["order"],
        )
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
    k.run(out, scalars=(raster.rows, raster.columns, raster.group, raster.tiles), grid=clusters * position.size)
    for index_, ctas in enumerate(out.tolist()):
        batch, row, column = place(raster, index_, problem["order"])
        for rank, record in enumerate(ctas):
            inner_row, inner_column = rank % cluster_m, rank // cluster_m
            assert record == [batch, (row * cluster_m + inner_row) * 64, (column * cluster_n + inner_column) * 32]
