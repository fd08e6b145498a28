"""The schedule over groups of rows: every tile of every group once, in bands of rows that L2 keeps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import SmallKernel

from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role
from tilekit.dtypes import as_dtype
from tilekit.tile_schedule.divisor import reciprocal
from tilekit.tile_schedule.grouped import GroupedScheduler
from tilekit.tiles.call import Call, Matrix
from tilekit.tiles.cluster import Cluster

TILE_M, TILE_N = 64, 32
UNWRITTEN = 0xFFFFFFFF


def order(rows: int, columns: int, band: int) -> list[tuple[int, int]]:
    """Row and column of a group's tiles, as the module documents the order."""
    places = []
    for number, first in enumerate(range(0, rows, band)):
        across = range(columns) if number % 2 == 0 else reversed(range(columns))
        places += [(row, column) for column in across for row in range(first, min(first + band, rows))]
    return places


def test_the_order_by_hand() -> None:
    """Five rows by two columns in bands of two: the second band comes back, the third has one row."""
    first, second = [(0, 0), (1, 0), (0, 1), (1, 1)], [(2, 1), (3, 1), (2, 0), (3, 0)]
    assert order(5, 2, 2) == [*first, *second, (4, 0), (4, 1)]
    assert order(3, 2, 16) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


@settings(max_examples=24, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=5),
    columns=st.integers(1, 5),
    band=st.integers(1, 7),
    clusters=st.integers(1, 9),
    shape=st.sampled_from([(1, 1), (2, 1), (1, 2)]),
    counted=st.booleans(),
    every=st.booleans(),
    turned=st.booleans(),
)
def test_the_traced_scheduler_does_the_same(
    sizes: list[int],
    columns: int,
    band: int,
    clusters: int,
    shape: tuple[int, int],
    counted: bool,
    every: bool,
    turned: bool,
) -> None:
    """What the kernel's arithmetic gives for every tile of every group, CTA by CTA, is the order documented.

    Turned, rows and columns of the tiles are those of the transpose.
    """
    cluster_m, cluster_n = shape
    room = 704
    k = SmallKernel(pointers=1, cluster=cluster_m * cluster_n)
    w = k.w
    position = Cluster.read(w, cluster_m, cluster_n)
    rows = w.constant(U32, room * len(sizes) if counted else sum(sizes))
    extent = w.constant(U32, 64)
    how = {"counted": counted, "every_group": every, "turned": turned}
    tile_m, tile_n = (TILE_N, TILE_M) if turned else (TILE_M, TILE_N)
    scheduler = GroupedScheduler(w, tile_m=tile_m, tile_n=tile_n, cluster=position, k=extent, rows=rows, **how)
    index = w.variable(U32, w.ptx.cluster.cluster_index(), "index")
    for tile in scheduler.tiles(w, Role("every", range(1), frozenset())):
        with w.when(k.thread == 0):
            for i, value in enumerate((tile.batch, tile.row, tile.column, tile.row_first, tile.row_end)):
                k.store(0, (index * position.size + position.rank) * 5 + i, value)
        index.assign(index + clusters)

    down, across = (cluster_n, cluster_m) if turned else (cluster_m, cluster_n)
    height = TILE_M * down
    lines = [max(-(-size // height), int(every)) for size in sizes]
    firsts = [room * group if counted else sum(sizes[:group]) for group in range(len(sizes))]
    expected = [
        (group, row, column)
        for group, count in enumerate(lines)
        for row, column in (order(count, columns, band) if count else [])
    ]
    out = np.full((len(expected) + 1, position.size, 5), UNWRITTEN, np.uint32)
    bounds = np.asarray(sizes if counted else np.cumsum(sizes), np.int32)
    given_rows = (room,) if counted else ()
    numbers = (len(sizes), *given_rows, columns, band, *reciprocal(band * columns))
    k.run(out, bounds, scalars=numbers, grid=clusters * position.size)

    assert (out[len(expected)] == UNWRITTEN).all(), "a tile too many"
    for (group, row, column), ctas in zip(expected, out.tolist(), strict=False):
        for rank, record in enumerate(ctas):
            inner = rank % cluster_m, rank // cluster_m
            inner_row, inner_column = reversed(inner) if turned else inner
            top = firsts[group] + (row * down + inner_row) * TILE_M
            left = (column * across + inner_column) * TILE_N
            place = [left, top] if turned else [top, left]
            assert record == [group, *place, firsts[group], firsts[group] + sizes[group]]


def band_of(rows: int, k: int, dtype: str, given: int | None = None, *, turned: bool = False) -> int:
    """Rows of tiles of a band, of a launch on 132 SMs with 4096 columns."""
    w = SmallKernel(cluster=2).w
    position = Cluster.read(w, *((2, 1) if turned else (1, 2)))
    number = w.constant(U32, 64)
    how = {"counted": False, "band": given, "turned": turned}
    GroupedScheduler(w, tile_m=128, tile_n=128, cluster=position, k=number, rows=number, **how)
    name, (m, n) = ("b", (4096, rows)) if turned else ("a", (rows, 4096))
    matrix = Matrix(name, as_dtype(dtype), (k, rows), k)
    call = Call(m=m, n=n, k=k, matrices={name: matrix}, addresses={"groups": 0}, resident=66, numbers={"groups": 4})
    return next(parameter.value(call) for parameter in w.parameters if parameter.name == "tile_group")


@pytest.mark.parametrize(
    ("rows", "k", "dtype", "band"),
    [
        (34304, 7168, "bf16", 16),
        (34304, 7168, "e4m3", 32),
        (34304, 65536, "bf16", 11),
        (34560, 2048, "bf16", 56),
        (500, 64, "bf16", 4),
        (34304, 0, "bf16", 268),
    ],
)
def test_a_band_is_what_l2_keeps(rows: int, k: int, dtype: str, band: int) -> None:
    """As many rows of tiles as 28 MB of A have, at least those of the smallest footprint, at most all."""
    assert band_of(rows, k, dtype) == band
    assert band_of(rows, k, dtype, turned=True) == band


def test_a_given_band_is_kept() -> None:
    """Within the rows there are."""
    assert [band_of(34304, 7168, "bf16", given) for given in (1, 5, 1000)] == [1, 5, 268]


def test_bands_differ_in_what_a_wave_reads() -> None:
    """66 clusters of 192 by 256 over 45 rows of tiles read half of what they read down all rows, by hand."""

    def read(band: int) -> int:
        wave = order(45, 16, band)[:66]
        return len({row for row, _ in wave}) * 192 + len({column for _, column in wave}) * 256

    footprints = [read(band) for band in (45, 16, 11)]
    assert footprints == [45 * 192 + 2 * 256, 16 * 192 + 5 * 256, 11 * 192 + 6 * 256]
    assert all(later < earlier for earlier, later in pairwise(footprints))
