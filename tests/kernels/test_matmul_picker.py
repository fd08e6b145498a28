"""The picker and its two models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_specs import CHIPS, all_specs

from tilekit.dtypes import F32
from tilekit.kernels.matmul.estimates import Grids, ranking
from tilekit.kernels.matmul.picker import candidates, closest, default_config, estimate, pick, ranked
from tilekit.kernels.matmul.sm_90a import model as hopper_model
from tilekit.kernels.matmul.sm_90a.candidates import CANDIDATES
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_90a.model import COLD_COST
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.sm_100a.model import SWAPPED_TILES, TILES, collect, resident
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, SM_100A, Target

EXTENT = st.integers(0, 20000)
PARTS = 25
"""Of the specs, one of which is looked at in every run."""

ON_BOTH = pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)


@ON_BOTH
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.breadth) for part in range(1, PARTS))])
def test_every_spec_has_candidates(chip: Target, part: int) -> None:
    """Whatever is computed, several legal configs are there, with a cluster too unless threads copy, none twice."""
    for spec in list(all_specs(chip))[part::PARTS]:
        found = candidates(spec, chip)
        assert {config.cluster_size for config in found} >= ({1} if spec.copies else {1, 2}), spec.name
        assert len(set(found)) == len(found) >= (6 if spec.copies else 12)
        assert not any(config.problems(chip, spec) for config in found)
        assert not default_config(spec, chip).problems(chip, spec)


def test_every_candidate_is_legal_somewhere() -> None:
    """No tile of either chip's list is refused for every spec."""
    missing: set[Any] = {config.tile for config in CANDIDATES}
    for spec in all_specs(SM_90A):
        missing -= {config.tile for config in candidates(spec, SM_90A)}
        if not missing:
            break
    assert not missing
    missing = {
        (group, rows, columns, cluster, swapped)
        for tiles, swapped in ((TILES, False), (SWAPPED_TILES, True))
        for group, rows, widths, clusters in tiles
        for columns in widths
        for cluster in clusters
    }
    for spec in all_specs(SM_100A):
        missing -= {
            (config.cta_group, *config.tile, config.cluster, config.swap_ab)
            for config in candidates(spec, SM_100A)
            if isinstance(config, BlackwellConfig)
        }
        if not missing:
            break
    assert not missing


@ON_BOTH
@settings(deadline=None)  # the first example ranks with empty caches
@given(m=EXTENT, n=EXTENT, k=EXTENT, batches=st.integers(0, 5), sms=st.integers(1, 148))
def test_any_shape_gets_a_config(chip: Target, m: int, n: int, k: int, batches: int, sms: int) -> None:
    """Empty, tiny and huge problems, on few and many multiprocessors, get the candidate that the model likes best."""
    spec = MatmulSpec()
    order = ranked(spec, chip, m=m, n=n, k=k, batches=batches, sms=sms)
    assert [e.total for e in order] == sorted(e.total for e in order)
    assert pick(spec, chip, m=m, n=n, k=k, batches=batches, sms=sms) == order[0].config
    assert all(e.config.cluster_size <= sms for e in order)
    for e in order:
        assert e.waves * sms >= e.tiles
        assert e.total > 0


@ON_BOTH
@settings(max_examples=30, deadline=None)  # the first example ranks with empty caches
@given(m=EXTENT, n=EXTENT, k=EXTENT, grown=st.sampled_from(["m", "n", "k", "batches"]))
def test_more_work_never_takes_less_time(chip: Target, m: int, n: int, k: int, grown: str) -> None:
    """The time of the best config grows with every extent, but for a few percent at the edges of tiles.

    Rows outside of an operand take the copy engine longer than those inside: a quarter where there are few others, as
    with tiles of 64 rows at 16x6144x4096 (H200: 20.6 us; at M = 64 15.4). So do columns beyond K, of which a k-block
    has most where it is the only one: as K grows within it, up to a sixth goes (models only, no GPU was asked).
    """
    shape = {"m": m, "n": n, "k": k, "batches": 1}
    larger = {**shape, grown: shape[grown] * 2 + 1}
    before, after = (ranked(MatmulSpec(), chip, **s)[0].total for s in (shape, larger))
    if m and n and k:  # an empty problem still pays for the last tile's stores
        within_a_k_block = grown == "k" and larger["k"] <= 64
        assert after >= before * (0.74 if min(m, n) < 256 else 0.8 if within_a_k_block else 0.97)


