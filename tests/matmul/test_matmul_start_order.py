"""Kernels whose CTAs wait for each other end whatever the order in which the clusters of their grid start."""

from __future__ import annotations

import pytest

from tests.mutations.launches import Case
from tilekit import MatmulConfig, MatmulSpec

SMALL = {"tile": (64, 64), "cluster": (1, 1), "consumers": 1, "stages": 2, "output_buffers": 1}
CASES = {
    "turns, one wave": Case("", MatmulConfig(split_k=3, **SMALL), MatmulSpec(), 128, 64, 384, clusters=6),
    "turns, three waves": Case("", MatmulConfig(split_k=2, **SMALL), MatmulSpec(), 192, 64, 256, clusters=2),
    "turns of clusters": Case(
        "", MatmulConfig(split_k=2, **{**SMALL, "cluster": (2, 1)}), MatmulSpec(), 256, 64, 256, clusters=2
    ),
    "streamed": Case("", MatmulConfig(stream_k=4, **SMALL), MatmulSpec(), 576, 64, 320, clusters=4),
    "streamed behind a wave": Case("", MatmulConfig(stream_k=2, **SMALL), MatmulSpec(), 448, 64, 192, clusters=3),
    "in a cluster": Case("", MatmulConfig(cluster_k=2, **SMALL), MatmulSpec(), 192, 64, 320, clusters=2),
}


@pytest.mark.parametrize("starts", ["ascending", "descending", "random"])
@pytest.mark.parametrize("name", CASES)
def test_any_order(name: str, starts: str) -> None:
    """A grid no larger than what runs at once ends in every order of its clusters, with exact sums."""
    for seed, schedule in enumerate(("adversarial", "random")):
        report, right = CASES[name].run(CASES[name].text, schedule, seed, starts=starts)
        assert right
        assert report.clean, str(report)
