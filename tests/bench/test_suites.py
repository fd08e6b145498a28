"""The fixed lists of cases, and how they are sampled and split."""

from __future__ import annotations

import pytest

from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.suites import SUITES, select
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import BF16, E4M3
from tilekit.errors import ArgumentError


def test_the_suites_are_the_published_ones() -> None:
    """Names, sizes and a few cases of each suite: a change here makes old figures incomparable."""
    sizes = {name: len(suite.cases) for name, suite in SUITES.items()}
    assert sizes == {
        "squares-large": 5,
        "squares-small": 4,
        "decode": 84,
        "prefill-small": 36,
        "prefill": 48,
        "odd": 5,
        "fp8": 7,
        "grouped": 3,
        "blockwise": 11,
        "block-scaled": 16,
        "conv2d": 55,
        "conv2d-fused": 24,
        "attention": 14,
        "attention-decode": 8,
        "conv2d-gradients": 20,
    }
    labels = {name: [case.label for case in suite.cases] for name, suite in SUITES.items()}
    assert [label.split("x")[0] for label in labels["squares-large"]] == ["4096", "6144", "8192", "12288", "16384"]
    assert {label.split("x")[0] for label in labels["decode"]} == {"1", "2", "4", "8", "16", "32", "64"}
    assert {"1x57344x8192", "64x2112x7168", "8x24576x1536"} <= set(labels["decode"])
    assert {"128x7168x16384", "512x8192x28672"} <= set(labels["prefill-small"])
    assert "4095x4097x4093" in labels["odd"]


def test_every_case_is_told_apart_within_its_suite() -> None:
    """Label and kind name a case; types are those that the suite is for."""
    for suite in SUITES.values():
        assert len({(case.label, case.kind) for case in suite.cases}) == len(suite.cases)
        for case in suite.cases:
            if isinstance(case, MatmulWorkload):
                assert case.a_dtype is (E4M3 if suite.name in ("fp8", "blockwise", "block-scaled") else BF16)


def test_grouped_cases_have_whole_tiles_and_a_skewed_one_has_empty_groups() -> None:
    """Group sizes are multiples of 128 and add up to the published totals."""
    cases = [case for case in SUITES["grouped"].cases if isinstance(case, GroupedWorkload)]
    assert [(len(case.sizes), sum(case.sizes)) for case in cases[:2]] == [(4, 34304), (8, 34560)]
    assert all(size % 128 == 0 for case in cases for size in case.sizes)
    assert cases[2].routing == "skewed"
    assert 0 in cases[2].sizes
    assert max(cases[2].sizes) > 10 * sorted(cases[2].sizes)[len(cases[2].sizes) // 2]


def test_a_smaller_sample_is_part_of_a_larger_one() -> None:
    """Samples are nested, the same each time, and have every suite in them once they are as many as the suites."""
    whole = select(["all"])
    assert len(whole) == sum(len(suite.cases) for suite in SUITES.values())
    assert select(["all"]) == whole
    for count in (1, 8, 50):
        assert select(["all"], count) == whole[:count]
    assert {case.suite for case in select(["all"], len(SUITES))} == set(SUITES)
    assert len(select(["odd"], 100)) == 5


def test_a_sample_is_spread_by_size() -> None:
    """Of 50 cases of decode and odd together, about as many are of each as their sizes say."""
    chosen = [case.suite for case in select(["decode", "odd"], 50)]
    assert 44 <= chosen.count("decode") <= 48
    rows = {case.workload.label.split("x")[0] for case in select(["decode"], 30)}
    assert len(rows) >= 6, "the rows of decode are mixed"


def test_parts_are_the_whole() -> None:
    """Four parts are disjoint, of nearly the same size, and together the selection."""
    whole = select(["all"], 30)
    parts = [select(["all"], 30, (index, 4)) for index in (1, 2, 3, 4)]
    assert sorted(len(part) for part in parts) == [7, 7, 8, 8]
    key = [(case.suite, case.workload.label) for part in parts for case in part]
    assert sorted(key) == sorted((case.suite, case.workload.label) for case in whole)


def test_a_suite_named_twice_is_measured_once() -> None:
    """`all` beside a name, or a name twice, adds nothing."""
    assert select(["odd", "odd"]) == select(["odd"])
    assert select(["odd", "all"]) == select(["all"])


def test_what_is_not_there_is_refused() -> None:
    """Unknown suites, empty samples and parts beyond the last are errors that name the nearest."""
    with pytest.raises(ArgumentError, match=r"--suite: given 'decod'.*decode"):
        select(["decod"])
    with pytest.raises(ArgumentError, match="--sample: given 0"):
        select(["odd"], 0)
    for part, nearest in (((5, 4), "4/4"), ((0, 4), "1/4")):
        with pytest.raises(ArgumentError, match=nearest):
            select(["odd"], None, part)


def test_groups_must_have_rows() -> None:
    """No group, a negative one, or nothing but empty ones is no workload."""
    for sizes in ((), (128, -1), (0, 0)):
        with pytest.raises(ArgumentError, match="sizes"):
            GroupedWorkload(sizes, 8, 8)


def test_a_grouped_case_counts_what_it_touches() -> None:
    """FLOPs are of the rows there are, bytes leave out the weights of an empty group."""
    case = GroupedWorkload((128, 0, 256), 64, 32)
    assert case.flops == 2 * 384 * 64 * 32
    assert case.bytes == 2 * (384 * 32 + 2 * 64 * 32 + 384 * 64)
    assert case.label == "G3 384x64x32"