@pytest.mark.parametrize(("k", "falls"), [(9, True), (31, True), (64, False)])
def test_columns_beyond_a_small_k_take_time(k: int, falls: bool) -> None:
    """A k-block that is mostly beyond K is dearer than one that is full; K of whole k-blocks never gets cheaper."""
    before, after = (ranked(MatmulSpec(), SM_90A, m=2930, n=656, k=each)[0].total for each in (k, 2 * k + 1))
    assert (after < before) is falls
    assert after > 0.75 * before


@ON_BOTH
def test_small_outputs_spread_over_the_chip(chip: Target) -> None:
    """A product with few output tiles is cut into small ones, a large square into the largest."""
    small = pick(MatmulSpec(), chip, m=512, n=512, k=4096)
    large = pick(MatmulSpec(), chip, m=8192, n=8192, k=8192)
    assert small.tile[0] * small.tile[1] < large.tile[0] * large.tile[1]
    assert large.tile[0] * large.tile[1] >= 128 * 192


def test_blackwell_stores_whole_boxes() -> None:
    """The picker has no tile whose output would leave in boxes narrower than their swizzle: a B200 was not asked."""
    for spec in all_specs(SM_100A):
        for config in candidates(spec, SM_100A):
            assert isinstance(config, BlackwellConfig)
            assert not config.narrow_boxes(spec), f"{spec.name}: {config}"
    bf16, f32 = MatmulSpec(), MatmulSpec(out_dtype=F32)
    for columns in (40, 48, 96):
        assert BlackwellConfig(tile=(64, columns), cluster=(1, 1), cta_group=1).narrow_boxes(bf16)
    assert BlackwellConfig(tile=(64, 48), cluster=(1, 1), cta_group=1).narrow_boxes(f32)
    assert not BlackwellConfig(tile=(64, 96), cluster=(1, 1), cta_group=1).narrow_boxes(f32)


def test_one_wave_neither_overlaps_nor_claims() -> None:
    """On Blackwell one wave takes one accumulator and a static schedule; more take two, and claim their tiles."""
    for shape, waves in (((2048, 2048, 2048), 1), ((8192, 8192, 8192), 2)):
        config = pick(MatmulSpec(), SM_100A, m=shape[0], n=shape[1], k=shape[2])
        assert isinstance(config, BlackwellConfig)
        assert (config.accumulator_stages, config.clc_stages > 0) == (waves, waves > 1)


@pytest.mark.parametrize(
    ("tile", "group", "clocks"),
    [
        ((128, 256), 1, 128), ((128, 128), 1, 64), ((128, 64), 1, 48), ((64, 256), 1, 128), ((64, 64), 1, 32),
        ((128, 256), 2, 128), ((128, 128), 2, 64), ((128, 64), 2, 43), ((64, 256), 2, 64), ((64, 64), 2, 25),
    ],
)  # fmt: skip
def test_instructions_take_the_time_that_was_measured(tile: tuple[int, int], group: int, clocks: int) -> None:
    """An instruction's clocks, of the tensor core or of reading its operands, are those published for a B200."""
    config = BlackwellConfig(tile=tile, cta_group=group, cluster=(group, 1))
    e = estimate(config, MatmulSpec(), SM_100A, m=4096, n=4096, k=4096, batches=1, sms=148)
    assert max(e.tensor, e.shared) / 4 == pytest.approx(clocks, abs=3)


def test_large_clusters_leave_gaps() -> None:
    """Pairs fill an odd number of pairs' worth of multiprocessors; fours and eights stay within a GPC."""
    configs = collect([BlackwellConfig(cluster=c) for c in ((2, 1), (4, 1), (2, 2), (4, 2))], MatmulSpec())
    assert resident(configs, 148).tolist() == [148, 132, 132, 128]
    assert resident(configs, 8).tolist() == [8, 8, 8, 8]


