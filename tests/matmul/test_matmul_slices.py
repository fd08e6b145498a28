"""What the CTAs of a cluster fetch of an operand that they share: any number of rows, or rows of every chunk."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(
    ("majors", "config", "shape"),
    [
        ("kk", MatmulConfig(tile=(128, 104), swap_ab=True, cluster=(4, 1)), (104, 520, 192)),
        ("kk", MatmulConfig(tile=(64, 24), consumers=1, cluster=(4, 2)), (300, 104, 192)),
        ("kk", MatmulConfig(tile=(64, 8), consumers=1, swap_ab=True, cluster=(4, 2)), (24, 264, 72)),
        ("kn", MatmulConfig(tile=(64, 64), consumers=1, cluster=(2, 1)), (136, 72, 192)),
        ("kn", MatmulConfig(tile=(64, 192), consumers=1, cluster=(2, 1), k_group=2), (136, 200, 200)),
        ("mk", MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 4)), (72, 264, 200)),
        ("mn", MatmulConfig(tile=(128, 104), swap_ab=True, cluster=(4, 1)), (104, 520, 192)),
        ("mn", MatmulConfig(tile=(64, 8), consumers=1, swap_ab=True, cluster=(1, 1), k_group=4), (8, 136, 328)),
        ("mk", MatmulConfig(tile=(64, 8), consumers=1, swap_ab=True, cluster=(4, 1), k_group=2), (24, 264, 200)),
        ("mk", MatmulConfig(tile=(64, 16), consumers=1, swap_ab=True, cluster=(4, 2), k_group=2), (40, 264, 200)),
        ("mn", MatmulConfig(tile=(128, 32), swap_ab=True, cluster=(2, 1)), (72, 264, 200)),
        ("kn", MatmulConfig(tile=(64, 32), consumers=1, cluster=(2, 1)), (136, 72, 200)),
        ("kn", MatmulConfig(tile=(64, 96), consumers=1, cluster=(2, 1)), (136, 200, 200)),
        ("mn", MatmulConfig(tile=(128, 160), swap_ab=True, cluster=(4, 1), k_group=2), (168, 520, 200)),
        ("kn", MatmulConfig(tile=(8, 16), consumers=1, cluster=(1, 1), k_group=4), (8, 72, 328)),
        ("mn", MatmulConfig(tile=(192, 192), consumers=3, output_buffers=1, cluster=(2, 1)), (400, 200, 72)),
    ],
    ids=str,
)
def test_any_slice_is_fetched(majors: str, config: MatmulConfig, shape: tuple[int, int, int]) -> None:
    """Slices that begin within the swizzle's eight rows, and slices along K of MN-major chunks, wide and narrow ones:
    exact results."""
    m, n, k = shape
    random = np.random.default_rng(sum(shape))
    a, b = (random.integers(-3, 4, each).astype(ml_dtypes.bfloat16) for each in ((m, k), (k, n)))
    a = np.asfortranarray(a) if majors[0] == "m" else a
    b = np.asfortranarray(b) if majors[1] == "k" else b
    d = tilekit.matmul(a, b, config=config, out_dtype="f32")
    np.testing.assert_array_equal(np.asarray(d), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(
    ("tile", "swapped", "cluster_k", "shape"),
    [
        ((64, 16), True, 8, (14, 12800, 264)),
        ((64, 24), True, 4, (24, 200, 504)),
        ((64, 40), True, 2, (40, 144, 304)),
        ((64, 16), False, 8, (70, 40, 704)),
        ((64, 8), True, 8, (8, 600, 1000)),
    ],
    ids=str,
)
def test_more_ctas_than_parts_share_a_sum(
    tile: tuple[int, int], swapped: bool, cluster_k: int, shape: tuple[int, int, int]
) -> None:
    """Those without a part of the columns only send: exact results, tile after tile."""
    m, n, k = shape
    random = np.random.default_rng(sum(shape))
    a, b = (random.integers(-3, 4, each).astype(ml_dtypes.bfloat16) for each in ((m, k), (n, k)))
    config = MatmulConfig(tile=tile, consumers=1, swap_ab=swapped, cluster=(1, 1), cluster_k=cluster_k, k_group=2)
    d = tilekit.matmul(a, b.T, config=config, out_dtype="f32")
    np.testing.assert_array_equal(np.asarray(d), a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    ("shares", "config", "shape"),
    [
        (2, MatmulConfig(tile=(128, 32), swap_ab=True, cluster=(2, 1)), (40, 304, 72)),
        (3, MatmulConfig(tile=(64, 48), consumers=1, swap_ab=True, cluster=(1, 1)), (40, 136, 520)),
        (4, MatmulConfig(tile=(64, 88), consumers=1, swap_ab=True, cluster=(1, 4)), (346, 72, 904)),
        (5, MatmulConfig(tile=(64, 64), consumers=1, cluster=(1, 1)), (104, 136, 336)),
        (4, MatmulConfig(tile=(64, 32), consumers=1, cluster=(1, 1)), (64, 64, 64)),
    ],
    ids=str,
)
def test_the_last_share_adds_all(shares: int, config: MatmulConfig, shape: tuple[int, int, int]) -> None:
    """As many shares as asked for, and fewer where K has fewer k-blocks: exact results."""
    m, n, k = shape
    random = np.random.default_rng(sum(shape))
    a, b = (random.integers(-3, 4, each).astype(ml_dtypes.bfloat16) for each in ((m, k), (n, k)))
    d = tilekit.matmul(a, b.T, config=config.changed(split_k=shares), out_dtype="f32")
    np.testing.assert_array_equal(np.asarray(d), a.astype(np.float32) @ b.astype(np.float32).T)