def test_the_closest_config_to_what_is_asked_for() -> None:
    """What a candidate has comes from the best such; else the tile decides, and the rest is put in its place."""
    shape = {"m": 4096, "n": 4096, "k": 4096}
    single = closest(MatmulSpec(), SM_100A, {"cluster": (1, 1)}, **shape)
    assert isinstance(single, BlackwellConfig)
    assert (single.cta_group, single.cluster) == (1, (1, 1))
    known = closest(MatmulSpec(), SM_100A, {"tile": (128, 192), "stages": 3}, **shape)
    assert (known.tile, known.stages) == ((128, 192), 3)
    other = closest(MatmulSpec(), SM_100A, {"tile": (128, 48), "cta_group": 1}, **shape)
    assert other == BlackwellConfig(tile=(128, 48), cta_group=1, cluster=(1, 1))
    hopper = closest(MatmulSpec(), SM_90A, {"tile": (64, 216)}, **shape)
    assert hopper == MatmulConfig(tile=(64, 216), cluster=(1, 1), consumers=1)


def _l2_clocks(config: MatmulConfig, *, m: int = 1024, n: int = 1024, k: int = 1024) -> float:
    return estimate(config, MatmulSpec(), SM_90A, m=m, n=n, k=k, batches=1, sms=132).l2


def test_rows_that_begin_off_lines_take_longer() -> None:
    """Rows of 2000 bytes come more slowly than those of 2048; the picker takes a cluster that shares them.

    By how much is judged by measured times (`test_picker_against_times`).
    """
    config = MatmulConfig(tile=(64, 128), cluster=(1, 1), consumers=1)
    shared = config.changed(cluster=(2, 1))
    alone = _l2_clocks(config, k=1000) / _l2_clocks(config)
    assert alone > 1
    assert _l2_clocks(shared, k=1000) / _l2_clocks(shared) == pytest.approx(alone)
    assert _l2_clocks(shared, k=1000) < _l2_clocks(config, k=1000)
    best = pick(MatmulSpec(), SM_90A, m=1000, n=1000, k=1000)
    assert best.cluster_size > 1


def test_what_comes_from_dram_takes_longer() -> None:
    """The larger operand's bytes come more slowly than the smaller one's, and a cluster that shares them asks less."""
    upright = MatmulConfig(tile=(64, 128), cluster=(1, 1), consumers=1)
    wide, tall = (_l2_clocks(upright, m=m, n=n) for m, n in ((1024, 15 * 1024), (15 * 1024, 1024)))
    share = 15 / 16
    expected = (64 * (1 + COLD_COST * (1 - share)) + 128 * (1 + COLD_COST * share)) / (
        64 * (1 + COLD_COST * share) + 128 * (1 + COLD_COST * (1 - share))
    )
    assert wide / tall == pytest.approx(expected)
    shared = _l2_clocks(upright.changed(cluster=(2, 1)), m=1024, n=1024)
    assert shared / _l2_clocks(upright) == pytest.approx((64 + 64) / (64 + 128))


def test_tiles_that_share_lines_take_longer() -> None:
    """MN-major tiles of no whole chunks begin between lines, but not where one tile has all columns.

    They bring their own columns alone. Of eight tiles of 104 seven begin within a line, and each row of a chunk then
    asks for two.
    """
    spec = MatmulSpec(b_major="mn")

    def l2(columns: int, n: int) -> float:
        config = MatmulConfig(tile=(64, columns), cluster=(1, 1), consumers=1)
        return estimate(config, spec, SM_90A, m=n, n=n, k=1024, batches=1, sms=132).l2

    assert l2(104, 2048) / l2(128, 2048) == pytest.approx((64 + 104 * (1 + 7 / 8)) / (64 + 128))
    assert l2(192, 128) / l2(136, 128) == pytest.approx((64 + 192) / (64 + 136))


def test_ragged_rows_are_those_of_k() -> None:
    """Where an operand ends within a chunk of 32 columns, as many rows of a k-block do as within one of 64."""
    spec = MatmulSpec(b_major="mn")
    configs = [MatmulConfig(tile=(64, n), cluster=(1, 1), consumers=1) for n in (160, 192)]
    collected = hopper_model.collect(configs, spec)
    grids = Grids.of(collected, spec, m=4096, n=152, k=4096, batches=1, resident=np.array([132, 132]))
    assert collected.chunk_n.tolist() == [32, 64]
    assert grids.ragged.tolist() == [64, 64]


@ON_BOTH
@pytest.mark.parametrize(("m", "n"), [(8, 1992), (1, 64), (40, 8192), (4096, 16), (130, 130)])
def test_no_cluster_has_ctas_mostly_without_tiles(chip: Target, m: int, n: int) -> None:
    """More than half of the CTAs of whatever cluster may be picked have a tile; without the rule some would not."""
    spec = MatmulSpec()
    found = [entry.config for entry in ranked(spec, chip, m=m, n=n, k=1360, sms=132)]
    for config in found:
        along = (n, m) if config.swap_ab else (m, n)
        tiles = [-(-extent // side) for extent, side in zip(along, config.tile, strict=True)]
        assert all(2 * most > ctas or ctas == 1 for most, ctas in zip(tiles, config.cluster, strict=True)), str(config)
    assert len(found) < len(candidates(spec, chip))


def test_launches_that_leave_half_of_the_chip_overlap() -> None:
    """Of as many clocks a k-block, 66 CTAs are ready when the launch before them ends, and 67 are not."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
    shape = {"m": 64, "k": 64, "batches": 1, "sms": 132}
    half, more = (estimate(config, MatmulSpec(), SM_90A, n=64 * tiles, **shape).total for tiles in (66, 67))
    assert more - half == pytest.approx(hopper_model.EARLY_CLOCKS, rel=0.1)


def test_what_lies_beyond_k_takes_time() -> None:
    """A stage of four slices of which K has one takes longer than a stage of one; rows of a wide cluster are shared."""
    config = MatmulConfig(tile=(64, 32), cluster=(1, 1), consumers=1, k_group=4)
    times = [
        estimate(c, MatmulSpec(), SM_90A, m=1024, n=1024, k=64, batches=1, sms=132).total
        for c in (config.changed(k_group=1), config, config.changed(cluster=(1, 2)))
    ]
    assert times[0] < times[1]


def test_rows_that_share_a_line_are_asked_for_in_turn() -> None:
    """With eight rows of A to a line of L2, a hundred CTAs wait for each other's answers."""
    spec, shape = MatmulSpec(a_major="mn"), {"m": 8, "n": 8192, "k": 4096, "batches": 1, "sms": 132}
    alone = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
    assert (
        estimate(alone, spec, SM_90A, **shape).total
        > 1.3 * estimate(alone.changed(cluster=(1, 4)), spec, SM_90A, **shape).total
    )


def test_groups_are_as_uneven_as_can_be_expected() -> None:
    """Of the same rows in more groups more tiles are expected, one a group at least; few rows take small tiles."""
    spec = MatmulSpec(groups="ends")
    few, many = (pick(spec, SM_90A, m=m, n=4096, k=4096, groups=64) for m in (256, 32768))
    assert few.tile[0] == 64 < many.tile[0]
    assert not few.problems(SM_90A, spec)
    assert not many.problems(SM_90A, spec)


def test_clusters_of_four_and_eight_leave_multiprocessors_out() -> None:
    """As many as an H200 says run at once: 30 clusters of four and 15 of eight."""
    configs = [MatmulConfig(tile=(64, 64), consumers=1, cluster=c) for c in ((1, 1), (2, 1), (4, 1), (1, 4), (4, 2))]
    held = hopper_model.resident(hopper_model.collect(configs, MatmulSpec()), 132)
    assert held.tolist() == [132, 132, 120, 120, 120]


def test_what_lies_within_sectors_counts_where_rows_begin_at_them() -> None:
    """Tiles of 104 columns begin within sectors of rows of 2048 bytes; rows of 1616 do so themselves, in any tile."""
    spec = MatmulSpec(a_major="mn")

    def ratio(m: int) -> float:
        times = [
            estimate(MatmulConfig(tile=(128, n), swap_ab=True), spec, SM_90A, m=m, n=8192, k=8192, batches=1, sms=132)
            for n in (104, 112)
        ]
        return times[0].total / times[1].total

    assert ratio(1024) > 1.1
    assert ratio(808) < 1


def test_rows_of_half_a_line_take_longer() -> None:
    """A tile of 160 MN-major columns comes in chunks of 64 bytes, each asked for by itself; K-major it does not."""
    config, shape = MatmulConfig(tile=(128, 160), cluster=(1, 1)), {"m": 4096, "n": 4096, "k": 4096}
    times = {
        major: estimate(config, MatmulSpec(b_major=major), SM_90A, **shape, batches=1, sms=132).l2
        for major in ("k", "mn")
    }
    assert times["mn"] > 1.2 * times["k"]


def test_wide_tiles_of_groups_are_dear() -> None:
    """Of 4096 rows in six groups 128x256 is not the choice: 288 tiles of it took 260 us, 576 of 128x128 200 (H200)."""
    spec = MatmulSpec(groups="ends")
    assert pick(spec, SM_90A, m=4096, n=2048, k=7168, groups=6).tile[1] <= 208


def test_few_tiles_and_a_long_k_have_many_shares() -> None:
    """Five or eight of small tiles, of no large ones; a turn costs less than a turn a share."""
    configs = [c for c in candidates(MatmulSpec(), SM_90A) if c.split_k > 4]
    assert {c.split_k for c in configs} == {5, 8}
    assert max(c.tile[0] * c.tile[1] for c in configs) <= 64 * 128
    shape = {"m": 104, "n": 584, "k": 13536, "batches": 1, "sms": 132}
    times = [
        estimate(MatmulConfig(tile=(64, 56), consumers=1, cluster=(1, 4), split_k=n), MatmulSpec(), SM_90A, **shape)
        for n in (2, 5)
    ]
    assert times[1].total < times[0].total


def test_any_config_has_an_estimate() -> None:
    """Also one that the ranking leaves out: streamed tiles where none is shared, clusters that do not fit."""
    whole = {"m": 128 * 132, "n": 256, "k": 1024, "batches": 1}
    plain, streamed = (
        estimate(MatmulConfig(cluster=(1, 1), stream_k=ranges), MatmulSpec(), SM_90A, **whole, sms=132)
        for ranges in (0, 2)
    )
    assert streamed.total == plain.total
    assert estimate(MatmulConfig(cluster=(4, 1)), MatmulSpec(), SM_90A, **whole, sms=2).total > plain.total


@ON_BOTH
def test_the_ranking_can_be_read(chip: Target) -> None:
    """A line for each candidate, best first, with what the model says of it."""
    order = ranked(MatmulSpec(), chip, m=4096, n=4096, k=4096)
    head, *rows = ranking(order).splitlines()
    assert head.split() == ["waves", "tiles", "tensor", "shared", "L2", "DRAM", "power", "total", "config"]
    assert len(rows) == len(order)
    for row, e in zip(rows, order, strict=True):
        assert row.endswith(str(e.config))
        assert int(row.split()[0]) == e.waves


@ON_BOTH
def test_few_rows_become_columns(chip: Target) -> None:
    """Of 8192 columns of A's 16 rows M is one tile's columns, operands swapped; of 4096 rows several tiles' of many.

    On Hopper a tile of 16 of an instruction's 64 rows is as quick (33.45 us both, H200), and may be picked.
    """
    few, large = (pick(MatmulSpec(), chip, m=m, n=8192, k=8192) for m in (16, 4096))
    assert min(few.tile) == few.tile[few.swap_ab] == 16
    assert few.swap_ab or chip is SM_90A
    assert min(large.tile) >= 128


def test_tiles_of_mn_major_operands_begin_at_sectors() -> None:
    """With M contiguous, 1008 rows are not cut into tiles of 168: those begin within sectors, and take 1.6 times."""
    spec = MatmulSpec(a_major="mn", b_major="mn")
    config = pick(spec, SM_90A, m=1008, n=1280, k=5120)
    assert isinstance(config, MatmulConfig)
    of_m, of_n = config.tile[::-1] if config.swap_ab else config.tile
    assert of_m % 16 == of_n % 16 == 0


def test_short_rings_have_a_stage_more() -> None:
    """With one buffer for stores, where it was seen to win: not in turn, and not in rings that are long enough."""
    spec = MatmulSpec(a_major="mn", b_major="mn")
    found = candidates(spec, SM_90A)
    of_their_own = {config.tile for config in CANDIDATES if config.output_buffers == 1}
    deeper = [c for c in found if c.output_buffers == 1 and c.tile not in of_their_own]
    assert {(128, 144), (192, 176)} <= {config.tile for config in deeper}
    for config in deeper[::50]:
        two = config.changed(output_buffers=2).resolved_stages(SM_90A, spec)
        assert config.resolved_stages(SM_90A, spec) > two
        assert two <= 4
        assert not config.pingpong


def test_clusters_of_two_by_two_and_shares_in_those_of_eight() -> None:
    """Of plain products; groups of rows have neither."""
    plain, groups = (candidates(spec, SM_90A) for spec in (MatmulSpec(), MatmulSpec(groups="ends")))
    assert any(config.cluster == (2, 2) for config in plain)
    assert {config.split_k for config in plain if config.cluster == (4, 2)} == {1, 2, 3}
    assert not any(config.cluster == (2, 2) for config in groups)
